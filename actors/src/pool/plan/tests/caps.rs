//! The limits of a pool, in any order of events.

use std::collections::BTreeSet;

use agent_forge_crds::{agent::Goal, conditions::Reason, pool::ScalingSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use proptest::{collection::vec, prelude::*};

use crate::{
    pool::{
        act,
        plan::{Action, Plan, plan},
    },
    testing::{
        World, agent_machine, agent_on, at, child, child_with_vm, claim, delete, machine, obstruct,
        reserve,
    },
};

const NAMES: [&str; 6] = ["w-0", "w-1", "w-2", "w-3", "w-4", "w-5"];

fn pool_of(max_vms: Option<i32>, max_provisioning: Option<i32>) -> World {
    let mut world = World {
        waited: std::time::Duration::from_secs(120),
        ..World::default()
    };
    world.pool.spec.scaling = Some(ScalingSpec {
        max_vms,
        max_provisioning,
        ..ScalingSpec::default()
    });
    world
}

/// AgentMachine `w-<n>` asks. The later ones in `NAMES` are older.
fn asks(world: &mut World, n: usize) {
    let mut am = agent_machine(NAMES[n]);
    let age = i64::try_from(n).expect("small");
    am.metadata.creation_timestamp = Some(Time(at(-age)));
    world.agent_machines.push(am);
    world.machines.push(machine(NAMES[n]));
}

fn created(plan: &Plan) -> Vec<String> {
    let made = plan.actions.iter().filter_map(|a| match a {
        Action::CreateChild { agent_machine, .. } => Some(agent_machine.name_any()),
        _ => None,
    });
    made.collect()
}

fn said(plan: &Plan) -> Vec<(&str, &str)> {
    let waits = plan.waiting.iter();
    let capped = waits.filter(|w| w.reason == Reason::CreateCapReached);
    capped
        .map(|w| (w.subject.as_str(), w.message.as_str()))
        .collect()
}

#[test]
fn the_oldest_get_what_is_left_and_the_others_read_the_numbers() {
    let mut world = pool_of(Some(3), None);
    (0..4).for_each(|n| asks(&mut world, n));
    // One VM serves, one is being removed.
    let mut going = child_with_vm("gone");
    delete(&mut going);
    world.children = vec![child_with_vm("w-1"), going];
    let planned = plan(&world.observed());
    assert_eq!(created(&planned), ["w-3"]);
    let words = |ahead: u8| {
        format!(
            "spec.scaling.maxVMs is 3, and the pool has 3 VMs, including those that are being removed; AgentMachines ahead: {ahead}"
        )
    };
    assert_eq!(
        said(&planned),
        [("w-2", words(0).as_str()), ("w-0", &words(1))]
    );
    world.pool.spec.scaling = None;
    assert_eq!(created(&plan(&world.observed())), ["w-3", "w-2", "w-0"]);
}

#[test]
fn the_tighter_limit_counts_and_zero_makes_no_vm() {
    for (vms, provisioning, made) in [
        (Some(0), None, 0),
        (Some(9), Some(1), 1),
        (Some(1), Some(2), 1),
        (None, Some(2), 2),
        (None, None, 3),
    ] {
        let mut world = pool_of(vms, provisioning);
        (0..3).for_each(|n| asks(&mut world, n));
        let planned = plan(&world.observed());
        assert_eq!(created(&planned).len(), made, "{vms:?} {provisioning:?}");
        assert_eq!(said(&planned).len(), 3 - made);
    }
}

#[test]
fn what_was_made_a_moment_ago_counts_although_the_cache_does_not_show_it() {
    let mut world = pool_of(Some(1), None);
    asks(&mut world, 0);
    asks(&mut world, 1);
    let mut observed = world.observed();
    observed.pending.made = [world.agent_machines[1].uid().expect("a uid")].into();
    let planned = plan(&observed);
    assert_eq!(created(&planned), [""; 0]);
    assert_eq!(said(&planned).len(), 1);
    // Nobody knows whether one was made for the younger AgentMachine.
    observed.pending.made.clear();
    observed.pending.begun = [world.agent_machines[0].uid().expect("a uid")].into();
    let planned = plan(&observed);
    assert_eq!(created(&planned), ["w-0"]);
    assert_eq!(said(&planned)[0].0, "w-1");
}

#[test]
fn provisioning_ends_with_the_agent_and_a_vm_that_waits_for_a_person_does_not_count() {
    let with = |change: fn(&mut World)| {
        let mut world = pool_of(None, Some(1));
        asks(&mut world, 0);
        asks(&mut world, 1);
        world.children = vec![child_with_vm("w-0")];
        change(&mut world);
        created(&plan(&world.observed())).len()
    };
    assert_eq!(with(|_| {}), 0);
    assert_eq!(with(|w| w.agents = vec![agent_on(&w.children[0])]), 1);
    assert_eq!(with(|w| delete(&mut w.children[0])), 1);
    let stuck = with(|w| obstruct(&mut w.children[0], Some(Reason::ReplacementsExhausted)));
    assert_eq!(stuck, 1);
}

/// A surplus VM is usually kept while an AgentMachine waits. Here that AgentMachine waits until the VM is gone.
#[test]
fn a_surplus_vm_goes_for_one_that_waits_for_the_limit() {
    for (max, released) in [(1, true), (2, false)] {
        let mut world = pool_of(Some(max), None);
        asks(&mut world, 0);
        let mut surplus = child_with_vm("old");
        surplus.spec.goal = Some(Goal::default());
        surplus.annotations_mut().clear();
        let vm = surplus.status.as_mut().and_then(|s| s.vm.as_mut());
        let vm = vm.expect("recorded");
        (vm.served, vm.may_serve) = (Some(true), None);
        world.children = vec![surplus];
        let planned = plan(&world.observed());
        let release = |a: &Action| matches!(a, Action::Release { .. });
        assert_eq!(planned.actions.iter().any(release), released, "{max}");
        assert_eq!(created(&planned).is_empty(), released);
    }
}

/// What happens to machine number n.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Asks(usize),
    Registers(usize),
    Serves(usize),
    Leaves(usize),
    IsGone(usize),
    Plan,
}

fn deed() -> impl Strategy<Value = Deed> {
    let n = 0..NAMES.len();
    prop_oneof![
        n.clone().prop_map(Deed::Asks),
        n.clone().prop_map(Deed::Registers),
        n.clone().prop_map(Deed::Serves),
        n.clone().prop_map(Deed::Leaves),
        n.prop_map(Deed::IsGone),
        Just(Deed::Plan),
        Just(Deed::Plan),
    ]
}

/// A pool with its limits, while things happen.
struct Run {
    world: World,
    asked: BTreeSet<usize>,
    made: BTreeSet<String>,
}

impl Run {
    fn child(&self, n: usize) -> Option<usize> {
        let mut all = self.world.children.iter();
        all.position(|c| c.name_any() == NAMES[n])
    }

    fn agent(&self, n: usize) -> Option<usize> {
        let on = agent_on(&child_with_vm(NAMES[n])).name_any();
        self.world.agents.iter().position(|a| a.name_any() == on)
    }

    fn happens(&mut self, deed: Deed) {
        match deed {
            Deed::Asks(n) => {
                if self.asked.insert(n) {
                    asks(&mut self.world, n);
                }
            }
            Deed::Registers(n) => {
                if let (Some(at), None) = (self.child(n), self.agent(n)) {
                    self.world.children[at] = child_with_vm(NAMES[n]);
                    self.world.agents.push(agent_on(&child_with_vm(NAMES[n])));
                }
            }
            Deed::Serves(n) => {
                let mut all = self.world.agent_machines.iter_mut();
                let am = all.find(|am| am.name_any() == NAMES[n]);
                let on = agent_on(&child_with_vm(NAMES[n])).name_any();
                let mut agents = self.world.agents.iter_mut();
                let agent = agents.find(|a| a.name_any() == on);
                if let (Some(am), Some(agent)) = (am, agent) {
                    agent.spec.approved = true;
                    claim(agent, am);
                    reserve(am, agent);
                }
            }
            Deed::Leaves(n) => {
                if let (Some(at), Some(agent)) = (self.child(n), self.agent(n)) {
                    self.world.agents.remove(agent);
                    self.world
                        .agent_machines
                        .retain(|am| am.name_any() != NAMES[n]);
                    self.world.machines.retain(|m| m.key.name != NAMES[n]);
                    delete(&mut self.world.children[at]);
                }
            }
            Deed::IsGone(n) => {
                let going = |c: &agent_forge_crds::VsphereAgent| {
                    c.name_any() == NAMES[n] && c.metadata.deletion_timestamp.is_some()
                };
                self.world.children.retain(|c| !going(c));
            }
            Deed::Plan => {}
        }
    }

    fn provisioned(&self) -> usize {
        let all = self.world.children.iter();
        let without = all.filter(|c| {
            let n = NAMES.iter().position(|name| *name == c.name_any());
            c.metadata.deletion_timestamp.is_none() && n.is_some_and(|n| self.agent(n).is_none())
        });
        without.count()
    }

    /// Plans, checks the limits, and creates.
    fn plans(&mut self) -> Result<(), TestCaseError> {
        let scaling = self.world.pool.spec.scaling.clone().expect("limits");
        let limit =
            |n: Option<i32>| n.map_or(usize::MAX, |n| usize::try_from(n).expect("positive"));
        let planned = plan(&self.world.observed());
        let new = created(&planned);
        let left = limit(scaling.max_vms).saturating_sub(self.world.children.len());
        prop_assert!(
            new.len() <= left,
            "{new:?} beside {}",
            self.world.children.len()
        );
        let left = limit(scaling.max_provisioning).saturating_sub(self.provisioned());
        prop_assert!(new.len() <= left, "{new:?} beside {}", self.provisioned());
        // The later ones in `NAMES` are older.
        let youngest = new.iter().min();
        for (late, _) in said(&planned) {
            prop_assert!(
                youngest.is_none_or(|y| late < y.as_str()),
                "{late} waits for {new:?}"
            );
        }
        for action in &planned.actions {
            if let Action::CreateChild {
                agent_machine,
                machine,
                name,
                ..
            } = action
            {
                let mut made = act::child_object(&self.world.pool, agent_machine, machine, name);
                made.metadata.uid = child(name).metadata.uid;
                self.world.children.push(made);
                self.made.insert(name.clone());
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_order_of_events_exceeds_a_limit_and_everybody_is_served(
        deeds in vec(deed(), 0..60),
        max_vms in prop::option::of(1..4_i32),
        max_provisioning in prop::option::of(1..3_i32),
    ) {
        let world = pool_of(max_vms, max_provisioning);
        let mut run = Run { world, asked: BTreeSet::new(), made: BTreeSet::new() };
        for deed in deeds {
            run.happens(deed);
            if matches!(deed, Deed::Plan) {
                run.plans()?;
            }
        }
        // Machines come up and go: each that asked gets its VM in the end.
        for _ in 0..=NAMES.len() {
            run.plans()?;
            for n in 0..NAMES.len() {
                for deed in [Deed::Registers(n), Deed::Serves(n), Deed::Leaves(n), Deed::IsGone(n)] {
                    run.happens(deed);
                }
            }
        }
        let wanted: BTreeSet<String> = run.asked.iter().map(|n| NAMES[*n].to_owned()).collect();
        prop_assert_eq!(run.made, wanted);
    }
}
