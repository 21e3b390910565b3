//! The virtual machines: how they look, and each change to them.

use async_trait::async_trait;

use super::{
    error::VcResult,
    inventory::Place,
    power::PowerState,
    tasks::{Ended, TaskRef},
};
use crate::{
    domain::{
        hardware::{Hardware, ShownHardware},
        holds::VmMarks,
        identity::{BiosUuid, MacAddress},
        marker::{DiskMark, Mark, Marker, MayServe},
        names::{DatastorePath, MoRef},
        network::NicPlan,
    },
    ports::{effect::Effect, permit::Permit},
};

/// Everything that one `CreateVM_Task` carries.
#[derive(Clone, Debug)]
pub struct CreateVm {
    /// Inventory name.
    pub name: String,
    /// BIOS uuid.
    pub uuid: BiosUuid,
    /// Ownership marker. The VM has it from its first moment.
    pub marker: Marker,
    /// Whether its guest may serve a Machine. The VM has that from its first moment as well.
    pub may_serve: MayServe,
    /// CPUs, memory, disk, and the kind of its network cards.
    pub hardware: Hardware,
    /// Its network cards.
    pub nics: Vec<NicPlan>,
    /// Where the VM will run.
    pub place: Place,
    /// Configuration file, `[ds] <name>-<uid8>-<attempt>/<name>.vmx`. It is explicit so that a second creation fails.
    pub vm_path: DatastorePath,
    /// Discovery ISO in its CD-ROM drive.
    pub iso: DatastorePath,
    /// Text of its notes ([`Notes`]).
    pub annotation: String,
}

/// `extraConfig` key of a VM with the number of the life that it was last made ready for.
pub const GENERATION_KEY: &str = "agent-forge.generation";

/// What one `ReconfigVM_Task` changes of a VM. What is `None` or empty stays.
///
/// An ejection goes with nothing else, and neither does a mark of release. vCenter carries all of it out, or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VmChange {
    /// The ownership marker, or that people have the VM from now on.
    pub mark: Option<Mark>,
    /// Whether its guest may serve a Machine.
    pub may_serve: Option<MayServe>,
    /// Its notes.
    pub annotation: Option<String>,
    /// Device keys of the disks that it boots, in order. CD-ROM follows.
    pub boot_order: Option<Vec<i32>>,
    /// Makes it ready for another life. It must be switched off.
    pub life: Option<NewLife>,
    /// ISOs (as in [`Cdrom::iso`]) that are taken out of its drives, connected or not. It overrules a guest that has locked its
    /// tray, also after an earlier call that left vCenter's question open. If no drive holds any of them, nothing is written.
    pub eject: Vec<String>,
}

/// A VM as it was when a call on it was permitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmAt {
    /// Its reference.
    pub moref: MoRef,
    /// [`VmObservation::change_version`] as it was seen. If the VM was changed since, vCenter refuses a change of its
    /// configuration with `ConcurrentAccess`. `None`: vCenter shows none.
    pub change_version: Option<String>,
}

impl VmAt {
    /// As it is `shown`.
    #[must_use]
    pub fn of(shown: &VmObservation) -> Self {
        Self {
            moref: shown.moref.clone(),
            change_version: shown.change_version.clone(),
        }
    }
}

/// The life that a VM begins: discovery ISO in its drive, and a new disk or the kept ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewLife {
    /// Its number, at least 2. It is written to [`GENERATION_KEY`]. In it the host is offered to nobody yet ([`MayServe::no`]).
    pub generation: u32,
    /// Discovery ISO for its CD-ROM drive, connected now and at power-on.
    pub iso: DatastorePath,
    /// What becomes of its disks. The VM says so from then on ([`DiskMark`]).
    pub disk: RenewedDisk,
    /// Key of the disk that it boots ([`VmObservation::system_disk`]). `None`: it has none.
    pub system_disk: Option<i32>,
}

impl NewLife {
    /// What the VM says of its disks from then on.
    #[must_use]
    pub fn disk_mark(&self) -> DiskMark {
        DiskMark {
            life: self.generation,
            kept: self.disk == RenewedDisk::Kept,
        }
    }
}

/// What becomes of the disks of a VM that is made ready for another life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenewedDisk {
    /// The system disk is removed with its file. One new, empty disk comes in its place, on the same controller and unit. The
    /// others are detached and keep their files: the VM was made with one disk, so they are somebody's data, such as volumes
    /// of a dead node. Without a system disk the request fails.
    Replaced {
        /// Its size in GiB.
        gib: u64,
        /// It is eagerly zeroed thick instead of thin.
        eagerly_scrub: bool,
    },
    /// They stay. The boot order becomes CD-ROM, system disk, others, as the old system must not start.
    Kept,
}

/// A device in the boot order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BootDevice {
    /// Disk with this device key.
    Disk(i32),
    /// Any CD-ROM.
    Cdrom,
    /// Anything else.
    Other(String),
}

/// A CD-ROM drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cdrom {
    /// Device key.
    pub key: i32,
    /// ISO behind it, as `[datastore] path`.
    pub iso: Option<String>,
    /// Connected now.
    pub connected: bool,
    /// Connected at power-on.
    pub start_connected: bool,
}

/// A VM as vCenter shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmObservation {
    /// Reference in this vCenter.
    pub moref: MoRef,
    /// Inventory name.
    pub name: String,
    /// BIOS uuid; absent on VMs that are broken or inaccessible.
    pub bios_uuid: Option<BiosUuid>,
    /// vCenter's own unique id of this VM (a clone has another one).
    pub instance_uuid: Option<String>,
    /// Folder it is in.
    pub folder: Option<MoRef>,
    /// Ownership marker, if any.
    pub marker: Option<Marker>,
    /// Whether its guest may serve a Machine. `None`: unknown.
    pub may_serve: Option<MayServe>,
    /// Number of the life that the VM was last made ready for ([`GENERATION_KEY`]). `None`: it is in its first life.
    pub generation: Option<u32>,
    /// What became of its disks when it was last made ready for a life. `None`: unknown, or it is in its first life.
    pub disk: Option<DiskMark>,
    /// Changes with each change of its configuration. `None`: vCenter does not show it.
    pub change_version: Option<String>,
    /// What an administrator has marked it with.
    pub marks: VmMarks,
    /// The pool to which an administrator gives it ([`ADOPT_KEY`](crate::domain::holds::ADOPT_KEY)), as written.
    pub adopt: Option<String>,
    /// Its notes: a text of users, of other programs, or of this operator. Empty if it has none.
    pub annotation: String,
    /// Power state.
    pub power: PowerState,
    /// `connected`, `disconnected`, `inaccessible`, ... as on the wire.
    pub connection_state: String,
    /// MACs of its virtual NICs.
    pub macs: Vec<MacAddress>,
    /// Device keys of its disks, in order.
    pub disk_keys: Vec<i32>,
    /// CD-ROM drives.
    pub cdroms: Vec<Cdrom>,
    /// Boot order; empty when none is set.
    pub boot_order: Vec<BootDevice>,
    /// Its processors, memory and devices.
    pub hardware: ShownHardware,
    /// Configuration file.
    pub vm_path: String,
    /// VMware Tools' running status, as evidence (`guestToolsRunning`).
    pub tools: Option<String>,
    /// Guest address that VMware Tools reports, as evidence.
    pub guest_address: Option<String>,
    /// Host name that VMware Tools reports, as evidence.
    pub guest_host: Option<String>,
}

impl VmObservation {
    /// Whether vCenter shows its configuration. vCenter shows none for a VM that is `inaccessible` or `invalid`, nor at the
    /// beginning of a creation. The owner of such a VM is unknown.
    #[must_use]
    pub fn shows_config(&self) -> bool {
        self.bios_uuid.is_some()
    }

    /// The key of the disk that it boots: the first one in its boot order. Keys say nothing about disks at several
    /// controllers. So the lowest key counts only where the order names none.
    #[must_use]
    pub fn system_disk(&self) -> Option<i32> {
        let disk = |device: &BootDevice| match device {
            BootDevice::Disk(key) if self.disk_keys.contains(key) => Some(*key),
            _ => None,
        };
        let first = self.boot_order.iter().find_map(disk);
        first.or_else(|| self.disk_keys.iter().min().copied())
    }

    /// Keys of its disks in the order in which it is to boot them: the system disk first.
    #[must_use]
    pub fn boot_disks(&self) -> Vec<i32> {
        let mut keys = self.disk_keys.clone();
        let system = self.system_disk();
        keys.sort_by_key(|key| Some(*key) != system);
        keys
    }

    /// Number of the VM's present life.
    #[must_use]
    pub fn life(&self) -> u32 {
        self.generation.unwrap_or(1)
    }

    /// What the VM says of its present life: whether its guest may serve a Machine. `None`: unknown.
    #[must_use]
    pub fn may_serve_now(&self) -> Option<&MayServe> {
        let mark = self.may_serve.as_ref();
        mark.filter(|mark| mark.life == self.life())
    }

    /// The VM was made ready for that life, and its host was offered to nobody since.
    #[must_use]
    pub fn is_fresh_in(&self, life: u32) -> bool {
        let unused = |mark: &MayServe| mark.machine.is_none();
        self.life() == life && self.may_serve_now().is_some_and(unused)
    }

    /// What became of its disks when its present life was prepared. `None`: unknown.
    #[must_use]
    pub fn disk_now(&self) -> Option<DiskMark> {
        self.disk.filter(|mark| mark.life == self.life())
    }
}

/// Reads and changes VMs. A method that returns a [`TaskRef`] only starts its task; [`super::Tasks::wait`] shows its end.
#[async_trait]
pub trait Machines: Send + Sync {
    /// All VMs with that BIOS uuid that the user can see, clones included. VMs whose configuration vCenter does not show
    /// are missing.
    async fn find_by_uuid(&self, uuid: BiosUuid) -> VcResult<Vec<VmObservation>>;

    /// The VM behind a reference; `None` from the typed fault `ManagedObjectNotFound` only.
    async fn observe(&self, vm: &MoRef) -> VcResult<Option<VmObservation>>;

    /// Starts the creation.
    async fn create_vm(&self, effect: &Effect, vm: &CreateVm) -> VcResult<TaskRef>;

    /// Begins the change. The inner future is its end.
    async fn configure<'a>(
        &'a self,
        permit: &Permit<VmAt>,
        change: &VmChange,
    ) -> VcResult<Ended<'a>>;

    /// Restarts the VM, hard.
    async fn reset(&self, permit: &Permit<VmAt>) -> VcResult<TaskRef>;

    /// Powers on.
    async fn power_on(&self, permit: &Permit<VmAt>) -> VcResult<TaskRef>;

    /// Powers off, hard.
    async fn power_off(&self, permit: &Permit<VmAt>) -> VcResult<TaskRef>;

    /// Destroys the VM and its files.
    async fn destroy(&self, permit: &Permit<VmAt>) -> VcResult<TaskRef>;

    /// Attaches tags (ids as in `spec.vsphere.vmTags`); already attached is success.
    async fn attach_tags(&self, effect: &Effect, vm: &MoRef, tag_ids: &[String]) -> VcResult<()>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{child, shown, with};

    /// A disk at a SATA controller has a higher key than a volume that was attached at a SCSI controller.
    #[test]
    fn the_system_disk_is_the_one_that_the_vm_boots() {
        let disk = BootDevice::Disk;
        for (keys, order, expected) in [
            (
                vec![2000, 16000],
                vec![disk(16000), BootDevice::Cdrom],
                Some(16000),
            ),
            (
                vec![2000, 16000],
                vec![BootDevice::Cdrom, disk(16000), disk(2000)],
                Some(16000),
            ),
            (vec![16000, 2000], vec![], Some(2000)),
            (vec![2000], vec![disk(2001)], Some(2000)),
            (vec![], vec![disk(2000)], None),
        ] {
            let vm = with(shown(&child("w-0"), PowerState::Off), |vm| {
                (vm.disk_keys, vm.boot_order) = (keys, order);
            });
            assert_eq!(vm.system_disk(), expected);
            assert_eq!(vm.boot_disks().first().copied(), expected);
        }
    }
}
