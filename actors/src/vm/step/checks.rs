//! What has to be true before anything is done for a VM that is wanted.

use agent_forge_crds::{agent::VmStatus, conditions::Reason};

use super::{
    facts::Facts,
    owned::{OwnedVm, Purpose, resolve_ownership},
    steps::{Change, Entry, Finalizer, Step},
    wait::{CONFLICT_PROBE, FIRST_ONES, MISSING_PROBE, Met, PROOFS, hold},
};
use crate::{
    domain::{
        holds::VmMarks,
        recycle,
        vanished::{self, Vanished},
    },
    migration::proof,
    ports::vcenter::{BootDevice, VmObservation},
    vm::ownership::Ownership,
};

pub(super) fn pool_exists(f: &Facts<'_>) -> Met {
    if f.pool.exists {
        return Ok(());
    }
    if let Some(refused) = f.pool.refused {
        return Err(hold(Reason::NamespaceNotAllowed, refused, None));
    }
    Err(hold(
        Reason::PoolNotFound,
        "the VsphereAgentPool in spec.poolRef, or in spec.goal.pool, does not exist; nothing is done",
        None,
    ))
}

/// The record has the marks of an administrator of vCenter. While a pause is on record, the VM is looked at again and again,
/// since nothing else shows that it ended.
pub(super) fn marks_are_recorded(f: &Facts<'_>) -> Met {
    let Some(recorded) = f.record.vm.map(VmMarks::recorded) else {
        return Ok(());
    };
    match f.vm.seen {
        Ownership::Ours(shown) if shown.marks != recorded => Err(Step::Record(Entry::Marks)),
        Ownership::NotAsked if recorded.paused => Err(Step::Look),
        Ownership::Absent { proofs } if recorded.paused && *proofs < PROOFS => Err(Step::Look),
        Ownership::Absent { .. } if recorded.paused => Err(Step::Record(Entry::Marks)),
        _ => Ok(()),
    }
}

pub(super) fn finalizer_is_on(f: &Facts<'_>) -> Met {
    if f.object.has_finalizer {
        Ok(())
    } else {
        Err(Step::Finalizer(Finalizer::On))
    }
}

pub(super) fn cluster_is_the_recorded_one(f: &Facts<'_>) -> Met {
    if !f.object.cluster_changed {
        return Ok(());
    }
    Err(hold(
        Reason::ClusterIdChanged,
        "status.clusterID is not this cluster's: the VM's owner cannot be told; check --cluster-id or which hub \
         this object came from",
        None,
    ))
}

/// The operator made the VM, or has adopted it. A person may ask for that: then it is proven first, and gets our mark.
pub(super) fn vm_is_ours(f: &Facts<'_>) -> Met {
    if !f.object.adopted {
        return Ok(());
    }
    if !f.object.adopting {
        return Err(hold(
            Reason::OwnershipUnproven,
            "the operator did not make this VM, and nobody asked to adopt it: it is never touched",
            None,
        ));
    }
    credentials_are_held(f)?;
    match f.vm.seen {
        Ownership::Foreign { what, at, .. } => {
            let left = MISSING_PROBE.saturating_sub(f.now.saturating_sub(*at));
            let again = || hold(Reason::AdoptionUnproven, what.clone(), Some(left));
            Err(if left.is_zero() { Step::Prove } else { again() })
        }
        _ => Err(Step::Prove),
    }
}

/// The record leads to the VM. A record of the predecessor has no attempt: its VM is proven first, and gets our mark.
pub(super) fn record_is_proven(f: &Facts<'_>) -> Met {
    let Some(vm) = f.record.vm else {
        return Ok(());
    };
    record_has_uuid(vm)?;
    if !f.record.has_identity {
        return uuid_is_valid(vm);
    }
    if vm.attempt.is_some() {
        return Ok(());
    }
    Err(match resolve_ownership(f, Purpose::TakeOver)? {
        OwnedVm::There(_) => Step::Record(Entry::Seen),
        OwnedVm::Absent if f.object.deleting => Step::Finalizer(Finalizer::Off),
        OwnedVm::Absent => hold(
            Reason::VmMissing,
            "the VM that the record names is not in vCenter; nothing is created in its place",
            Some(MISSING_PROBE),
        ),
    })
}

fn record_has_uuid(vm: &VmStatus) -> Met {
    let Some(message) = proof::impossible(vm) else {
        return Ok(());
    };
    Err(hold(
        Reason::OwnershipUnproven,
        message,
        Some(CONFLICT_PROBE),
    ))
}

fn uuid_is_valid(vm: &VmStatus) -> Met {
    let Some(text) = &vm.bios_uuid else {
        return Ok(());
    };
    let message = format!(
        "status.vm.biosUUID {text:?} is no uuid, so the VM cannot be told: nothing is made and nothing is removed"
    );
    Err(hold(Reason::RecordUnreadable, message, None))
}

/// Where its Machine just disappeared and left its Agent bound, the record says so.
pub(super) fn left_bound_is_recorded(f: &Facts<'_>) -> Met {
    if f.owner.left_bound {
        Err(Step::Record(Entry::LeftBound))
    } else {
        Ok(())
    }
}

/// Its Machine did not disappear with the Agent still bound.
pub(super) fn machine_let_go_of_its_agent(f: &Facts<'_>) -> Met {
    if f.owner.vanished == Vanished::Held {
        Err(hold(Reason::MachineVanishedPaused, vanished::STAYS, None))
    } else {
        Ok(())
    }
}

/// No drive is half emptied by the predecessor. While that task waits for an answer, the guest does not run and vCenter does
/// nothing else to the VM. So it is finished first, even if the VM serves or is to be removed.
pub(super) fn drive_is_closed(f: &Facts<'_>) -> Met {
    if !f.record.ejecting || !f.record.has_identity || f.object.adopted {
        return Ok(());
    }
    match f.vm.seen {
        Ownership::NotAsked => Err(Step::Look),
        Ownership::Ours(_) => Err(Step::Configure(Change::FinishEjection)),
        _ => Ok(()),
    }
}

/// The record has the MAC addresses of `shown`: they identify its Agent. A person may have replaced a network card.
pub(super) fn macs_are_recorded(f: &Facts<'_>, shown: &VmObservation) -> Met {
    let recorded = f
        .record
        .vm
        .map_or(&[][..], |vm| vm.mac_addresses.as_slice());
    let mut macs = shown.macs.iter().map(ToString::to_string);
    if macs.any(|mac| !recorded.contains(&mac)) {
        Err(Step::Record(Entry::Seen))
    } else {
        Ok(())
    }
}

/// The Secret with which the VM is made, or taken over, stays for as long as the VM.
pub(super) fn credentials_are_held(f: &Facts<'_>) -> Met {
    if f.pool.credentials_held {
        return Ok(());
    }
    Err(hold(
        Reason::CredentialsNotHeld,
        "the pool's credentials Secret is not kept from deletion yet; see the pool's conditions",
        None,
    ))
}

pub(super) fn record_lost() -> Step {
    hold(
        Reason::RecordLost,
        "a VM with our mark stands in vCenter and status.vm is gone: restore it, or remove the VM by hand and delete the \
         VsphereAgent (set the annotation agent-forge.containeroo.ch/force-delete=true)",
        Some(CONFLICT_PROBE),
    )
}

/// There is an ISO to boot a new VM from, and nothing forbids that.
pub(super) fn iso_is_ready(f: &Facts<'_>) -> Met {
    if let Some(guard) = f.pool.guard {
        return Err(hold(guard.reason.clone(), guard.message.clone(), None));
    }
    if f.pool.iso_ready {
        return Ok(());
    }
    Err(hold(
        Reason::IsoNotReady,
        "the pool's discovery ISO is not on its datastore yet; see the pool's condition ISOReady",
        None,
    ))
}

/// The pool does not want its VMs to run before a time, or before those of other pools.
pub(super) fn is_time_to_run(f: &Facts<'_>) -> Met {
    if let Some(why) = f.pool.start_after {
        let message = why.to_owned();
        return Err(hold(Reason::StartsAfterPool, message, Some(FIRST_ONES)));
    }
    let Some((at, left)) = f.pool.power_on_after else {
        return Ok(());
    };
    let message =
        format!("spec.powerOnAfter of the pool is {at}: the VM is made, and stays off until then");
    Err(hold(Reason::PowerOnScheduled, message, Some(left)))
}

/// The record has what `shown` is. Its reference counts: a restored vCenter gives the VM another one.
pub(super) fn is_recorded(f: &Facts<'_>, shown: &VmObservation) -> bool {
    let reference = f.record.vm.and_then(|vm| vm.moref.as_ref());
    f.runs_by_record()
        && reference == Some(&shown.moref.id)
        && macs_are_recorded(f, shown).is_ok()
        && f.record.vcenter != Some(false)
        && f.mark.recorded
        && f.record
            .vm
            .is_none_or(|vm| shown.life() <= recycle::generation(vm))
}

/// The system disk, every other one, then the CD-ROM: an empty disk falls through to the ISO, and an installed one never boots it again.
#[must_use]
pub fn boots_disk_first(shown: &VmObservation) -> bool {
    let disks = shown.boot_disks().into_iter().map(BootDevice::Disk);
    let wanted = disks.chain([BootDevice::Cdrom]);
    shown.boot_order.iter().cloned().eq(wanted)
}
