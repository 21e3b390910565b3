//! Two operators, a predecessor and both Leases, explored completely: with each fault, and with broken rules.

use std::{collections::BTreeSet, time::Duration};

use agent_forge_actors::runtime::lease::Timing;
use agent_forge_model::{
    explore,
    guarded::{Defect, GIVEN_BACK, Guarded, HANDED_OVER, ONE_ACTS, PROMISES},
    world::Fault,
};

fn world(faults: &[Fault]) -> Guarded {
    let s = Duration::from_secs;
    Guarded::new(
        Timing::new(s(5), s(3), s(1)).expect("fits together"),
        faults,
    )
}

fn explore(what: &str, model: &Guarded, promises: &[&'static str]) -> BTreeSet<&'static str> {
    explore::explore(model, 2, promises, |_, _| true).told(what, &PROMISES)
}

#[test]
fn ours_and_the_predecessor_take_turns() {
    for (what, faults) in [
        ("no faults", &[][..]),
        ("crash", &[Fault::Crash]),
        ("lag", &[Fault::Lag]),
    ] {
        let found = explore(what, &world(faults), &PROMISES);
        let comes_to: BTreeSet<_> = found.into_iter().collect();
        assert!(comes_to.contains(GIVEN_BACK), "{what}: {comes_to:?}");
        let broken = PROMISES.iter().any(|p| comes_to.contains(p));
        assert!(!broken, "{what}: {comes_to:?}");
        // A Lease keeps a holder that is gone only where a process dies or is overtaken.
        let left = comes_to.contains(HANDED_OVER);
        assert!(left || faults.is_empty(), "{what}: {comes_to:?}");
    }
}

#[test]
fn planted_defects_are_found() {
    for (defect, faults, broken) in [
        (Defect::OwnIsEnough, &[][..], ONE_ACTS),
        (Defect::Fooled, &[], ONE_ACTS),
        (Defect::Unordered, &[], ONE_ACTS),
        (Defect::Asleep, &[Fault::Lag], ONE_ACTS),
    ] {
        let mut model = world(faults);
        model.defect = Some(defect);
        let found = explore(&format!("planted: {defect:?}"), &model, &[broken]);
        assert!(found.contains(broken), "{defect:?}: {found:?}");
    }
}
