//! A VM that a release before 1.0 was moving: the order of the steps, and what the lender leaves alone.

use super::*;

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
    Ownership::Lenders(Box::new(shown(&child("lender"), PowerState::On)))
}

fn foreign() -> Ownership {
    Ownership::Foreign {
        what: "w".to_owned(),
        met: FoundBy::Uuid,
        at: Duration::ZERO,
    }
}

#[test]
fn the_mark_decides_whose_it_is() {
    let c = child("a");
    let vm = running(&c);
    let not_asked = Ownership::NotAsked;
    assert_eq!(next(&taking(&vm, &not_asked)), Step::Look);
    assert_eq!(
        next(&taking(&vm, &ours(PowerState::On))),
        Step::Record(Entry::Stamped)
    );
    let done = with(taking(&vm, &not_asked), |f| {
        f.reassign.taking = Taking::Done;
    });
    assert_eq!(next(&done), Step::Settled);
    // A request may be under way.
    let seen = lenders();
    let late = with(taking(&vm, &seen), |f| f.reassign.may_change = true);
    let deleting = with(late, |f| f.object.deleting = true);
    for facts in [late, deleting] {
        assert_eq!(reason(&next(&facts)), Some(Reason::TakingHost), "{facts:?}");
    }
    let over = next(&taking(&vm, &seen));
    assert_eq!(over, Step::Attempt(Attempt::NotTaken));
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
        f.reassign.may_change = true;
        f.object.deleting = true;
        f.object.forced = true;
    });
    assert_eq!(next(&forced), Step::Attempt(Attempt::NotTaken));
    for deleting in [false, true] {
        let asked = with(wanted(None, &Ownership::NotAsked), |f| {
            f.reassign.taking = Taking::Asked;
            f.object.deleting = deleting;
        });
        assert_eq!(next(&asked), Step::Attempt(Attempt::NotTaken));
    }
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
