//! What a pool does while the watch is late.

use std::sync::Arc;

use super::*;
use crate::{
    pool::{Memory, act::perform_all, plan},
    ports::effect::EffectKind,
    testing::{World, agent_machine, agent_on, at, buffered, lender, machine, with},
    vm::testing::Bench,
};

/// The actions that provision that AgentMachine.
pub fn both(name: &str) -> [Action; 2] {
    let agent_machine = Arc::new(agent_machine(name));
    [
        Action::Pin {
            agent_machine: agent_machine.clone(),
            pin: name.to_owned(),
        },
        Action::CreateChild {
            agent_machine,
            machine: machine(name),
            name: name.to_owned(),
            class: None,
        },
    ]
}

/// The cache.
fn shown(all: &[VsphereAgent]) -> impl Fn(&ObjectKey) -> Option<Arc<VsphereAgent>> {
    |key| {
        let mut all = all.iter();
        all.find(|c| ObjectKey::of(*c) == *key)
            .cloned()
            .map(Arc::new)
    }
}

/// A watch that is late by a minute costs one write of each, not one for each pass.
#[tokio::test]
async fn what_was_begun_is_not_begun_again_while_it_is_not_in_sight() {
    let bench = Bench::new();
    let world = World::waiting(&["a"]);
    let mut memory = Memory::default();
    let mut effects = async |after: Duration| {
        let mut s = world.observed();
        s.now += after;
        s.pending = memory.pending.recall(&s, shown(&world.children));
        let actions = plan::plan(&s).actions;
        perform_all(&bench.context, &s, &actions, &mut memory).await;
        let both = [EffectKind::PinSelector, EffectKind::CreateChild];
        let done = bench.hub.with(|o| o.effects.clone());
        both.map(|kind| done.iter().filter(|e| **e == kind).count())
    };
    assert_eq!(effects(Duration::ZERO).await, [1, 1]);
    assert_eq!(
        effects(PENDING_FOR / 2).await,
        [1, 1],
        "it is on its way into sight"
    );
    assert_eq!(effects(PENDING_FOR).await, [2, 2], "somebody has undone it");
}

/// A host that waits in the buffer, and an AgentMachine that asks.
fn waiting_host() -> World {
    let mut world = World::waiting(&["a"]);
    world.waited = Duration::from_secs(120);
    let host = with(buffered("host"), |c| {
        c.metadata.resource_version = Some("1".to_owned());
    });
    world.agents = vec![agent_on(&host)];
    world.children = vec![host];
    world
}

/// What a pass does that succeeds, of what gives an AgentMachine a host. `after`: the time since the first one.
fn given(world: &World, memory: &mut Memory, after: Duration) -> Vec<(&'static str, String)> {
    let mut s = world.observed();
    s.now += after;
    let others = s.group.lenders.iter().flat_map(|l| &l.hosts);
    let others = others.map(|host| host.child.object.as_ref().clone());
    let all: Vec<_> = world.children.iter().cloned().chain(others).collect();
    s.pending = memory.pending.recall(&s, shown(&all));
    let actions = plan::plan(&s).actions;
    let what = |action: &Action| match action {
        Action::Reassign { child, .. } => Some(("give", child.key.name.clone())),
        Action::CreateChild { name, .. } => Some(("make", name.clone())),
        Action::Take { host, .. } => Some(("take", host.child.key.name.clone())),
        Action::Release { child, .. } => Some(("release", child.key.name.clone())),
        _ => None,
    };
    let gives = actions.iter().filter_map(what).collect();
    for action in &actions {
        memory.pending.note(action, s.now);
    }
    gives
}

#[test]
fn an_agent_machine_that_got_a_waiting_host_gets_no_second_one_while_the_watch_is_late() {
    let (mut world, mut memory) = (waiting_host(), Memory::default());
    let give = [("give", "host".to_owned())];
    let first = given(&world, &mut memory, Duration::ZERO);
    assert_eq!(first, give);
    // Another host is ready by then, and would be the first that is given.
    let other = with(buffered("other"), |c| {
        let time = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(-1000));
        c.metadata.creation_timestamp = Some(time);
    });
    world.agents.push(agent_on(&other));
    world.children.push(other);
    for late in [1, 20, 61, 330] {
        let late = Duration::from_secs(late);
        let again = given(&world, &mut memory, late);
        assert_eq!(again, [], "the watch is late by {late:?}");
    }
    // Another AgentMachine gets the other host, and the first one does not go.
    world.agent_machines.push(agent_machine("b"));
    world.machines.push(machine("b"));
    let other = given(&world, &mut memory, Duration::from_secs(331));
    assert_eq!(other, [("give", "other".to_owned())]);
}

/// It counts for the limits meanwhile, and one that could not be had is passed over for a minute.
#[test]
fn nor_does_one_that_got_a_host_of_another_pool() {
    let (mut world, mut memory) = (waiting_host(), Memory::default());
    let hosts = std::mem::take(&mut world.children);
    world.lenders = vec![lender(&world, &hosts)];
    let take = [("take", "host".to_owned())];
    assert_eq!(given(&world, &mut memory, Duration::ZERO), take);
    for late in [1, 61, 330] {
        let again = given(&world, &mut memory, Duration::from_secs(late));
        assert_eq!(again, [], "the watch is late by {late} s");
    }
    world.pool.spec.scaling.get_or_insert_default().max_vms = Some(1);
    world.agent_machines.push(agent_machine("b"));
    world.machines.push(machine("b"));
    assert_eq!(
        given(&world, &mut memory, Duration::from_secs(331)),
        [],
        "the room is used"
    );
    // One that was refused is passed over. A write that may have arrived is waited for.
    world.agent_machines.pop();
    let make = [("make", "a".to_owned())];
    for (failed, after, expected) in [
        (None, 1, &make[..]),
        (Some(Class::Conflict), 1, &take),
        (Some(Class::Transient), 1, &take),
        (Some(Class::Transient), 601, &take),
        (Some(Class::Blocked), 1, &make),
    ] {
        let mut memory = Memory::default();
        let s = world.observed();
        for action in &plan::plan(&s).actions {
            memory.pending.note_failed(action, failed, s.now);
        }
        let again = given(&world, &mut memory, Duration::from_secs(after));
        assert_eq!(again, expected, "{failed:?} {after}");
    }
}

#[test]
fn a_host_that_was_taken_back_is_given_again() {
    let (mut world, mut memory) = (waiting_host(), Memory::default());
    let give = [("give", "host".to_owned())];
    given(&world, &mut memory, Duration::ZERO);
    // The watch shows a later version: somebody took it back.
    world.children[0].metadata.resource_version = Some("3".to_owned());
    let again = given(&world, &mut memory, Duration::from_secs(1));
    assert_eq!(again, give);
    // An API server that was restored shows the old version for ever.
    let restored = given(&world, &mut memory, Duration::from_secs(602));
    assert_eq!(restored, give);
}

/// A create is repeated after a minute, since it has the same name. Another host would be a second one.
#[test]
fn an_agent_machine_whose_vsphere_agent_was_made_gets_no_waiting_host_besides() {
    let (mut world, mut memory) = (waiting_host(), Memory::default());
    let (hosts, agents) = (world.children.clone(), world.agents.clone());
    (world.children, world.agents) = (Vec::new(), Vec::new());
    let make = [("make", "a".to_owned())];
    let first = given(&world, &mut memory, Duration::ZERO);
    assert_eq!(first, make);
    // A host of the buffer becomes ready meanwhile.
    (world.children, world.agents) = (hosts, agents);
    let later = given(&world, &mut memory, Duration::from_secs(30));
    assert_eq!(later, []);
    let later = given(&world, &mut memory, PENDING_FOR);
    assert_eq!(later, make);
    // Nobody knows whether the create arrived.
    let mut memory = Memory::default();
    let [_, create] = both("a");
    let now = world.observed().now;
    memory
        .pending
        .note_failed(&create, Some(Class::Transient), now);
    let again = given(&world, &mut memory, Duration::from_secs(1));
    assert_eq!(again, make);
}

#[test]
fn what_is_in_sight_is_not_remembered() {
    let mut world = World::discovered("a");
    let [pin, create] = both("a");
    let mut pending = PendingWrites::default();
    pending.note(&pin, Duration::ZERO);
    pending.note(&create, Duration::ZERO);
    pending.note(&both("b")[1], Duration::ZERO);
    let mut s = world.observed();
    s.now = Duration::ZERO;
    s.pending = pending.recall(&s, shown(&world.children));
    let known = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>();
    assert_eq!(
        known(&s.pending.made),
        ["am-b"],
        "whoever removes the other wants it back"
    );
    assert_eq!(
        known(&s.pending.pinned),
        ["am-a"],
        "the version that was pinned"
    );
    world.agent_machines[0].metadata.resource_version = Some("next".to_owned());
    let mut s = world.observed();
    s.now = Duration::ZERO;
    s.pending = pending.recall(&s, shown(&world.children));
    assert!(
        s.pending.pinned.is_empty(),
        "it shows by itself whether it is pinned"
    );
}
