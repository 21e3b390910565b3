//! Size classes: which host an AgentMachine gets, and what each class has in the buffer.

use std::sync::Arc;

use agent_forge_crds::{
    agent::VsphereAgent,
    conditions::Reason,
    pool::{SizeClass, TemplateSpec},
};

use super::buffer::{asks, making, wants};
use crate::{
    demand::lending,
    domain::{managed_vm::ManagedVm, template},
    placement::request,
    pool::plan::{Action, BufferCount, Plan, plan},
    testing::{self, World, buffered, selector, with},
};

/// A pool with the class `large`, which keeps that many hosts.
fn sized(hosts: i32) -> World {
    with(wants(0), |world| {
        world.pool.spec.classes = vec![SizeClass {
            name: "large".to_owned(),
            template: TemplateSpec {
                num_cpus: Some(16),
                ..TemplateSpec::default()
            },
            labels: testing::labels(&[("size", "large")]),
            buffer_agents: Some(hosts),
            ..SizeClass::default()
        }];
    })
}

/// An AgentMachine that asks for that size.
fn asks_for(world: &mut World, name: &str, size: &str) {
    asks(world, name);
    let am = world.agent_machines.last_mut().expect("it asks");
    am.spec.agent_label_selector = Some(selector(&[("size", size)], &[]));
}

/// What is made, with its class.
fn made(planned: &Plan) -> Vec<(&'static str, Option<String>)> {
    let of = |action: &Action| match action {
        Action::CreateChild { class, .. } => Some(("machine", class.clone())),
        Action::CreateForBuffer { class, .. } => Some(("buffer", class.clone())),
        Action::Reassign { child, .. } => Some(("claim", child.class().map(str::to_owned))),
        Action::Take { class, .. } => Some(("take", class.clone())),
        Action::Release { child, .. } => Some(("release", child.class().map(str::to_owned))),
        _ => None,
    };
    planned.actions.iter().filter_map(of).collect()
}

fn large() -> Option<String> {
    Some("large".to_owned())
}

#[test]
fn each_machine_gets_a_host_of_the_class_that_its_selector_chooses() {
    let mut world = sized(0);
    asks(&mut world, "a");
    asks_for(&mut world, "b", "large");
    let planned = plan(&world.observed());
    assert_eq!(made(&planned), [("machine", None), ("machine", large())]);
    // A host of another class is not for it.
    let mut world = sized(1);
    world
        .children
        .push(with(making(&mut World::default(), "h", 0), |c| {
            c.spec.class = large();
        }));
    asks(&mut world, "a");
    assert_eq!(made(&plan(&world.observed())), [("machine", None)]);
    asks_for(&mut world, "b", "large");
    let planned = plan(&world.observed());
    let wanted = [("machine", None), ("claim", large()), ("buffer", large())];
    assert_eq!(made(&planned), wanted);
}

#[test]
fn a_machine_that_no_class_fits_waits_and_is_told_the_label() {
    let mut world = sized(0);
    asks_for(&mut world, "a", "huge");
    let planned = plan(&world.observed());
    assert_eq!(made(&planned), []);
    let state = format!("{:?}", planned.demands[0].state);
    assert!(state.contains("size=huge"), "{state}");
    assert!(state.contains("SelectorUnsatisfiable"), "{state}");
}

#[test]
fn each_class_has_a_buffer_of_its_own() {
    let mut world = sized(2);
    world
        .pool
        .spec
        .scaling
        .get_or_insert_default()
        .buffer_agents = Some(1);
    let planned = plan(&world.observed());
    let wanted = [("buffer", None), ("buffer", large()), ("buffer", large())];
    assert_eq!(made(&planned), wanted);
    let count = |wanted, making| BufferCount {
        wanted,
        ready: 0,
        making,
    };
    assert_eq!(planned.buffer, count(3, 3));
    assert_eq!(
        planned.buffer_classes,
        [("large".to_owned(), count(2, 2))].into()
    );
    // What the cache does not show yet counts for its class.
    let mut observed = world.observed();
    observed.pending.made_for_buffer = [("x".to_owned(), large())].into();
    assert_eq!(
        made(&plan(&observed)),
        [("buffer", None), ("buffer", large())]
    );
    // A host of a class that the pool does not have any more goes.
    let old = with(making(&mut World::default(), "h", 0), |c| {
        c.spec.class = Some("gone".to_owned());
    });
    let mut world = sized(0);
    world.children.push(old);
    let gone = Some("gone".to_owned());
    assert_eq!(made(&plan(&world.observed())), [("release", gone)]);
}

#[test]
fn a_limit_names_the_class_whose_hosts_lack() {
    let mut world = sized(2);
    world.pool.spec.scaling.get_or_insert_default().max_vms = Some(1);
    let planned = plan(&world.observed());
    assert_eq!(made(&planned), [("buffer", large())]);
    let said = planned
        .waiting
        .iter()
        .find(|w| w.reason == Reason::CreateCapReached);
    let said = said.map(|w| w.message.as_str()).unwrap_or_default();
    assert!(said.starts_with("class \"large\": "), "{said}");
}

/// Of two hosts of another pool that suit, the smaller one goes: the large one is for those that need it.
#[test]
fn the_smallest_host_of_the_group_that_suits_is_taken_with_the_class() {
    let mut world = sized(0);
    let large_pool = world.observed().sizes.pool(Some("large")).clone();
    let hardware = request::hardware(&large_pool).expect("hardware");
    let mut group = testing::lender(&world, &[buffered("small"), buffered("big")]);
    let big = &mut group.hosts[1].child;
    let object = with(VsphereAgent::clone(&big.object), |c| {
        let vm = c.status.as_mut().and_then(|s| s.vm.as_mut());
        vm.expect("a VM").template = Some(template::record(&hardware));
    });
    *big = ManagedVm::read(Arc::new(object));
    world.lenders = vec![group];
    let smallest: Vec<String> = lending::for_pool(&world.lenders)
        .iter()
        .rev()
        .map(|h| h.child.key.name.clone())
        .collect();
    assert_eq!(smallest, ["small", "big"]);
    let takes = |world: &World| {
        let planned = plan(&world.observed());
        let takes = |a: &Action| match a {
            Action::Take { host, class, .. } => Some((host.child.key.name.clone(), class.clone())),
            _ => None,
        };
        planned.actions.iter().find_map(takes)
    };
    let mut plain = sized(0);
    plain.lenders.clone_from(&world.lenders);
    asks(&mut plain, "a");
    assert_eq!(takes(&plain), Some(("small".to_owned(), None)));
    asks_for(&mut world, "a", "large");
    assert_eq!(takes(&world), Some(("big".to_owned(), large())));
}
