//! Which actions run side by side, and what a failure leaves out.

use super::{super::*, *};
use crate::{pool::provision::tests::both, ports::cluster::ClusterErrorKind};

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
