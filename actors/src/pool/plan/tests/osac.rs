//! Hosts that OSAC may find, from the buffer to a Machine.

use std::sync::Arc;

use agent_forge_crds::{
    external::agent::{CLUSTER_ORDER_LABEL, RESOURCE_CLASS_LABEL},
    names::AGENT_MACHINE_LABEL,
};
use kube::ResourceExt as _;

use super::buffer::{asks, does, making, of, vm_of, wants};
use crate::{
    domain::managed_vm::ManagedVm,
    pool::{
        act,
        plan::{Action, plan},
    },
    testing::{self, World, agent_machine, agent_on, claim, labels, patch_agent},
};

/// Carries out what is planned for the only Agent.
fn pass(world: &mut World) {
    for action in plan(&world.observed()).actions {
        if let Action::Prepare { patch, .. } | Action::Fence { patch, .. } = action {
            patch_agent(&mut world.agents[0], &patch);
        }
    }
}

/// A buffer whose only host was offered to OSAC, and labels for Nodes.
fn offered() -> World {
    let mut world = wants(1);
    world.pool.spec.agent.resource_class = Some("large".to_owned());
    world.pool.spec.agent.node_labels = labels(&[("rack", "7")]);
    let child = making(&mut world, "b", 0);
    world.agents.push(agent_on(&child));
    for turn in ["it gets its name", "OSAC may find it"] {
        assert_eq!(does(&world), of([("prepare", "b")]), "{turn}");
        pass(&mut world);
    }
    assert_eq!(world.agents[0].resource_class(), Some("large"));
    assert_eq!(does(&world), [], "then nothing is written");
    world
}

#[test]
fn a_host_that_is_promised_is_not_offered_any_more() {
    let mut world = offered();
    asks(&mut world, "a");
    assert!(does(&world).contains(&("claim", "b".to_owned())));
    // The claim is on record.
    world.pool.spec.scaling = None;
    let am = &mut world.agent_machines[0];
    let pin = testing::selector(&[(AGENT_MACHINE_LABEL, "a")], &[]);
    am.spec.agent_label_selector = Some(pin);
    let host = ManagedVm::read(Arc::new(world.children[0].clone()));
    let claim = act::reassignment(&host, am, Some(&world.machines[0]));
    testing::patch(&mut world.children[0], &claim);
    let unmarked = world.clone();
    assert_eq!(
        does(&world),
        of([("fence", "b")]),
        "its VM does not say so yet"
    );
    pass(&mut world);
    assert_eq!(world.agents[0].resource_class(), None);
    assert_eq!(does(&world), []);
    // Where the VM says so already, one patch does both.
    let mut world = unmarked;
    let says = testing::may_serve(&world.children[0]).to_string();
    vm_of(&mut world.children[0]).may_serve = Some(says);
    assert_eq!(does(&world), of([("prepare", "b")]));
    pass(&mut world);
    let agent = &world.agents[0];
    assert_eq!(agent.resource_class(), None);
    assert_eq!(agent.spec.node_labels, labels(&[("rack", "7")]));
    assert_eq!(does(&world), []);
}

/// A provider bound it in the moment before: the class goes, and everything that a Machine may have chosen by stays.
#[test]
fn a_host_that_somebody_else_bound_is_not_offered_any_more() {
    let mut world = offered();
    claim(&mut world.agents[0], &agent_machine("x"));
    let planned = plan(&world.observed());
    let fence = planned.actions.iter().find_map(|action| match action {
        Action::Fence { patch, .. } => Some(patch),
        _ => None,
    });
    let labels = &fence.expect("a patch").labels;
    assert_eq!(labels.keys().collect::<Vec<_>>(), [RESOURCE_CLASS_LABEL]);
    pass(&mut world);
    let left = does(&world);
    assert!(left.iter().all(|(what, _)| *what == "make"), "{left:?}");
}

/// OSAC reserves it before a Machine claims it. Nothing is written to it, and another host takes its place.
#[test]
fn a_cluster_order_is_a_claim() {
    let mut world = offered();
    let agent = &mut world.agents[0];
    let order = (CLUSTER_ORDER_LABEL.to_owned(), "order-1".to_owned());
    agent.labels_mut().extend([order]);
    let before = agent.clone();
    asks(&mut world, "a");
    let done = does(&world);
    let made: Vec<_> = done.iter().map(|(what, _)| *what).collect();
    assert_eq!(
        made,
        ["create", "make"],
        "the AgentMachine gets another one, and so does the buffer"
    );
    pass(&mut world);
    assert_eq!(world.agents[0], before);
    // The order is gone before any Machine had it: it waits again.
    world.agents[0].labels_mut().remove(CLUSTER_ORDER_LABEL);
    world.agent_machines.clear();
    assert_eq!(does(&world), []);
}
