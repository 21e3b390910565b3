//! The part of a world that a pass depends on. A pass that ran on the same part before need not run again: in most
//! states, two machines meet what each of them met alone.
//!
//! A VM actor's pass sees its own VsphereAgent, VMs and Agents, foreign ones, and all AgentMachines and Machines. It
//! needs those because an Agent is fenced against each AgentMachine, and a VsphereAgent may serve another Machine by
//! now. The pool's pass sees no VMs, and nothing that VM actors remember. A test proves that these parts are enough:
//! with [`crate::machines::Machines::verify`], each pass also runs on the whole world, and the results are compared.

use std::{cell::RefCell, cmp::Ordering, hash::Hash, rc::Rc};

use agent_forge_actors::ports::{effect::EffectKind, vcenter::VmObservation};
use agent_forge_crds::{agent::VsphereAgent, external::agent::Agent};
use ahash::AHashMap;
use kube::ResourceExt;
use litemap::LiteMap;

use crate::{
    explore::{Digest, wide_digest},
    objects,
    shared::Held,
    world::{
        Budget, List, Stale, World,
        vcenter::{Late, Order},
    },
};

/// The result of a pass: its part of the world, as the pass left it.
pub struct Outcome {
    /// The versions are not normalised, and the fault is not counted yet.
    pub world: World,
    /// The effects that it tried.
    pub effects: Vec<EffectKind>,
    /// Whether the operator died in it.
    pub died: bool,
}

/// Number of results that each thread remembers.
const MOST: usize = 500_000;

thread_local! {
    static OUTCOMES: RefCell<AHashMap<Digest, Rc<Outcome>>> = RefCell::default();
}

/// The part that a pass depends on.
pub struct Part {
    /// A world that contains only that part.
    pub world: World,
    digest: Digest,
}

impl Part {
    fn new(world: World) -> Self {
        let digest = wide_digest(&world);
        Self { world, digest }
    }
}

/// The result of a pass on `part`, from memory if it ran before. `how` is everything else that it depends on.
pub fn remembered(
    part: &Part,
    how: &impl Hash,
    run: impl FnOnce(&World) -> Outcome,
) -> Rc<Outcome> {
    let key = wide_digest(&(part.digest, how));
    if let Some(known) = OUTCOMES.with_borrow(|all| all.get(&key).cloned()) {
        return known;
    }
    let outcome = Rc::new(run(&part.world));
    OUTCOMES.with_borrow_mut(|all| {
        if all.len() >= MOST {
            all.clear();
        }
        all.insert(key, outcome.clone());
    });
    outcome
}

fn is_of(vm: &VmObservation, name: &str) -> bool {
    vm.marker.as_ref().is_none_or(|marker| marker.name == name)
}

fn runs_for(agent: &Agent, name: &str) -> bool {
    objects::initial(agent).is_none_or(|initial| name.bytes().next() == Some(initial))
}

fn is_for(late: &Late, name: &str) -> bool {
    match &late.order {
        Order::Create(spec) => spec.name == name,
        order => order
            .vm()
            .is_some_and(|vm| vm.id.starts_with(&format!("vm-{name}-"))),
    }
}

fn only<T>(all: &List<T>, keep: impl Fn(&T) -> bool) -> List<T> {
    if all.iter().all(|one| keep(one)) {
        return all.clone();
    }
    Held::new(all.iter().filter(|one| keep(one)).cloned().collect())
}

/// Replaces in `all` the objects of a part, for which `mine` is true, by the objects after the pass. Each keeps its
/// place.
fn put_back<T>(
    all: &mut List<T>,
    (before, after): (&List<T>, &List<T>),
    mine: impl Fn(&T) -> bool,
    order: impl Fn(&T, &T) -> Ordering,
) {
    if before == after {
        return;
    }
    all.retain(|one| !mine(one));
    all.extend(after.iter().cloned());
    all.sort_by(|a, b| order(a, b));
}

fn by_name<K: kube::Resource>(a: &K, b: &K) -> Ordering {
    a.meta().name.cmp(&b.meta().name)
}

/// What a pass of this VM actor depends on. Where hosts have lives, they may change their owner: then that is everything, but
/// for what other actors remember.
pub fn of_vm(w: &World, name: &str) -> Part {
    if w.lives {
        return Part::new(World {
            memory: own(&w.memory, name),
            ..bare(w)
        });
    }
    let child = |c: &_| ResourceExt::name_any(c) == name;
    let agent = |a: &_| runs_for(a, name);
    Part::new(World {
        agent_machines: w.agent_machines.clone(),
        machines: w.machines.clone(),
        children: only(&w.children, child),
        agents: only(&w.agents, agent),
        vms: only(&w.vms, |vm| is_of(vm, name)),
        stale: w.stale.as_ref().map(|stale| match stale {
            Stale::Children(all) => Stale::Children(only(all, child)),
            Stale::Agents(all) => Stale::Agents(only(all, agent)),
            demand @ Stale::Demand(..) => demand.clone(),
        }),
        late: w.late.clone().filter(|late| is_for(late, name)),
        memory: own(&w.memory, name),
        born: own(&w.born, name),
        ..bare(w)
    })
}

/// `w` after that pass.
pub fn after_vm(w: &World, name: &str, part: &Part, outcome: &Outcome) -> World {
    let (mut w, before, after) = (w.clone(), &part.world, &outcome.world);
    if w.lives {
        let mut whole = after.clone();
        (whole.missed, whole.left) = (w.missed, w.left);
        w.memory.remove(name);
        w.memory.extend_from_litemap(LiteMap::clone(&after.memory));
        whole.memory = w.memory;
        return whole;
    }
    let children = (&before.children, &after.children);
    let is_it = |c: &VsphereAgent| c.metadata.name.as_deref() == Some(name);
    put_back(&mut w.children, children, is_it, by_name);
    let agents = (&before.agents, &after.agents);
    put_back(&mut w.agents, agents, |a| runs_for(a, name), by_name);
    let vms = (&before.vms, &after.vms);
    let by_moref = |a: &VmObservation, b: &VmObservation| a.moref.cmp(&b.moref);
    put_back(&mut w.vms, vms, |vm| is_of(vm, name), by_moref);
    w.agent_machines.clone_from(&after.agent_machines);
    if before.late != after.late {
        w.late.clone_from(&after.late);
    }
    if before.memory != after.memory {
        w.memory.remove(name);
        w.memory.extend_from_litemap(LiteMap::clone(&after.memory));
    }
    if before.born != after.born {
        w.born.extend_from_litemap(LiteMap::clone(&after.born));
    }
    w.harm = after.harm;
    w
}

/// What a round of the pool actor depends on.
pub fn of_pool(w: &World) -> Part {
    let vms = if w.lives {
        w.vms.clone()
    } else {
        List::default()
    };
    Part::new(World {
        vms,
        late: None,
        memory: Held::default(),
        ..bare(w)
    })
}

/// `w` after that round.
pub fn after_pool(w: &World, outcome: &Outcome) -> World {
    let after = &outcome.world;
    World {
        agent_machines: after.agent_machines.clone(),
        children: after.children.clone(),
        agents: after.agents.clone(),
        born: after.born.clone(),
        harm: after.harm,
        ..w.clone()
    }
}

fn own<V: Clone>(all: &Held<LiteMap<String, V>>, name: &str) -> Held<LiteMap<String, V>> {
    if all.keys().all(|key| key == name) {
        return all.clone();
    }
    let own = all.get(name).into_iter();
    Held::new(own.map(|value| (name.to_owned(), value.clone())).collect())
}

/// The world without what no pass sees.
fn bare(w: &World) -> World {
    World {
        missed: 0,
        left: Budget::default(),
        ..w.clone()
    }
}
