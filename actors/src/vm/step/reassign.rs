//! A VM that a release before 1.0 was moving to another VsphereAgent. See [`crate::domain::reassign`].

use agent_forge_crds::conditions::Reason;

use super::{
    facts::{Facts, Lent},
    owned,
    steps::{Attempt, Entry, Step},
    wait::{MISSING_PROBE, Met, PROOFS, hold},
};
use crate::{domain::reassign::Taking, vm::ownership::Ownership};

/// Another VsphereAgent has the VM: this one goes.
pub(super) fn is_over(f: &Facts<'_>) -> Met {
    match f.reassign.lent {
        Lent::Over(_) => Err(Step::HandOver),
        Lent::No | Lent::Taken(_) => Ok(()),
    }
}

/// What is said instead of `step`, while another VsphereAgent takes the VM over: nothing is done to it here. A person who
/// forces the deletion decides otherwise.
pub(super) fn is_left_alone(f: &Facts<'_>, step: &Step) -> Option<Step> {
    let Lent::Taken(by) = f.reassign.lent else {
        return None;
    };
    let rests = matches!(step, Step::Settled | Step::Hold { .. } | Step::Look);
    let message = format!("VsphereAgent {by} takes this host over: nothing is done to it here");
    (!rests && !f.object.forced).then(|| hold(Reason::HostLent, message, Some(MISSING_PROBE)))
}

/// The VM that it takes over is its own, or it has let go of it.
pub(super) fn is_taken(f: &Facts<'_>) -> Met {
    match f.reassign.taking {
        Taking::No | Taking::Done => Ok(()),
        Taking::Asked => Err(Step::Attempt(Attempt::NotTaken)),
        Taking::Recorded if f.object.forced => Err(Step::Attempt(Attempt::NotTaken)),
        Taking::Recorded => mark(f),
    }
}

/// The mark of the VM decides. A request of the earlier process may still be under way for some minutes: until then, a VM with the
/// lender's mark is not let go of. Any other mark makes that request fail.
fn mark(f: &Facts<'_>) -> Met {
    Err(match f.vm.seen {
        Ownership::NotAsked => Step::Look,
        Ownership::Ours(_) => Step::Record(Entry::Stamped),
        Ownership::Lenders(_) if f.reassign.may_change => hold(
            Reason::TakingHost,
            "an earlier release began to take this VM over: whether it succeeds shows within some minutes",
            Some(MISSING_PROBE),
        ),
        Ownership::Absent { proofs } if *proofs < PROOFS => Step::Look,
        Ownership::Lenders(_)
        | Ownership::Absent { .. }
        | Ownership::Foreign { .. }
        | Ownership::Several(_) => Step::Attempt(Attempt::NotTaken),
        Ownership::Bare { what, .. } => owned::inaccessible(what, MISSING_PROBE),
    })
}
