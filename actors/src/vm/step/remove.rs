//! A VM that is removed with its VsphereAgent, or left to people.

use agent_forge_crds::conditions::Reason;

use super::{
    checks,
    facts::{Facts, Loss},
    guest,
    owned::{OwnedVm, Purpose, resolve_ownership},
    steps::{AgentWork, Attempt, Change, Entry, Finalizer, Power, Step},
    wait::{CONFLICT_PROBE, MISSING_PROBE, Met, hold},
};
use crate::{
    domain::{
        machine_state::MachineState,
        recycle::Stage,
        vanished::{self, Vanished},
    },
    lifecycle::{self, End, Policy, Unneeded},
    ports::vcenter::{PowerState, VmObservation},
    vm::ownership::Ownership,
};

/// The VsphereAgent is being deleted.
pub(super) fn remove(f: &Facts<'_>) -> Met {
    if !f.object.has_finalizer {
        return Ok(());
    }
    if f.object.adopted {
        // Nothing of the VM is the operator's.
        return Err(Step::Finalizer(Finalizer::Off));
    }
    if !f.object.forced {
        checks::left_bound_is_recorded(f)?;
    }
    ejection_is_finished(f)?;
    if !f.object.forced {
        agent_is_free(f)?;
        machine_is_gone(f)?;
        node_is_gone(f)?;
    }
    record_is_restored(f)?;
    vm_may_exist(f)?;
    guest::agent_is_fenced(f)?;
    if lifecycle::end(Unneeded::RecordDeleted, f.pool.policy) != End::Remove {
        return leave_behind(f);
    }
    checks::record_is_proven(f)?;
    destroy(f)
}

/// As [`checks::drive_is_closed`], of a VM that may not be proven yet.
fn ejection_is_finished(f: &Facts<'_>) -> Met {
    let unproven = checks::record_is_proven(f) == Err(Step::Prove);
    if f.record.ejecting && unproven {
        return Err(Step::Prove);
    }
    checks::drive_is_closed(f)
}

/// No Agent that may run there serves a Machine.
fn agent_is_free(f: &Facts<'_>) -> Met {
    if !f.agent.bound {
        return Ok(());
    }
    if let Some(agent) = f.agent.unproven {
        let message = format!(
            "Agent {agent} names this VM and serves a Machine: deletion waits, for that may run here. If it is another \
             host, delete that Agent, or set the annotation agent-forge.containeroo.ch/force-delete=true here"
        );
        return Err(hold(Reason::AgentUnproven, message, None));
    }
    Err(hold(
        Reason::AgentBound,
        "its Agent serves a Machine: deletion waits until that is gone. Delete the Machine, which drains the node (the \
         annotation agent-forge.containeroo.ch/force-delete=true destroys a node that serves)",
        None,
    ))
}

/// The Machine does not need this VM any more.
fn machine_is_gone(f: &Facts<'_>) -> Met {
    match f.owner.state {
        // The node may still be draining, and the hook may wait for this very guest.
        MachineState::Leaving if f.owner.stuck_on_guest => release_hook(f),
        MachineState::Leaving => Err(hold(
            Reason::MachineRemains,
            "its Machine is being deleted: the VM goes when that is gone",
            None,
        )),
        // Who deletes a whole namespace deletes Agents and VsphereAgents in any order, and the node still runs.
        MachineState::Alive if f.may_be_node() && !f.is_spare() => Err(hold(
            Reason::MachineRemains,
            "its Machine is there and not being deleted, and the VM was given to it: it may be its node. Delete the Machine \
             (the annotation agent-forge.containeroo.ch/force-delete=true destroys a node that serves)",
            None,
        )),
        _ => Ok(()),
    }
}

/// The guest is no node any more. A VM that is left to people is not checked for that.
fn node_is_gone(f: &Facts<'_>) -> Met {
    if f.owner.vanished == Vanished::Over {
        return Err(Step::Record(Entry::Unbound));
    }
    if f.pool.policy.leaves_to_people() {
        return Ok(());
    }
    guest::record_is_current(f)?;
    // Before a VM is given another life, its Machine is proven gone.
    let proven = f.recycle.stage != Stage::No
        && *f.owner.state == MachineState::Buffer
        && !f.is_silent_and_unsaid();
    let silent = f.may_be_silent_node();
    if proven || !f.may_be_node() && !silent {
        return Ok(());
    }
    if f.owner.vanished == Vanished::Held {
        return Err(hold(Reason::MachineVanishedPaused, vanished::STAYS, None));
    }
    let why = match f.owner.state {
        // A Machine that the operator does not know had it, and the Agent shows that it has it no more.
        MachineState::Buffer if f.agent.answers => return Ok(()),
        MachineState::Buffer if is_absent(f)? => return Ok(()),
        _ if silent && f.owner.state.wants_host() => guest::SILENT,
        MachineState::Nobody | MachineState::Buffer => {
            "it does not name the AgentMachine that it served"
        }
        MachineState::Unknown(why) => why,
        MachineState::Alive | MachineState::Leaving | MachineState::Gone => return Ok(()),
    };
    let message = format!(
        "{why}: the VM served a Machine, or its guest may be a node, and stays until that Machine is proven gone (or set \
         the annotation agent-forge.containeroo.ch/force-delete=true)"
    );
    Err(hold(
        Reason::MachineStateUnknown,
        message,
        Some(MISSING_PROBE),
    ))
}

/// The VM is proven absent: no node runs there.
fn is_absent(f: &Facts<'_>) -> Result<bool, Step> {
    let owned = resolve_ownership(f, Purpose::Remove)?;
    Ok(matches!(owned, OwnedVm::Absent))
}

/// A lost record is restored: without it the VM would have no owner.
fn record_is_restored(f: &Facts<'_>) -> Met {
    if f.object.forced || !f.pool.exists || f.pool.policy.leaves_to_people() {
        return Ok(());
    }
    match f.record.loss {
        Loss::None => Ok(()),
        Loss::Restorable => Err(Step::Attempt(Attempt::Identity)),
        Loss::Unrecoverable => Err(checks::record_lost()),
    }
}

/// A VM of ours may exist: it has an identity.
fn vm_may_exist(f: &Facts<'_>) -> Met {
    let has_uuid = f.record.vm.is_some_and(|vm| vm.bios_uuid.is_some());
    if has_uuid {
        return Ok(());
    }
    if !f.object.forced {
        checks::record_is_proven(f)?;
    }
    Err(Step::Finalizer(Finalizer::Off))
}

/// No create was ever sent, so that there is nothing to look for.
fn is_never_made(f: &Facts<'_>) -> bool {
    *f.vm.seen == Ownership::NotAsked && f.create.not_sent && !f.is_made()
}

/// The VM is kept although its record is removed. Its mark says so first: a scan would report it as an orphan. A forced
/// deletion skips that, as its vCenter may be gone for good, unless a person asked for it with `skip-delete`.
fn leave_behind(f: &Facts<'_>) -> Met {
    let vm = f.record.vm.filter(|_| f.record.has_identity);
    let marked = vm.is_some_and(|vm| vm.attempt.is_some());
    let unmarked = f.object.forced && f.pool.policy != Policy::SkipDelete;
    if !marked || unmarked || is_never_made(f) {
        return Err(Step::Finalizer(Finalizer::Off));
    }
    match resolve_ownership(f, Purpose::LeaveBehind)? {
        OwnedVm::There(_) => Err(Step::Configure(Change::Release)),
        OwnedVm::Absent => Err(Step::Finalizer(Finalizer::Off)),
    }
}

fn destroy(f: &Facts<'_>) -> Met {
    if is_never_made(f) {
        return Err(Step::Finalizer(Finalizer::Off));
    }
    match resolve_ownership(f, Purpose::Remove)? {
        OwnedVm::There(shown) => take_down(f, shown),
        OwnedVm::Absent => {
            guest::agent_is_deleted(f)?;
            Err(Step::Finalizer(Finalizer::Off))
        }
    }
}

/// The one way down: `shown` is switched off, even if it is suspended, then destroyed.
pub(super) fn take_down(f: &Facts<'_>, shown: &VmObservation) -> Met {
    guest::agent_state_is_known(f)?;
    // The recorded addresses identify its Agent: without them the Agent would be left behind.
    checks::macs_are_recorded(f, shown)?;
    Err(match shown.power {
        PowerState::Off => Step::Destroy,
        PowerState::Suspended | PowerState::On => switch_off(f, shown),
    })
}

/// `shown` runs or is suspended: it is switched off.
pub(super) fn switch_off(f: &Facts<'_>, shown: &VmObservation) -> Step {
    if shown.power == PowerState::Suspended && f.vm.stays_suspended {
        return hold(
            Reason::VmSuspended,
            "the VM is suspended, and vCenter refuses to switch it off: power it off in vCenter, or resume it",
            Some(MISSING_PROBE),
        );
    }
    Step::Power(Power::Off)
}

/// A deletion hook waits for a guest that does not answer: a dead guest never will.
pub(super) fn release_hook(f: &Facts<'_>) -> Met {
    let owned = resolve_ownership(f, Purpose::ReleaseHook)?;
    guest::record_is_current(f)?;
    match owned {
        OwnedVm::There(_) if frees_hook(f) => Err(Step::Record(Entry::NextLife)),
        OwnedVm::There(vm) if vm.power == PowerState::On => Err(hold(
            Reason::WaitingForGuest,
            "the deletion hook waits for the guest, which does not answer, and the VM runs; if the guest is dead, switch the VM off",
            Some(CONFLICT_PROBE),
        )),
        OwnedVm::There(_) | OwnedVm::Absent => Err(Step::Agent(AgentWork::ReleaseHook)),
    }
}

/// A deletion hook waits for the guest of `vm`, which is switched off or does not answer, and the pool recycles: the guest
/// boots the ISO again, which frees the hook and keeps the Agent.
pub(super) fn frees_hook(f: &Facts<'_>) -> bool {
    f.recycle.frees_hook && f.recycle.stage == Stage::No
}
