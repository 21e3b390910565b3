//! An election for the Lease of the predecessor.

use std::time::Duration;

use super::{Clear, Election, Guard, Lost, Next, Record, Timing};
use crate::migration::lease::Kin;

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn election(holds: bool, required: bool) -> Election {
    let timing = Timing::new(s(45), s(15), s(2)).expect("fits together");
    let guard = Guard {
        kin: Kin::of("ours"),
        holds,
        required,
        follows: false,
    };
    Election::guarding("me", timing, guard)
}

fn held_by(holder: &str, version: &str) -> Option<Record> {
    Some(Record {
        version: version.to_owned(),
        holder: Some(holder.to_owned()).filter(|h| !h.is_empty()),
        duration: s(15),
    })
}

fn replace(version: &str, taken: bool) -> Next {
    Next::Replace {
        version: version.to_owned(),
        taken,
    }
}

#[test]
fn a_predecessor_is_waited_out_and_one_of_us_is_not() {
    for (holder, next) in [
        ("agent-forge-operator-6c8d-y_3f2a", Next::Wait(s(2))),
        ("agent-forge/theirs/x_uid", Next::Wait(s(2))),
        ("agent-forge/ours/x_uid", replace("7", true)),
        ("agent-forge/ours/me", replace("7", false)),
        ("", replace("7", true)),
    ] {
        let mut e = election(true, false);
        e.shown(s(10), held_by(holder, "7"));
        assert_eq!(e.next(s(10)), next, "{holder:?}");
        let waits = next == Next::Wait(s(2));
        assert_eq!(e.stranger(), waits.then_some(holder), "{holder:?}");
    }
    let mut e = election(true, false);
    e.shown(s(10), held_by("predecessor", "7"));
    e.shown(s(24), held_by("predecessor", "7"));
    assert_eq!(e.next(s(24)), Next::Wait(s(2)));
    // Renewed: its time starts again.
    e.shown(s(26), held_by("predecessor", "8"));
    e.shown(s(40), held_by("predecessor", "8"));
    assert_eq!(e.next(s(40)), Next::Wait(s(2)));
    e.shown(s(41), held_by("predecessor", "8"));
    assert_eq!(e.next(s(41)), replace("8", true));
    e.shown(s(42), None);
    assert_eq!(e.next(s(42)), Next::Create);
}

#[test]
fn nothing_is_taken_from_one_of_ours_by_who_slept_past_our_own_lease() {
    use super::Leadership;
    let mut e = election(true, false);
    e.shown(s(40), held_by("agent-forge/ours/x_uid", "7"));
    let own = Leadership::Leading { until: s(46) };
    assert_eq!(e.next_beside(s(40), &own), replace("7", true));
    // A call may take 5 s.
    e.shown(s(41), held_by("agent-forge/ours/x_uid", "7"));
    assert_eq!(e.next_beside(s(41), &own), Next::Wait(s(2)));
    assert_eq!(e.next_beside(s(41), &Leadership::Standby), Next::Wait(s(2)));
    // A look needs no lease.
    assert_eq!(e.next_beside(s(60), &own), Next::Read);
}

#[test]
fn a_predecessor_that_takes_it_back_ends_leadership() {
    let mut e = election(true, false);
    e.shown(s(0), None);
    e.written(s(0), "1".to_owned());
    assert_eq!(e.leads_until(), Some(s(45)));
    e.failed(s(3));
    e.shown(s(5), held_by("predecessor", "2"));
    let taken = Lost::Taken("predecessor".to_owned());
    assert_eq!(e.next(s(5)), Next::Lost(taken));
}

#[test]
fn who_only_looks_waits_as_well_and_writes_nothing() {
    let mut e = election(false, false);
    assert_eq!(e.next(s(0)), Next::Read);
    e.shown(s(0), held_by("predecessor", "7"));
    assert_eq!(e.next(s(0)), Next::Wait(s(2)));
    for free in [None, held_by("", "8"), held_by("agent-forge/ours/x", "8")] {
        let mut e = election(false, false);
        e.shown(s(0), free);
        assert_eq!(e.next(s(0)), Next::Clear(Clear::Free));
    }
    e.shown(s(15), held_by("predecessor", "7"));
    assert_eq!(e.next(s(15)), Next::Clear(Clear::Free), "expired");
}

#[test]
fn a_lease_that_nobody_asked_for_and_that_stays_forbidden_is_in_nobodys_way() {
    for (required, holds) in [(false, true), (false, false), (true, true), (true, false)] {
        let mut e = election(holds, required);
        e.forbidden(s(0));
        e.forbidden(s(44));
        assert_eq!(e.next(s(44)), Next::Wait(s(2)));
        e.forbidden(s(46));
        let clear = Next::Clear(Clear::Forbidden);
        let next = if required { Next::Wait(s(2)) } else { clear };
        assert_eq!(e.next(s(46)), next, "required: {required}");
    }
    // Any other answer starts the time again.
    for other in [
        (|e: &mut Election| e.failed(s(30))) as fn(&mut Election),
        |e| e.shown(s(30), held_by("predecessor", "7")),
    ] {
        let mut e = election(true, false);
        e.forbidden(s(0));
        other(&mut e);
        e.forbidden(s(46));
        assert_eq!(e.next(s(46)), Next::Wait(s(2)));
    }
}
