//! Free hosts that change their pool, as both pools plan them.

use std::time::Duration;

use agent_forge_crds::{
    agent::VsphereAgent,
    conditions::Reason,
    names::{MOVE_TO_ANNOTATION, MOVE_UNTIL_ANNOTATION},
    pool::ScalingSpec,
};
use kube::ResourceExt as _;

use super::buffer::{asks, wants};
use crate::{
    demand::lending::Refusal,
    domain::names::ObjectKey,
    pool::plan::{Action, Plan, plan},
    testing::{AGE, World, agent_on, at, buffered, child_with_vm, lender, with},
};

/// What is done, with the host that is taken or the VsphereAgent that is made.
fn done(planned: &Plan) -> Vec<(&'static str, String)> {
    let name = |action: &Action| match action {
        Action::Take { host, .. } => Some(("take", host.child.key.name.clone())),
        Action::Bring { host, .. } => Some(("bring", host.child.key.name.clone())),
        Action::CreateChild { name, .. } => Some(("make", name.clone())),
        Action::CreateForBuffer { .. } => Some(("fill", String::new())),
        Action::Prepare { child, .. } => Some(("prepare", child.key.name.clone())),
        Action::Fence { child, .. } => Some(("fence", child.key.name.clone())),
        Action::Release { child, .. } => Some(("release", child.key.name.clone())),
        Action::Reassign { child, .. } => Some(("give", child.key.name.clone())),
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
    world.lenders = vec![lender(&world, &[buffered("q-0")])];
    let planned = plan(&world.observed());
    assert_eq!(done(&planned), of([("make", "w-1"), ("take", "q-0")]));
    // The oldest AgentMachine gets it.
    let older = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(crate::testing::at(-9));
    world.agent_machines[1].metadata.creation_timestamp = Some(older);
    let planned = plan(&world.observed());
    let taken = planned.actions.iter().find_map(|a| match a {
        Action::Take { to, .. } => to.metadata.name.as_deref(),
        _ => None,
    });
    assert_eq!(taken, Some("w-1"));
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
    world.lenders = vec![lender(&world, &[buffered("q-0")])];
    assert_eq!(done(&plan(&world.observed())), of([("fill", "")]));
}

#[test]
fn a_pool_that_lends_nothing_is_passed_over() {
    let mut world = wants(0);
    asks(&mut world, "w-0");
    let refusing = with(lender(&world, &[buffered("q-0")]), |l| {
        l.refusal = Some(Refusal::AsksItself);
    });
    world.lenders = vec![refusing];
    assert_eq!(done(&plan(&world.observed())), of([("make", "w-0")]));
}

/// Something waits, and the plan says so with that word.
fn says(planned: &Plan, word: &str) -> bool {
    planned.waiting.iter().any(|w| w.message.contains(word))
}

/// A person gives that host to the pool `to`, until that second.
fn given(host: VsphereAgent, to: &ObjectKey, until: i64) -> VsphereAgent {
    with(host, |c| {
        let until = at(until).to_string();
        let both = [
            (MOVE_TO_ANNOTATION, to.to_string()),
            (MOVE_UNTIL_ANNOTATION, until),
        ];
        let both = both.map(|(key, value)| (key.to_owned(), value));
        c.annotations_mut().extend(both);
    })
}

#[test]
fn a_host_that_a_person_gives_away_is_for_nobody_else_and_takes_no_place() {
    let to = ObjectKey::new("other", "x");
    let mut world = wants(1);
    let host = given(buffered("a"), &to, AGE + 60);
    world.agents = vec![agent_on(&host)];
    world.children = vec![host];
    asks(&mut world, "w-0");
    let planned = plan(&world.observed());
    let wanted = [("make", "w-0"), ("fill", ""), ("prepare", "a")];
    assert_eq!(done(&planned), of(wanted));
    let row = planned
        .waiting
        .iter()
        .find(|w| w.reason == Reason::MovingToPool);
    assert!(row.is_some_and(|w| w.message.contains("other/x")));
    assert_eq!(planned.again, Some(Duration::from_secs(60)));
    // It is no surplus either, also where the buffer is to be empty.
    let mut empty = world.clone();
    empty.agent_machines.clear();
    empty
        .pool
        .spec
        .scaling
        .get_or_insert_default()
        .buffer_agents = Some(0);
    assert_eq!(done(&plan(&empty.observed())), of([("prepare", "a")]));
    // A host on its way to an AgentMachine is not of the buffer, whatever a person writes.
    let mut making = World::discovered("b");
    making.children[0] = given(making.children[0].clone(), &to, AGE + 60);
    let before = plan(&World::discovered("b").observed());
    let planned = plan(&making.observed());
    assert_eq!(done(&planned), done(&before));
    assert!(planned.buffered.is_empty());
    // The wish is over: it is a host as any other.
    world.children = vec![given(buffered("a"), &to, AGE)];
    assert_eq!(
        done(&plan(&world.observed())),
        of([("give", "a"), ("fill", "")])
    );
    // What cannot be read is said, and changes nothing.
    let wrong = with(given(buffered("a"), &to, AGE + 60), |c| {
        c.annotations_mut()
            .insert(MOVE_TO_ANNOTATION.to_owned(), "x".to_owned());
    });
    world.children = vec![wrong];
    let planned = plan(&world.observed());
    assert_eq!(done(&planned), of([("give", "a"), ("fill", "")]));
    assert!(
        planned
            .waiting
            .iter()
            .any(|w| w.reason == Reason::MoveUnreadable)
    );
}

#[test]
fn a_pool_brings_what_a_person_gives_it_into_its_buffer() {
    let mut world = wants(0);
    let scaling = world.pool.spec.scaling.get_or_insert_default();
    scaling.buffer_max = Some(1);
    let own = ObjectKey::of(&world.pool);
    let host = given(buffered("q-0"), &own, AGE + 60);
    world.lenders = vec![lender(&world, &[host, buffered("q-1")])];
    assert_eq!(done(&plan(&world.observed())), of([("bring", "q-0")]));
    // Its own AgentMachines do not matter to the pool that has it.
    world.lenders[0].refusal = Some(Refusal::AsksItself);
    assert_eq!(done(&plan(&world.observed())), of([("bring", "q-0")]));
    // Where nobody knows whether the write arrived, the same is asked again, also at the limit.
    let mut observed = world.observed();
    observed.pending.unsure = [("va-q-0".to_owned(), "va-q-0".to_owned())].into();
    assert_eq!(done(&plan(&observed)), of([("bring", "q-0")]));
    // Where it would be surplus, it stays.
    world.lenders[0].refusal = None;
    let mut full = world.clone();
    full.pool.spec.scaling.get_or_insert_default().buffer_max = Some(0);
    let planned = plan(&full.observed());
    assert_eq!(done(&planned), []);
    assert!(says(&planned, "no place for it"));
    // The maker gives the namespace one host, and two are given away.
    let mut limited = world.clone();
    limited.pool.spec.scaling.get_or_insert_default().buffer_max = Some(2);
    let both = ["q-0", "q-1"].map(|name| given(buffered(name), &own, AGE + 60));
    limited.lenders = vec![lender(&world, &both)];
    assert_eq!(
        done(&plan(&limited.observed())),
        of([("bring", "q-0"), ("bring", "q-1")])
    );
    for host in &mut limited.lenders[0].hosts {
        host.left = Some(1);
    }
    let planned = plan(&limited.observed());
    assert_eq!(done(&planned), of([("bring", "q-0")]));
    assert!(says(&planned, "maxPerNamespace"));
    // An AgentMachine that asks gets one of them, and the buffer the other.
    world.lenders[0].refusal = None;
    asks(&mut world, "w-0");
    let both = done(&plan(&world.observed()));
    assert_eq!(
        both.iter().filter(|(what, _)| *what == "take").count(),
        1,
        "{both:?}"
    );
    assert!(both.iter().all(|(what, _)| *what != "make"), "{both:?}");
    world.agent_machines.clear();
    // The limits count it, and a host that would be replaced at once stays.
    world.pool.spec.scaling.get_or_insert_default().max_vms = Some(0);
    let planned = plan(&world.observed());
    assert_eq!(done(&planned), []);
    assert!(says(&planned, "maxVMs is 0"));
    world.pool.spec.scaling.get_or_insert_default().max_vms = None;
    world.pool.spec.template.num_cpus = Some(2);
    let planned = plan(&world.observed());
    assert_eq!(done(&planned), []);
    assert!(says(&planned, "exactly its hardware"));
}

/// A host of the buffer that a release before 1.0 was moving.
fn half_moved() -> World {
    let mut world = wants(1);
    let child = buffered("a");
    world.agents = vec![agent_on(&child)];
    world.children = vec![child];
    let to = ObjectKey::new("other", "w-0");
    world.half_moved = [("va-a".to_owned(), to)].into();
    world
}

#[test]
fn a_host_that_another_pool_takes_is_left_alone_and_replaced_at_once() {
    let mut world = half_moved();
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

/// It keeps its name in the namespace of both pools.
#[test]
fn the_name_of_a_host_that_went_is_not_used_again() {
    let made = |world: &World| {
        let planned = plan(&world.observed());
        planned.actions.into_iter().find_map(|a| match a {
            Action::CreateForBuffer { name, .. } => Some(name),
            _ => None,
        })
    };
    let mut world = wants(1);
    let first = made(&world).expect("a host");
    world.taken_names = [first.clone()].into();
    let second = made(&world).expect("another one");
    assert_ne!(first, second);
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
