//! Free hosts that change their pool, as both pools plan them.

use std::sync::Arc;

use agent_forge_crds::{conditions::Reason, names::RESERVED_FOR_ANNOTATION, pool::ScalingSpec};
use kube::ResourceExt as _;

use super::buffer::{asks, wants};
use crate::{
    demand::lending::{Lender, Offer, Refusal},
    domain::{managed_vm::ManagedVm, names::ObjectKey, template},
    placement::request,
    pool::plan::{Action, Plan, plan},
    testing::{NAMESPACE, World, agent_on, buffered, child_with_vm, with},
};

fn lender(world: &World, names: &[&str]) -> Lender {
    let hardware = request::hardware(&world.pool).expect("hardware");
    let host = |name: &&str| {
        let child = with(buffered(name), |c| {
            let vm = c.status.as_mut().and_then(|s| s.vm.as_mut());
            vm.expect("a record").template = Some(template::record(&hardware));
        });
        Offer {
            agent: Some(Arc::new(agent_on(&child))),
            child: ManagedVm::read(Arc::new(child)),
            refusal: None,
        }
    };
    Lender {
        key: ObjectKey::new(NAMESPACE, "lender"),
        refusal: None,
        hosts: names.iter().map(host).collect(),
    }
}

/// What is done, with the host that is taken or the VsphereAgent that is made.
fn done(planned: &Plan) -> Vec<(&'static str, String)> {
    let name = |action: &Action| match action {
        Action::Borrow { lender, .. } => Some(("take", lender.key.name.clone())),
        Action::CreateChild { name, .. } => Some(("make", name.clone())),
        Action::CreateForBuffer { .. } => Some(("fill", String::new())),
        Action::Prepare { child, .. } => Some(("prepare", child.key.name.clone())),
        Action::Fence { child, .. } => Some(("fence", child.key.name.clone())),
        Action::Release { child, .. } => Some(("release", child.key.name.clone())),
        Action::Reassign { child, .. } => Some(("give", child.key.name.clone())),
        Action::Unreserve { child, .. } => Some(("unreserve", child.key.name.clone())),
        _ => None,
    };
    planned.actions.iter().filter_map(name).collect()
}

fn of<const N: usize>(all: [(&'static str, &str); N]) -> Vec<(&'static str, String)> {
    all.map(|(what, name)| (what, name.to_owned())).into()
}

#[test]
fn who_waits_gets_a_host_of_another_pool_before_a_vm_is_made() {
    let mut world = wants(0);
    asks(&mut world, "w-0");
    asks(&mut world, "w-1");
    world.lenders = vec![lender(&world, &["q-0"])];
    let planned = plan(&world.observed());
    assert_eq!(done(&planned), of([("take", "q-0"), ("make", "w-1")]));
    let taken = planned.actions.iter().find_map(|a| match a {
        Action::Borrow { name, .. } => Some(name.as_str()),
        _ => None,
    });
    assert_eq!(taken, Some("w-0"), "it is called as its AgentMachine");
    // The limits count it as any other.
    world.pool.spec.scaling = Some(ScalingSpec {
        max_vms: Some(0),
        ..ScalingSpec::default()
    });
    assert_eq!(done(&plan(&world.observed())), []);
}

#[test]
fn nobody_takes_a_host_only_to_fill_the_buffer() {
    let mut world = wants(1);
    world.lenders = vec![lender(&world, &["q-0"])];
    assert_eq!(done(&plan(&world.observed())), of([("fill", "")]));
}

#[test]
fn a_pool_that_lends_nothing_is_passed_over() {
    let mut world = wants(0);
    asks(&mut world, "w-0");
    let refusing = with(lender(&world, &["q-0"]), |l| {
        l.refusal = Some(Refusal::AsksItself);
    });
    world.lenders = vec![refusing];
    assert_eq!(done(&plan(&world.observed())), of([("make", "w-0")]));
}

/// A host of the buffer that another pool takes over.
fn lent() -> World {
    let mut world = wants(1);
    let child = buffered("a");
    world.agents = vec![agent_on(&child)];
    world.children = vec![child];
    let to = ObjectKey::new("other", "w-0");
    world.lent.to = [("va-a".to_owned(), to)].into();
    world
}

#[test]
fn a_host_that_another_pool_takes_is_left_alone_and_replaced_at_once() {
    let mut world = lent();
    let planned = plan(&world.observed());
    assert_eq!(done(&planned), of([("fill", "")]));
    let reason = planned.waiting.first().map(|w| w.reason.clone());
    assert_eq!(reason, Some(Reason::HostLent));
    // Not even an AgentMachine of its own gets it.
    asks(&mut world, "w-1");
    let planned = done(&plan(&world.observed()));
    assert!(!planned.iter().any(|(_, name)| name == "a"), "{planned:?}");
    // Nor does it go with its pool.
    crate::testing::delete(&mut world.pool);
    let status = world.pool.status.get_or_insert_default();
    status.closed = Some(true);
    assert_eq!(done(&plan(&world.observed())), []);
}

/// The VM of the host that went keeps its name in the folder of both pools.
#[test]
fn the_name_of_a_host_that_went_is_not_used_again() {
    let made = |world: &World| {
        let planned = plan(&world.observed());
        planned.actions.into_iter().find_map(|a| match a {
            Action::CreateForBuffer { name } => Some(name),
            _ => None,
        })
    };
    let mut world = wants(1);
    let first = made(&world).expect("a host");
    world.moved_vms = [first.clone()].into();
    let second = made(&world).expect("another one");
    assert_ne!(first, second);
}

#[test]
fn a_reservation_that_means_nothing_is_taken_off_first() {
    let mut world = lent();
    world.lent.to.clear();
    world.lent.stale = ["va-a".to_owned()].into();
    let key = RESERVED_FOR_ANNOTATION.to_owned();
    world.agents[0]
        .annotations_mut()
        .insert(key.clone(), "gone/w-0".to_owned());
    let planned = plan(&world.observed());
    assert_eq!(done(&planned), of([("unreserve", "a")]));
    let patch = planned.actions.iter().find_map(|a| match a {
        Action::Unreserve { patch, .. } => Some(patch.annotations.clone()),
        _ => None,
    });
    assert_eq!(patch, Some([(key, None)].into()));
}

#[test]
fn an_agent_is_prepared_only_when_its_vm_has_changed_the_owner() {
    let prepared = |stamped: Option<bool>| {
        let mut world = World::waiting(&["w-0"]);
        let child = with(child_with_vm("w-0"), |c| {
            let vm = c.status.as_mut().and_then(|s| s.vm.as_mut());
            vm.expect("a record").taken_from = Some(agent_forge_crds::agent::TakenFrom {
                namespace: "other".to_owned(),
                name: "q-0".to_owned(),
                uid: "q".to_owned(),
                attempt: 1,
                stamped,
            });
        });
        world.agents = vec![agent_on(&child)];
        world.children = vec![child];
        let pin = agent_forge_crds::names::AGENT_MACHINE_LABEL.to_owned();
        let am = world.agent_machines[0]
            .spec
            .agent_label_selector
            .get_or_insert_default();
        let exact = am.match_labels.get_or_insert_default();
        exact.insert(pin, "w-0".to_owned());
        let planned = plan(&world.observed());
        done(&planned)
    };
    assert_eq!(prepared(None), []);
    assert_eq!(prepared(Some(true)), of([("prepare", "w-0")]));
}
