//! What a change of a VM's configuration says, and what the VM shows after it. Pure.

use agent_forge_crds::pool::{ReleasedDisk, VsphereAgentPool};

use super::{observed::Observed, step::Change};
use crate::{
    domain::{
        failure::ReconcileError,
        marker::{Mark, Marker, MayServe},
        template,
    },
    iso::of_pool,
    placement::request,
    ports::vcenter::{BootDevice, NewLife, RenewedDisk, VmChange, VmObservation},
};

/// What is sent for `change`. `marker`: the mark of the VsphereAgent. `pool`: as it was read before the change. `shown`: the VM, as
/// it was looked at. `None`: nothing.
///
/// # Errors
/// The pool does not say what is needed for it.
pub fn wanted(
    change: &Change,
    observed: &Observed,
    marker: Marker,
    pool: Option<&VsphereAgentPool>,
    shown: &VmObservation,
) -> Result<Option<VmChange>, ReconcileError> {
    let nothing = VmChange::default();
    Ok(match change {
        Change::BootOrder(keys) => Some(VmChange {
            boot_order: Some(keys.clone()),
            ..nothing
        }),
        Change::MayServe => may_serve(observed, shown).map(|says| VmChange {
            may_serve: Some(says),
            ..nothing
        }),
        Change::Release => Some(VmChange {
            mark: Some(Mark::Released(marker)),
            ..nothing
        }),
        Change::NewLife(life) => match pool {
            Some(pool) => new_life(*life, observed, pool, shown)?.map(|life| VmChange {
                life: Some(life),
                ..nothing
            }),
            None => None,
        },
        // Which ISOs go depends on who asked for that.
        Change::Eject | Change::FinishEjection => None,
    })
}

/// The VM may serve its AgentMachine in the life that it is in, or whatever has bound its Agent.
fn may_serve(observed: &Observed, shown: &VmObservation) -> Option<MayServe> {
    let machine = observed.child.offered_to();
    let machine = machine.or(observed.host.serves().then_some(MayServe::BOUND))?;
    Some(MayServe {
        life: shown.life(),
        machine: Some(machine.to_owned()),
    })
}

fn new_life(
    generation: u32,
    observed: &Observed,
    pool: &VsphereAgentPool,
    shown: &VmObservation,
) -> Result<Option<NewLife>, ReconcileError> {
    let Some(iso) = of_pool::iso_path(pool) else {
        return Ok(None);
    };
    // The new disk is as the VM was made: its pool may want another one since.
    let hardware = match observed.vm().and_then(template::recorded) {
        Some(recorded) => recorded,
        None => request::place_request(pool)?.hardware,
    };
    let keeps = pool.spec.release.as_ref().and_then(|r| r.disk) == Some(ReleasedDisk::Keep);
    let disk = if keeps {
        RenewedDisk::Kept
    } else {
        RenewedDisk::Replaced {
            gib: hardware.disk_gib,
            eagerly_scrub: hardware.eagerly_scrub,
        }
    };
    Ok(Some(NewLife {
        generation,
        iso,
        disk,
        system_disk: shown.system_disk(),
    }))
}

/// What the VM, `shown` before, shows after that change succeeded. `None`: only a look tells.
#[must_use]
pub fn after(change: &VmChange, mut shown: VmObservation) -> Option<VmObservation> {
    if change.life.is_some() || change.mark.is_some() || !change.eject.is_empty() {
        return None;
    }
    if let Some(keys) = &change.boot_order {
        let disks = keys.iter().map(|key| BootDevice::Disk(*key));
        shown.boot_order = disks.chain([BootDevice::Cdrom]).collect();
    }
    if let Some(says) = &change.may_serve {
        shown.may_serve = Some(says.clone());
    }
    Some(shown)
}
