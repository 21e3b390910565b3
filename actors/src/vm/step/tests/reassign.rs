//! A VM that changes its pool: the order of the steps, and what the lender leaves alone.

use super::*;
use crate::domain::marker::MayServe;

/// Facts of a VsphereAgent that takes over the VM on its record.
fn taking<'a>(vm: &'a VmStatus, seen: &'a Ownership) -> Facts<'a> {
    with(wanted(Some(vm), seen), |f| {
        f.reassign.taking = Taking::Recorded;
    })
}

fn reason(step: &Step) -> Option<Reason> {
    match step {
        Step::Hold { reason, .. } => Some(reason.clone()),
        _ => None,
    }
}

fn lenders() -> Ownership {
    let mut shown = shown(&child("lender"), PowerState::On);
    shown.may_serve = Some(MayServe::no(1));
    Ownership::Lenders(Box::new(shown))
}

/// The lender's record is older than what its VM says: the guest may be a node.
#[test]
fn a_vm_that_its_lender_has_forgotten_is_not_taken() {
    let c = child("a");
    let vm = running(&c);
    let says = shown(&child("lender"), PowerState::On);
    let seen = Ownership::Lenders(Box::new(says));
    let step = next(&taking(&vm, &seen));
    assert_eq!(reason(&step), Some(Reason::RecordOutdated));
}

fn foreign() -> Ownership {
    Ownership::Foreign {
        what: "w".to_owned(),
        met: FoundBy::Uuid,
        at: Duration::ZERO,
    }
}

#[test]
fn the_vm_is_recorded_before_its_mark_is_changed_and_used_only_after_that_is_on_record() {
    let asked = with(wanted(None, &Ownership::NotAsked), |f| {
        f.reassign.taking = Taking::Asked;
    });
    assert_eq!(next(&asked), Step::Attempt(Attempt::Taken));
    let unheld = with(asked, |f| f.pool.credentials_held = false);
    assert_eq!(reason(&next(&unheld)), Some(Reason::CredentialsNotHeld));
    let c = child("a");
    let vm = running(&c);
    let not_asked = Ownership::NotAsked;
    assert_eq!(next(&taking(&vm, &not_asked)), Step::Look);
    assert_eq!(
        next(&taking(&vm, &lenders())),
        Step::Configure(Change::TakeMark)
    );
    assert_eq!(
        next(&taking(&vm, &ours(PowerState::On))),
        Step::Record(Entry::Stamped)
    );
    let done = with(taking(&vm, &not_asked), |f| {
        f.reassign.taking = Taking::Done;
    });
    assert_eq!(next(&done), Step::Settled);
}

#[test]
fn a_vm_with_the_lenders_mark_is_never_let_go_of() {
    let c = child("a");
    let vm = running(&c);
    let seen = lenders();
    let facts = taking(&vm, &seen);
    let deleting = with(facts, |f| f.object.deleting = true);
    assert_eq!(
        next(&deleting),
        Step::Configure(Change::TakeMark),
        "a request may be under way"
    );
    let busy = |f: &mut Facts<'_>| f.agent.bound = true;
    let held = |f: &mut Facts<'_>| f.reassign.lender_held = Some("paused");
    for facts in [with(facts, busy), with(facts, held), with(deleting, busy)] {
        assert_eq!(reason(&next(&facts)), Some(Reason::TakingHost), "{facts:?}");
    }
    let mut paused = shown(&child("lender"), PowerState::On);
    paused.marks.paused = true;
    let paused = Ownership::Lenders(Box::new(paused));
    let waits = next(&taking(&vm, &paused));
    assert!(
        matches!(waits, Step::Record(Entry::Marks) | Step::Hold { .. }),
        "{waits:?}"
    );
}

#[test]
fn a_vm_that_is_gone_or_another_ones_is_not_taken() {
    let c = child("a");
    let vm = running(&c);
    let once = Ownership::Absent { proofs: 1 };
    assert_eq!(next(&taking(&vm, &once)), Step::Look);
    for seen in [
        Ownership::Absent { proofs: 2 },
        foreign(),
        Ownership::Several(vec![]),
    ] {
        assert_eq!(
            next(&taking(&vm, &seen)),
            Step::Attempt(Attempt::NotTaken),
            "{seen:?}"
        );
    }
    let hidden = Ownership::Bare {
        what: "w".to_owned(),
        at: Duration::ZERO,
    };
    let waits = next(&taking(&vm, &hidden));
    assert_eq!(reason(&waits), Some(Reason::VmInaccessible));
    // A person forces the deletion, whatever is under way.
    let seen = lenders();
    let forced = with(taking(&vm, &seen), |f| {
        f.object.deleting = true;
        f.object.forced = true;
    });
    assert_eq!(next(&forced), Step::Attempt(Attempt::NotTaken));
    let asked = with(wanted(None, &Ownership::NotAsked), |f| {
        f.reassign.taking = Taking::Asked;
        f.object.deleting = true;
    });
    assert_eq!(next(&asked), Step::Attempt(Attempt::NotTaken));
}

#[test]
fn the_lender_does_nothing_while_its_host_is_taken_and_goes_afterwards() {
    let c = child("a");
    let vm = running(&c);
    let (on, off) = (ours(PowerState::On), ours(PowerState::Off));
    let by = ObjectKey::new("ns", "taker");
    let (taken, over) = (Lent::Taken(by.clone()), Lent::Over(by));
    let lent = |f, lent| with(f, |f: &mut Facts<'_>| f.reassign.lent = lent);
    let deleting = |seen| with(wanted(Some(&vm), seen), |f| f.object.deleting = true);
    for facts in [deleting(&on), deleting(&off), wanted(Some(&vm), &off)] {
        let alone = next(&lent(facts, &taken));
        assert_eq!(reason(&alone), Some(Reason::HostLent), "{facts:?}");
        assert_eq!(next(&lent(facts, &over)), Step::HandOver, "{facts:?}");
    }
    // Nothing is said while nothing would be done.
    assert_eq!(next(&lent(wanted(Some(&vm), &on), &taken)), Step::Settled);
    let forced = with(deleting(&off), |f| f.object.forced = true);
    assert_eq!(next(&lent(forced, &taken)), Step::Destroy);
    // Its Agent serves another pool's Machine by then.
    let bound = with(lent(deleting(&on), &over), |f| f.agent.bound = true);
    assert_eq!(next(&bound), Step::HandOver);
}
