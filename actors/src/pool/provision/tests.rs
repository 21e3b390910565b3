//! Which actions run side by side, and what a failure leaves out.

use std::sync::Arc;

use super::*;
use crate::{
    pool::{Memory, act::perform_all, plan},
    ports::effect::EffectKind,
    testing::{World, agent_machine, agent_on, at, buffered, machine, with},
    vm::testing::Bench,
};

fn both(name: &str) -> [Action; 2] {
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
        },
    ]
}

/// Pins first, then VsphereAgents, as a plan has them.
fn run(names: &[&str]) -> Vec<Action> {
    let (pins, creates): (Vec<_>, Vec<_>) = names.iter().map(|n| both(n).into()).unzip();
    pins.into_iter().chain(creates).collect()
}

#[tokio::test]
async fn all_are_carried_out_those_of_one_machine_in_order() {
    let bench = Bench::new();
    let observed = World::waiting(&["a", "b", "c"]).observed();
    let run = run(&["a", "b", "c"]);
    let all = side_by_side(
        &bench.context,
        &observed,
        &run,
        &Failures::default(),
        &mut Failed::new(),
    )
    .await;
    let order: Vec<_> = all
        .iter()
        .map(|(action, result)| {
            assert!(matches!(result, Ok(ActionOutcome::It)));
            let am = whose(action).and_then(|am| am.metadata.name.as_deref());
            (am.expect("a name"), matches!(action, Action::Pin { .. }))
        })
        .collect();
    let expected = ["a", "b", "c"].map(|n| [(n, true), (n, false)]);
    assert_eq!(order, expected.concat());
    let effects = bench.hub.with(|o| o.effects.clone());
    let made = |kind| effects.iter().filter(|k| **k == kind).count();
    assert_eq!(made(EffectKind::PinSelector), 3);
    assert_eq!(made(EffectKind::CreateChild), 3);
}

#[tokio::test]
async fn nothing_is_made_for_one_that_could_not_be_pinned() {
    let bench = Bench::new();
    bench.hub.with(|o| {
        let gone = ClusterErrorKind::NotFound;
        o.fails.insert(EffectKind::PinSelector, gone)
    });
    let observed = World::waiting(&["a", "b"]).observed();
    let run = run(&["a", "b"]);
    let mut left_out = Failed::new();
    let all = side_by_side(
        &bench.context,
        &observed,
        &run,
        &Failures::default(),
        &mut left_out,
    )
    .await;
    assert_eq!(left_out.len(), 1);
    let failed: Vec<_> = all.iter().filter(|(_, r)| r.is_err()).collect();
    assert_eq!((all.len(), failed.len()), (3, 1));
    let pinned = whose(failed[0].0).map(kube::ResourceExt::name_any);
    let made = all
        .iter()
        .filter(|(a, _)| matches!(a, Action::CreateChild { .. }))
        .filter_map(|(a, _)| whose(a).map(kube::ResourceExt::name_any));
    assert_eq!(made.collect::<Vec<_>>(), ["b"]);
    assert_eq!(pinned.as_deref(), Some("a"));
}

/// Other actions between the pin and the VsphereAgent make no difference.
#[tokio::test]
async fn nothing_is_made_for_one_that_could_not_be_pinned_however_far_apart() {
    let bench = Bench::new();
    bench.hub.with(|o| {
        let gone = ClusterErrorKind::NotFound;
        o.fails.insert(EffectKind::PinSelector, gone)
    });
    let observed = World::waiting(&["a"]).observed();
    let [pin, create] = both("a");
    let actions = [pin, Action::AddFinalizer, create];
    let mut memory = Memory::default();
    let acted = perform_all(&bench.context, &observed, &actions, &mut memory).await;
    assert_eq!(acted.created, 0);
    assert!(acted.result.is_err());
    let effects = bench.hub.with(|o| o.effects.clone());
    assert!(!effects.contains(&EffectKind::CreateChild), "{effects:?}");
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
        let shown = memory.pending.recall(&s);
        s.see_pending(shown);
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
    let shown = memory.pending.recall(&s);
    s.see_pending(shown);
    let actions = plan::plan(&s).actions;
    let what = |action: &Action| match action {
        Action::Reassign { child, .. } => Some(("give", child.key.name.clone())),
        Action::CreateChild { name, .. } => Some(("make", name.clone())),
        Action::Borrow { lender, .. } => Some(("take", lender.key.name.clone())),
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
    let shown = pending.recall(&s);
    s.see_pending(shown);
    let known = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>();
    assert_eq!(
        known(&s.made),
        ["am-b"],
        "whoever removes the other wants it back"
    );
    assert_eq!(known(&s.pinned), ["am-a"], "the version that was pinned");
    world.agent_machines[0].metadata.resource_version = Some("next".to_owned());
    let mut s = world.observed();
    s.now = Duration::ZERO;
    let shown = pending.recall(&s);
    s.see_pending(shown);
    assert!(
        s.pinned.is_empty(),
        "it shows by itself whether it is pinned"
    );
}
