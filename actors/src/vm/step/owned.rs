//! Which VM in vCenter is ours: the one place that reads what a look showed. Each way of a VM's life asks here first, and
//! gets either a VM that it may act on, or the step that comes before.

use std::time::Duration;

use agent_forge_crds::conditions::Reason;

use super::{
    facts::{Facts, PlacementCheck},
    steps::{Finalizer, Step},
    wait::{CONFLICT_PROBE, MISSING_PROBE, PROOFS, PROOFS_AFTER_LOST_CREATE, hold},
};
use crate::{
    ports::vcenter::VmObservation,
    vm::ownership::{FoundBy, Ownership},
};

/// What vCenter has of the VM, once that is certain.
pub(super) enum OwnedVm<'a> {
    /// This VM is ours.
    There(&'a VmObservation),
    /// It does not exist.
    Absent,
}

/// What the answer is needed for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To create the VM.
    Build,
    /// To keep the recorded VM.
    Keep,
    /// To prove a VM of the predecessor.
    TakeOver,
    /// To give the VM another life.
    Recycle,
    /// To release a deletion hook that waits for the guest.
    ReleaseHook,
    /// To remove the VM.
    Remove,
    /// To leave the VM to people when its record is removed.
    LeaveBehind,
    /// To remove a VM that was given up.
    Replace,
}

/// The VM, or what comes before it is known.
pub(super) fn resolve_ownership<'a>(f: &Facts<'a>, purpose: Purpose) -> Result<OwnedVm<'a>, Step> {
    match f.vm.seen {
        Ownership::Ours(shown) => Ok(OwnedVm::There(shown)),
        Ownership::NotAsked => Err(look(f, purpose)),
        Ownership::Absent { proofs } if *proofs < proofs_needed(f, purpose) => Err(match purpose {
            Purpose::TakeOver => look(f, purpose),
            _ => Step::Look,
        }),
        Ownership::Absent { .. } => Ok(OwnedVm::Absent),
        Ownership::Bare { what, .. } if purpose == Purpose::TakeOver => {
            Err(inaccessible(what, MISSING_PROBE))
        }
        Ownership::Bare { what, at } => Err(match left(f, *at) {
            Duration::ZERO => Step::Look,
            left => inaccessible(what, left),
        }),
        // What it is taken from is settled before anybody asks here.
        Ownership::Lenders(shown) => Err(foreign(f, purpose, &shown.name, false, Duration::ZERO)),
        Ownership::Several(_) if purpose == Purpose::LeaveBehind => {
            Err(Step::Finalizer(Finalizer::Off))
        }
        Ownership::Several(all) => Err(ambiguous(all.len())),
        Ownership::Foreign { what, met, at } => {
            let by_name = matches!(met, FoundBy::Name(_));
            Err(foreign(f, purpose, what, by_name, left(f, *at)))
        }
    }
}

/// How to find out.
fn look(f: &Facts<'_>, purpose: Purpose) -> Step {
    let task = f.create_task();
    match purpose {
        Purpose::Build | Purpose::Remove | Purpose::LeaveBehind => {
            task.map_or(Step::Look, Step::Await)
        }
        Purpose::Keep | Purpose::Recycle | Purpose::ReleaseHook | Purpose::Replace => Step::Look,
        Purpose::TakeOver if f.pool.exists => Step::Prove,
        Purpose::TakeOver => hold(
            Reason::OwnershipUnproven,
            "the record names neither vCenter nor folder, and the pool that would tell is gone: remove the VM by hand, \
             then the finalizer",
            None,
        ),
    }
}

/// A create whose reply was lost may still be running, and only time shows that. If the create is repeated, name and path
/// collide, and that does no harm. If the VM is not wanted there any more, only a longer absence is enough.
fn proofs_needed(f: &Facts<'_>, purpose: Purpose) -> u8 {
    let create_may_run = !f.is_made() && !f.create.not_sent;
    let elsewhere = f.create.path_taken || f.create.place == PlacementCheck::Elsewhere;
    match purpose {
        Purpose::Build if create_may_run && elsewhere => PROOFS_AFTER_LOST_CREATE,
        Purpose::Remove | Purpose::LeaveBehind if create_may_run => PROOFS_AFTER_LOST_CREATE,
        // It is reported, and nothing is made in its place.
        Purpose::Keep if f.serves() => 0,
        _ => PROOFS,
    }
}

/// How long an answer from `at` still holds.
fn left(f: &Facts<'_>, at: Duration) -> Duration {
    CONFLICT_PROBE.saturating_sub(f.now.saturating_sub(at))
}

/// `what` is not ours. `by_name`: it only has the name that ours was to get, which says nothing about ours. `left`: how
/// long the answer still holds.
fn foreign(f: &Facts<'_>, purpose: Purpose, what: &str, by_name: bool, left: Duration) -> Step {
    let elsewhere = f.create.place == PlacementCheck::Elsewhere;
    let (message, again) = match purpose {
        Purpose::Build if left.is_zero() || by_name && elsewhere => return Step::Look,
        Purpose::Build if by_name => {
            let message = format!(
                "{what} has this name and is not the VM of this VsphereAgent; it is left alone. Rename, move or remove it. Or delete the \
                 Machine, or the VsphereAgent if it has none"
            );
            return hold(Reason::NameConflict, message, Some(left));
        }
        // It may be ours: nothing is made beside it.
        Purpose::Build => (
            format!(
                "{what} carries our uuid but not our mark; it is left alone, and nothing is made beside it"
            ),
            left,
        ),
        Purpose::Remove | Purpose::LeaveBehind if by_name => return Step::Look,
        Purpose::LeaveBehind => return Step::Finalizer(Finalizer::Off),
        Purpose::Remove => (
            format!(
                "{what} carries our uuid but is not proven ours: it is left alone; delete it or its copy by hand"
            ),
            CONFLICT_PROBE,
        ),
        Purpose::Keep | Purpose::Recycle => (
            format!("{what} is not the recorded VM; it is left alone"),
            CONFLICT_PROBE,
        ),
        Purpose::TakeOver => (
            format!("{what} could not be proven to be the recorded VM; it is left alone"),
            MISSING_PROBE,
        ),
        Purpose::ReleaseHook => (
            format!(
                "the deletion hook waits for the guest, and {what} could not be proven to be its VM"
            ),
            CONFLICT_PROBE,
        ),
        Purpose::Replace => (
            format!("{what} is not proven to be the VM that was given up; it is left alone"),
            CONFLICT_PROBE,
        ),
    };
    hold(Reason::OwnershipUnproven, message, Some(again))
}

/// A VM that may be ours shows no configuration: nothing is decided from it, and it is looked at again.
pub(super) fn inaccessible(what: &str, again: Duration) -> Step {
    hold(
        Reason::VmInaccessible,
        format!(
            "{what} may be this VM, and vCenter shows no configuration of it: nothing is made, switched or removed until it does. \
             See its host and datastore; a VM that is lost for good: remove it from the inventory"
        ),
        Some(again),
    )
}

fn ambiguous(count: usize) -> Step {
    hold(
        Reason::AmbiguousVm,
        format!(
            "{count} VMs carry our marker and none is the recorded one: remove the copies, nothing is touched until then"
        ),
        Some(CONFLICT_PROBE),
    )
}
