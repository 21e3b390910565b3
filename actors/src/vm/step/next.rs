//! The order of the checks: the first one that is unmet gives the step.

use agent_forge_crds::conditions::Reason;

use super::{
    build, checks,
    facts::{Facts, Loss},
    reassign, recycle, remove, replace,
    steps::{Attempt, Change, Power, Step},
    wait::{MISSING_PROBE, Met, hold},
};
use crate::{
    domain::recycle::Stage,
    ports::{
        effect::EffectKind,
        vcenter::{PowerState, VmObservation},
    },
    vm::{arrival::Arrival, boot_repair::Repair, ownership::Ownership},
};

/// Decides.
#[must_use]
pub fn next(f: &Facts<'_>) -> Step {
    let step = unmet(f).err().unwrap_or(Step::Settled);
    if let Some(left_alone) = reassign::is_left_alone(f, &step) {
        return left_alone;
    }
    let refused = f.pool.refused.filter(|_| adds_a_host(f, &step));
    if let Some(refused) = refused {
        return hold(Reason::NamespaceNotAllowed, refused, None);
    }
    let resting = step.call().and_then(|call| rests(f, call));
    resting.unwrap_or(step)
}

/// The life of a VM.
fn unmet(f: &Facts<'_>) -> Met {
    reassign::is_over(f)?;
    checks::marks_are_recorded(f)?;
    if f.object.deleting {
        reassign::is_taken(f)?;
        return remove::remove(f);
    }
    checks::pool_exists(f)?;
    checks::finalizer_is_on(f)?;
    checks::cluster_is_the_recorded_one(f)?;
    let off = matches!(f.vm.seen, Ownership::Ours(vm) if vm.power == PowerState::Off);
    // A VM that runs is switched off first, on the way into its next life.
    let stops = recycle::is_kept(f) || f.recycle.overdue && off;
    if f.owner.stuck_on_guest && (f.recycle.stage == Stage::No || stops) {
        return remove::release_hook(f);
    }
    checks::vm_is_ours(f)?;
    reassign::is_taken(f)?;
    checks::record_is_proven(f)?;
    checks::left_bound_is_recorded(f)?;
    checks::machine_let_go_of_its_agent(f)?;
    checks::drive_is_closed(f)?;
    recycle::go_on(f)?;
    build::machine_wants_a_host(f)?;
    if f.arrival == Arrival::GivenUp {
        return replace::replace(f);
    }
    build::identity_is_recorded(f)?;
    if f.is_made() {
        build::keep(f)
    } else {
        build::create(f)
    }
}

/// The step brings a new host nearer. A lost record is still restored: it leads to the VM, so that the VM can be removed.
fn adds_a_host(f: &Facts<'_>, step: &Step) -> bool {
    match step {
        Step::Attempt(Attempt::Identity) => f.record.loss == Loss::None,
        Step::Place
        | Step::Create
        | Step::Power(Power::On)
        | Step::Configure(Change::NewLife(_)) => true,
        _ => false,
    }
}

/// The call is not tried yet. The VM is looked at meanwhile, since the task that blocks the call may end.
fn rests(f: &Facts<'_>, call: EffectKind) -> Option<Step> {
    // A host that is brought back to its disk needs several calls: a VM that is busy gets none of them.
    let any = f.vm.repair != Repair::NotNeeded;
    let resting = f.vm.resting.filter(|resting| any || resting.call == call)?;
    let is_empty = |shown: &VmObservation| shown.cdroms.iter().all(|drive| drive.iso.is_none());
    // The blocking task has emptied the drive itself: the step sends nothing.
    if call == EffectKind::EjectIso && matches!(f.vm.seen, Ownership::Ours(vm) if is_empty(vm)) {
        return None;
    }
    let again = resting.left.min(MISSING_PROBE);
    Some(hold(resting.reason.clone(), resting.why, Some(again)))
}
