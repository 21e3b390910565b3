//! The election as a table: known facts, and the next step.

use super::*;

mod guard;
mod world;

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn timing() -> Timing {
    Timing::new(s(45), s(15), s(2)).expect("fits together")
}

fn election() -> Election {
    Election::new("me".to_owned(), timing())
}

fn held_by(holder: Option<&str>, version: &str) -> Option<Record> {
    Some(Record {
        version: version.to_owned(),
        holder: holder.map(str::to_owned),
        duration: s(45),
    })
}

fn replace(version: &str, taken: bool) -> Next {
    Next::Replace {
        version: version.to_owned(),
        taken,
    }
}

#[test]
fn a_lease_that_nobody_holds_is_taken_at_once() {
    let mut e = election();
    assert_eq!(e.next(s(0)), Next::Read);
    e.shown(s(0), None);
    assert_eq!(e.next(s(0)), Next::Create);
    e.shown(s(1), held_by(None, "7"));
    assert_eq!(e.next(s(1)), replace("7", true));
    assert_eq!(e.leads_until(), None);
    e.written(s(1), "8".to_owned());
    assert_eq!(e.leads_until(), Some(s(46)));
}

#[test]
fn our_own_name_in_it_is_taken_up_again() {
    // The process before this one in the Pod is dead.
    let mut e = election();
    e.shown(s(0), held_by(Some("me"), "7"));
    assert_eq!(e.next(s(0)), replace("7", false));
}

#[test]
fn a_foreign_lease_expires_by_what_is_seen_from_here() {
    let mut e = election();
    e.shown(s(10), held_by(Some("other"), "7"));
    assert_eq!(e.next(s(10)), Next::Wait(s(2)));
    assert_eq!(e.next(s(12)), Next::Read);
    // Unchanged: its time continues. Changed: it starts again.
    e.shown(s(12), held_by(Some("other"), "7"));
    e.shown(s(50), held_by(Some("other"), "8"));
    assert_eq!(e.next(s(50)), Next::Wait(s(2)));
    e.shown(s(94), held_by(Some("other"), "8"));
    assert_eq!(e.next(s(94)), Next::Wait(s(2)));
    e.shown(s(95), held_by(Some("other"), "8"));
    assert_eq!(e.next(s(95)), replace("8", true));
}

#[test]
fn an_old_look_is_no_ground_to_take_a_lease() {
    let mut e = election();
    e.shown(s(10), held_by(Some("other"), "7"));
    assert_eq!(e.next(s(1000)), Next::Read);
}

#[test]
fn a_lease_that_is_deleted_is_waited_out_by_whoever_saw_its_holder() {
    let mut e = election();
    e.shown(s(10), held_by(Some("other"), "7"));
    e.shown(s(12), None);
    assert_eq!(e.next(s(12)), Next::Wait(s(2)));
    e.shown(s(55), None);
    assert_eq!(e.next(s(55)), Next::Create);
}

#[test]
fn a_leader_renews_and_gives_up_in_time() {
    let mut e = election();
    e.shown(s(0), None);
    e.written(s(0), "1".to_owned());
    assert_eq!(e.next(s(1)), Next::Wait(s(2)));
    assert_eq!(e.next(s(3)), replace("1", false));
    e.failed(s(8));
    assert_eq!(e.next(s(8)), Next::Wait(s(2)));
    assert_eq!(e.next(s(10)), Next::Read);
    e.shown(s(10), held_by(Some("me"), "2"));
    assert_eq!(e.next(s(10)), replace("2", false));
    assert_eq!(e.next(s(15)), Next::Lost(Lost::NotRenewed(s(15))));
    // Not acknowledged means not renewed, whatever the object says.
    assert_eq!(e.leads_until(), Some(s(45)));
}

#[test]
fn a_leader_that_sees_another_name_or_none_has_lost() {
    for (shown, why) in [
        (held_by(Some("other"), "9"), Lost::Taken("other".to_owned())),
        (held_by(None, "9"), Lost::Removed),
        (None, Lost::Removed),
    ] {
        let mut e = election();
        e.written(s(0), "1".to_owned());
        e.shown(s(1), shown);
        assert_eq!(e.next(s(1)), Next::Lost(why));
    }
}

#[test]
fn nobody_asks_again_at_once_after_a_call_that_failed() {
    let mut candidate = election();
    candidate.failed(s(10));
    assert_eq!(candidate.next(s(11)), Next::Wait(s(1)));
    assert_eq!(candidate.next(s(12)), Next::Read);
    // Nor a leader, which still gives up in time.
    let mut leader = election();
    leader.written(s(0), "1".to_owned());
    leader.failed(s(12));
    assert_eq!(leader.next(s(13)), Next::Wait(s(1)));
    assert_eq!(leader.next(s(14)), Next::Read);
    leader.failed(s(14));
    assert_eq!(leader.next(s(14)), Next::Wait(s(1)));
}

#[test]
fn who_leads_lets_go_of_the_lease_as_it_was_last_seen() {
    let mut e = election();
    e.shown(s(0), held_by(Some("me"), "1"));
    assert_eq!(e.to_release(), None, "not ours yet");
    e.written(s(0), "2".to_owned());
    assert_eq!(e.to_release(), Some("2"));
    e.shown(s(1), held_by(Some("me"), "3"));
    assert_eq!(e.to_release(), Some("3"));
    e.failed(s(2));
    assert_eq!(e.to_release(), None, "who knows");
}

/// With the program's own read every second, whenever between two reads the leader releases it.
#[test]
fn a_released_lease_is_taken_within_two_seconds() {
    let ms = Duration::from_millis;
    for released in (0..3000).step_by(50) {
        let timing = Timing::new(s(45), s(15), s(1)).expect("the program's defaults");
        let mut e = Election::new("me".to_owned(), timing);
        let mut now = Duration::ZERO;
        let taken = loop {
            match e.next(now) {
                Next::Wait(time) => now += time,
                Next::Read if now < ms(released) => e.shown(now, held_by(Some("other"), "7")),
                Next::Read => e.shown(now, held_by(None, "8")),
                Next::Replace { version, .. } => {
                    assert_eq!(version, "8");
                    break now;
                }
                other => panic!("{other:?}"),
            }
        };
        let after = taken.saturating_sub(ms(released));
        assert!(
            after <= s(1),
            "released at {released} ms, taken {after:?} later"
        );
    }
}
