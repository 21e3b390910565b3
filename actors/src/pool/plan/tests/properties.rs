//! Guarantees of the plan over random worlds. Carrying it out repeatedly leads to a stable state.

use std::{sync::Arc, time::Duration};

use agent_forge_crds::{external::agent::Agent, names::AGENT_MACHINE_LABEL, pool::ScalingSpec};
use kube::ResourceExt;
use proptest::prelude::*;

use crate::{
    domain::{
        identity::{AgentMatch, agent_runs_on},
        machine_state::machine_state,
        managed_vm::ManagedVm,
        upstream,
    },
    pool::{
        act,
        plan::{Action, plan},
    },
    ports::cluster::AgentPatch,
    testing::{
        self, World, agent_machine, agent_on, child, child_with_vm, claim, foreign_agent, machine,
        patch as apply_to, reserve,
    },
    world::host::Host,
};

pub(super) const NAMES: [&str; 4] = ["w-0", "w-1", "w-2", "w-3"];

/// How far one machine is, and what happened to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lot {
    stage: u8,
    machine_gone: bool,
    machine_deleting: bool,
    agent_machine_gone: bool,
    child_deleting: bool,
    mac_differs: bool,
}

pub(super) fn lot() -> impl Strategy<Value = Lot> {
    (
        0..6_u8,
        proptest::array::uniform5(prop::bool::weighted(0.2)),
    )
        .prop_map(|(stage, f)| Lot {
            stage,
            machine_gone: f[0],
            machine_deleting: f[1],
            agent_machine_gone: f[2],
            child_deleting: f[3],
            mac_differs: f[4],
        })
}

/// Stages: 0 nothing, 1 waits, 2 VsphereAgent, 3 VM runs, 4 its Agent registered, 5 bound.
pub(super) fn world(lots: &[Lot], foreign: bool, pool_deleting: bool) -> World {
    let mut w = World::default();
    if pool_deleting {
        testing::delete(&mut w.pool);
    }
    for (name, lot) in NAMES.iter().zip(lots) {
        let mut am = agent_machine(name);
        let mut owner = machine(name);
        owner.deleting = lot.machine_deleting;
        let mut va = if lot.stage >= 3 {
            child_with_vm(name)
        } else {
            child(name)
        };
        if lot.stage >= 4 {
            let mut agent = agent_on(&va);
            if lot.mac_differs {
                let inventory = agent.status.as_mut().and_then(|s| s.inventory.as_mut());
                inventory.expect("an inventory").interfaces.truncate(1);
            }
            if lot.stage >= 5 {
                agent.spec.approved = true;
                claim(&mut agent, &am);
                reserve(&mut am, &agent);
            }
            w.agents.push(agent);
        }
        if lot.child_deleting {
            testing::delete(&mut va);
        }
        if lot.stage >= 2 {
            w.children.push(va);
        }
        if lot.stage >= 1 && !lot.machine_gone {
            w.machines.push(owner);
        }
        if lot.stage >= 1 && !lot.agent_machine_gone {
            w.agent_machines.push(am);
        }
    }
    if foreign {
        let mut metal = foreign_agent("metal-0");
        metal
            .labels_mut()
            .insert("customer".to_owned(), "example".to_owned());
        w.agents.push(metal);
    }
    w.waited = Duration::from_secs(120);
    w
}

fn patched(agents: &mut [Agent], patch: &AgentPatch) {
    let agent = agents
        .iter_mut()
        .find(|a| a.name_any() == patch.key.name)
        .expect("the patched Agent");
    testing::patch_agent(agent, patch);
}

/// Carries the actions out on the world, as far as Kubernetes is concerned.
fn apply(w: &mut World, actions: &[Action]) {
    for action in actions {
        match action {
            Action::Pin { agent_machine, pin } => {
                let am = w
                    .agent_machines
                    .iter_mut()
                    .find(|am| am.name_any() == agent_machine.name_any());
                let am = am.expect("the pinned AgentMachine");
                let selector = am.spec.agent_label_selector.get_or_insert_default();
                let exact = selector.match_labels.get_or_insert_default();
                exact.insert(AGENT_MACHINE_LABEL.to_owned(), pin.clone());
            }
            Action::CreateChild {
                agent_machine,
                machine,
                name,
                ..
            } => {
                let mut made = act::child_object(&w.pool, agent_machine, machine, name);
                made.metadata.uid = Some(format!("va-{name}"));
                w.children.push(made);
            }
            Action::Prepare { patch, .. } | Action::Fence { patch, .. } => {
                patched(&mut w.agents, patch);
            }
            Action::Release { child, .. } => w.children.retain(|c| c.name_any() != child.key.name),
            Action::CreateForBuffer { name, .. } => {
                let mut made = act::buffer_object(&w.pool, name);
                made.metadata.uid = Some(format!("va-{name}"));
                w.children.push(made);
            }
            Action::MoveToBuffer { child, .. } | Action::Recycle { child, .. } => {
                let mut all = w.children.iter_mut();
                let moved = all.find(|c| c.name_any() == child.key.name).expect("moved");
                apply_to(moved, &act::into_buffer(child, None));
            }
            Action::Reassign { .. }
            | Action::Take { .. }
            | Action::Bring { .. }
            | Action::AddFinalizer
            | Action::Close
            | Action::RemoveFinalizer => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn no_plan_breaks_a_promise(
        lots in proptest::collection::vec(lot(), 4),
        foreign in any::<bool>(),
        pool_deleting in prop::bool::weighted(0.2),
        buffer in 0..4_i32,
    ) {
        let mut w = world(&lots, foreign, pool_deleting);
        w.pool.spec.scaling = Some(ScalingSpec {
            buffer_agents: Some(buffer),
            ..ScalingSpec::default()
        });
        for round in 0..6 {
            let s = w.observed();
            let actions = plan(&s).actions;
            let mut made = Vec::new();
            for action in &actions {
                match action {
                    Action::Prepare { patch, .. } => {
                        let agent = w.agents.iter().find(|a| a.name_any() == patch.key.name).expect("known");
                        let on = s.children.iter().find(|c| c.identity.as_ref().is_some_and(|vm| agent_runs_on(agent, vm) == AgentMatch::Same));
                        prop_assert!(on.is_some(), "prepared {} without proof", patch.key.name);
                        prop_assert!(!agent.is_claimed_or_bound(), "prepared a serving Agent");
                    }
                    Action::Fence { patch, .. } => {
                        prop_assert!(patch.key.name != "metal-0", "fenced a foreign host");
                        prop_assert!(patch.approved != Some(true));
                    }
                    Action::Release { child, .. } => {
                        let serves = w.agents.iter().any(|a| {
                            a.is_claimed_or_bound()
                                && child.identity.as_ref().is_some_and(|vm| agent_runs_on(a, vm).may_run_there())
                        });
                        prop_assert!(!serves, "released {} while its Agent serves", child.key.name);
                        prop_assert!(!child.deleting, "released twice");
                    }
                    Action::CreateForBuffer { name, .. } => {
                        prop_assert!(!pool_deleting, "a new child for a deleted pool");
                        prop_assert!(!w.children.iter().any(|c| c.name_any() == *name), "{name} exists");
                    }
                    Action::CreateChild { agent_machine, name, .. } => {
                        prop_assert!(!pool_deleting, "a new child for a deleted pool");
                        prop_assert!(!w.children.iter().any(|c| c.name_any() == *name), "{name} exists");
                        prop_assert!(!made.contains(&agent_machine.name_any()), "two for one AgentMachine");
                        let beside = w.children.iter().cloned().map(|c| ManagedVm::read(Arc::new(c))).any(|c| {
                            c.agent_machine.is_some_and(|r| r.is(&agent_machine.name_any(), &agent_machine.uid().unwrap_or_default()))
                        });
                        prop_assert!(!beside, "a second VsphereAgent for {}", agent_machine.name_any());
                        made.push(agent_machine.name_any());
                    }
                    _ => {}
                }
            }
            let quiet = actions.iter().all(|a| {
                matches!(a, Action::AddFinalizer | Action::Close | Action::RemoveFinalizer | Action::Reassign { .. })
            });
            if quiet {
                break;
            }
            prop_assert!(round < 5, "no rest: {actions:?}");
            apply(&mut w, &actions);
        }
    }

    #[test]
    fn what_the_index_finds_is_what_a_search_through_all_finds(
        lots in proptest::collection::vec(lot(), 4),
        foreign in any::<bool>(),
        by_name in proptest::collection::vec(any::<bool>(), 4),
    ) {
        let mut w = world(&lots, foreign, false);
        for (child, _) in w.children.iter_mut().zip(&by_name).filter(|(_, named)| **named) {
            child.spec.goal = None;
            child.annotations_mut().clear();
        }
        let s = w.observed();
        let namespace = &s.pool.spec.control_plane_namespace;
        for child in &s.children {
            let machine = machine_state(child, namespace, &s.machines, &s.agent_machines);
            let is_reserved =
                |agent: &Agent| upstream::is_reserved(agent, &s.agent_machines, &s.machines);
            let found = Host::read(child, &s.agents, machine, &is_reserved);
            prop_assert_eq!(format!("{:?}", s.host(child)), format!("{found:?}"));
        }
        for am in &s.agent_machines {
            let is_for = |c: &&ManagedVm| {
                c.agent_machine.as_ref().is_some_and(|r| r.is_object(&am.metadata))
            };
            let first = s.children.iter().find(is_for).map(|c| &c.key);
            prop_assert_eq!(s.child_for(am).map(|c| &c.key), first);
            let reference = am.agent_ref().map(|r| r.name.as_str());
            let seen = s.agents.iter().any(|a| {
                reference.is_some_and(|name| a.name_any() == name) || upstream::claims(a, am)
            });
            prop_assert_eq!(s.sees_agent_of(reference, am), seen);
        }
    }
}
