//! A VM that changes its pool. See [`crate::domain::reassign`] for the whole way.

use agent_forge_crds::conditions::Reason;

use super::{
    checks,
    facts::{Facts, Lent},
    guest, owned,
    steps::{Attempt, Change, Entry, Step},
    wait::{MISSING_PROBE, Met, PROOFS, hold},
};
use crate::{
    domain::reassign::{self, Taking},
    ports::vcenter::VmObservation,
    vm::ownership::Ownership,
};

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
        Taking::Asked if f.object.deleting => Err(Step::Attempt(Attempt::NotTaken)),
        Taking::Asked => {
            checks::credentials_are_held(f)?;
            Err(Step::Attempt(Attempt::Taken))
        }
        Taking::Recorded if f.object.forced => Err(Step::Attempt(Attempt::NotTaken)),
        Taking::Recorded => mark(f),
    }
}

/// The mark of the VM decides. A request of an earlier process may still be under way, so a VM with the lender's mark is never
/// let go of. Any other mark makes that request fail.
fn mark(f: &Facts<'_>) -> Met {
    Err(match f.vm.seen {
        Ownership::NotAsked => Step::Look,
        Ownership::Ours(_) => Step::Record(Entry::Stamped),
        Ownership::Lenders(shown) => return may_stamp(f, shown),
        Ownership::Absent { proofs } if *proofs < PROOFS => Step::Look,
        Ownership::Absent { .. } | Ownership::Foreign { .. } | Ownership::Several(_) => {
            Step::Attempt(Attempt::NotTaken)
        }
        Ownership::Bare { what, .. } => owned::inaccessible(what, MISSING_PROBE),
    })
}

fn may_stamp(f: &Facts<'_>, shown: &VmObservation) -> Met {
    // Before the taker begins, it asks live, and lets go of a host that others have.
    let begun = reassign::may_have_asked(f.record.vm);
    if f.agent.bound && begun {
        return Err(hold(
            Reason::TakingHost,
            "its Agent serves a Machine, or is about to: the VM is not taken over now",
            Some(MISSING_PROBE),
        ));
    }
    guest::agent_state_is_known(f)?;
    // The lender knows what the VM says of its guest.
    let known = f.record.vm.and_then(|vm| vm.may_serve.as_deref());
    let says = shown
        .may_serve
        .as_ref()
        .filter(|mark| mark.machine.is_some());
    if says.is_some_and(|says| known != Some(says.to_string().as_str())) {
        return Err(hold(
            Reason::RecordOutdated,
            "the VM says in vCenter that it may serve an AgentMachine that its VsphereAgent does not know of: it is not taken \
             over now",
            Some(MISSING_PROBE),
        ));
    }
    if shown.marks.paused {
        return Err(hold(
            Reason::TakingHost,
            "an administrator of vCenter pauses the VM: it is not taken over now",
            Some(MISSING_PROBE),
        ));
    }
    match f.reassign.lender_held {
        Some(why) => Err(hold(Reason::TakingHost, why, Some(MISSING_PROBE))),
        None => Err(Step::Configure(Change::TakeMark)),
    }
}
