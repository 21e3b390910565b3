//! The oracles: the promises of the machines' world.

use std::sync::{Mutex, PoisonError};

use agent_forge_actors::{
    domain::{goal, managed_vm::ManagedVm},
    ports::vcenter::{PowerState, VmObservation},
};
use agent_forge_crds::{
    agent::VsphereAgent, conditions::Reason, external::agent::Agent, names::AGENT_FINALIZER,
};
use ahash::AHashMap;
use kube::ResourceExt;

use crate::{
    binding,
    explore::digest,
    machines::Machines,
    objects::STRANGER,
    shared::Shared,
    upstream,
    world::{World, is_ours},
};

/// Every marked VM that ran has its VsphereAgent.
pub const NO_LEAK: &str = "no leak";
/// Each VsphereAgent has at most one VM.
pub const NO_DOUBLE: &str = "no double";
/// See [`crate::world::Harm`].
pub const NO_HARM: &str = "nothing foreign touched, nothing serving destroyed";
/// From every state, once faults are over, all machines come to the rest that they should.
pub const ENDS: &str = "every machine ends";
/// All promises.
pub const PROMISES: [&str; 4] = [NO_LEAK, NO_DOUBLE, NO_HARM, ENDS];

fn ours(w: &World) -> impl Iterator<Item = &Shared<VmObservation>> {
    w.vms.iter().filter(|v| is_ours(v))
}

/// A marked VM without a VsphereAgent that has our finalizer.
pub fn orphan(w: &World) -> Option<&Shared<VmObservation>> {
    let answered = |vm: &VmObservation| {
        w.children.iter().any(|c| {
            let held = c.finalizers().iter().any(|f| f == AGENT_FINALIZER);
            held && c.uid().as_ref() == vm.marker.as_ref().map(|m| &m.uid)
        })
    };
    ours(w).find(|v| !answered(v))
}

/// An orphan that ran, so the orphan scan may not remove it.
pub fn leak(w: &World) -> Option<String> {
    let leaked = orphan(w).filter(|v| v.power != PowerState::Off || !v.boot_order.is_empty())?;
    Some(format!("{} ran, and is nobody's", leaked.moref.id))
}

/// Two VMs of one VsphereAgent.
pub fn double(w: &World) -> Option<String> {
    let mut owners: Vec<&str> = ours(w)
        .filter_map(|v| v.marker.as_ref())
        .map(|m| m.uid.as_str())
        .collect();
    owners.sort_unstable();
    let double = owners.windows(2).find(|w| w[0] == w[1])?;
    Some(format!("{} has two VMs", double[0]))
}

/// Whether a VsphereAgent that has not given the Agent's VM up records that VM.
pub fn may_be_approved(w: &World, agent: &Agent) -> bool {
    w.children.iter().any(|c| {
        let child = ManagedVm::read(c.arc());
        let records = child.identity.as_ref().is_some_and(|i| {
            agent_forge_actors::domain::identity::BiosUuid::parse(&agent.name_any())
                .is_some_and(|u| u.same_machine(i.bios_uuid))
        });
        records && !child.given_up
    })
}

/// Whether an AgentMachine has its Agent.
pub fn served(w: &World) -> bool {
    w.agent_machines.iter().any(|am| am.agent_ref().is_some())
}

/// Whether a Machine is gone for which a VM was made.
pub fn someone_left(w: &World) -> bool {
    w.born.iter().any(|(name, (_, vms))| {
        *vms > 0
            && !w.machines.iter().any(|m| m.key.name == *name)
            && !w.children.iter().any(|c| c.name_any() == *name)
    })
}

/// What is wrong in a state in which nothing changes any more. `None` if every machine has ended well.
pub fn unrest(model: &Machines, w: &World) -> Option<String> {
    if let Some(harm) = w.harm {
        return Some(format!("{harm:?}"));
    }
    if w.late.is_some() || w.stale.is_some() {
        return Some("something is still on its way".to_owned());
    }
    for m in w.machines.iter() {
        let name = &m.key.name;
        if m.deleting {
            return Some(format!("Machine {name} stays"));
        }
        let Some(am) = w.agent_machines.iter().find(|am| am.name_any() == *name) else {
            return Some(format!("AgentMachine {name} vanished"));
        };
        if let Some(reference) = am.agent_ref() {
            let agent = w.agents.iter().find(|a| a.name_any() == reference.name);
            let on = agent.and_then(|a| w.vm_of(a));
            if on.is_none_or(|vm| !is_ours(vm)) {
                return Some(format!("{name} is served by no VM of ours"));
            }
            if !agent.is_some_and(|a| binding::runs(w, a)) {
                return Some(format!("{name} is served by a guest of an earlier life"));
            }
            continue;
        }
        let taken = w.vms.iter().any(|v| !is_ours(v) && v.name == *name);
        let said = w.children.iter().any(|c| {
            let status = c.status.as_ref();
            goal::wanted_by(c) == am.uid().as_deref()
                && status.is_some_and(|s| {
                    s.waiting_on
                        .iter()
                        .any(|w| w.reason == Reason::NameConflict)
                })
        });
        if !(taken && said) {
            return Some(format!("{name} has no host, and nobody says why"));
        }
    }
    for c in w.children.iter() {
        let for_it = |am: &Shared<_>| goal::wanted_by(c) == ResourceExt::uid(&**am).as_deref();
        if !w.agent_machines.iter().any(for_it) && !binding::waits(w, c) {
            return Some(format!("VsphereAgent {} is for nobody", c.name_any()));
        }
    }
    for a in w.agents.iter().filter(|a| a.name_any() != STRANGER) {
        if !a.is_claimed_or_bound() && !w.children.iter().any(|c| binding::waits_with(w, c, a)) {
            return Some(format!("Agent {} is left", a.name_any()));
        }
    }
    let serving = ours(w).filter(|v| w.agent_on(v).is_some()).count();
    if serving != ours(w).count() {
        return Some("a VM of ours serves nobody".to_owned());
    }
    if let Some(vm) = orphan(w) {
        return Some(format!("{} is nobody's", vm.moref.id));
    }
    double(w).or_else(|| binding::unrest(model, w))
}

/// More rounds than any good ending takes. Fifteen looks, a replacement and a removal take about forty.
const ROUNDS: usize = 150;

/// The states that are known to end well.
#[derive(Default)]
pub struct Endings(Mutex<AHashMap<u64, bool>>);

/// How a state ends once no more faults happen and each part does what it has to do.
enum End {
    /// It is known already.
    Known(bool),
    /// Nothing changes any more, except memory and messages of parts that look again and again.
    Rest(Vec<World>),
    /// It repeats without an end.
    Never,
}

/// Whether two worlds differ only in memory and messages.
fn same_things(a: &World, b: &World) -> bool {
    let records = |w: &World| -> Vec<_> {
        let bare = |c: &Shared<VsphereAgent>| {
            let mut c = c.as_ref_clone();
            c.metadata.resource_version = None;
            if let Some(status) = &mut c.status {
                status.waiting_on.clear();
            }
            Shared::new(c)
        };
        w.children.iter().map(bare).collect()
    };
    a.vms == b.vms
        && a.agents == b.agents
        && a.agent_machines == b.agent_machines
        && a.machines == b.machines
        && records(a) == records(b)
}

impl Endings {
    fn known(&self, print: u64) -> Option<bool> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&print).copied()
    }

    fn follow(&self, model: &Machines, w: &World, way: &mut Vec<u64>) -> End {
        let mut now = w.clone();
        now.left = Default::default();
        let mut line: Vec<(u64, World)> = Vec::new();
        for _ in 0..ROUNDS {
            let print = digest(&now);
            if let Some(known) = self.known(print) {
                return End::Known(known);
            }
            let seen = line.iter().position(|(p, _)| *p == print);
            if let Some(at) = seen {
                let circle = line.split_off(at);
                let circle: Vec<World> = circle.into_iter().map(|(_, w)| w).collect();
                let rest = circle.iter().all(|w| same_things(w, &circle[0]));
                if !rest {
                    return End::Never;
                }
                let waiting = circle.iter().find(|w| upstream::waits_for_time(w));
                let Some(waiting) = waiting else {
                    return End::Rest(circle);
                };
                now = waiting.clone();
                upstream::act(&mut now, &upstream::Deed::Hour);
                continue;
            }
            let then = model.round(&now);
            way.push(print);
            line.push((print, std::mem::replace(&mut now, then)));
        }
        End::Never
    }

    /// Whether everything ends well from this state.
    pub fn ends(&self, model: &Machines, w: &World) -> bool {
        let mut way = Vec::new();
        let good = match self.follow(model, w, &mut way) {
            End::Known(good) => good,
            End::Rest(circle) => circle.iter().any(|w| unrest(model, w).is_none()),
            End::Never => false,
        };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend(way.iter().map(|print| (*print, good)));
        good
    }

    /// How it ends from this state, for people.
    pub fn tell(model: &Machines, w: &World) -> String {
        let all = Self::default();
        match all.follow(model, w, &mut Vec::new()) {
            End::Rest(circle) => {
                let last = &circle[0];
                let wrong = unrest(model, last).unwrap_or_else(|| "all is well".to_owned());
                let vm = |v: &Shared<VmObservation>| format!("{} is {:?}", v.moref.id, v.power);
                let vms: Vec<String> = last.vms.iter().map(vm).collect();
                let records: Vec<String> = last
                    .children
                    .iter()
                    .map(|c| format!("{}: {:?}", c.name_any(), c.status))
                    .collect();
                format!("{wrong}; {vms:?}; {records:#?}; {:#?}", last.memory)
            }
            _ => "it never comes to rest".to_owned(),
        }
    }
}
