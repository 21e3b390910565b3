//! vCenter: its VMs, and how it carries out an order.

use agent_forge_actors::{
    domain::{
        hardware::ShownHardware, holds::VmMarks, identity::BiosUuid, marker::MayServe, names::MoRef,
    },
    ports::vcenter::{
        BootDevice, CreateVm, Fault as VcFault, PowerState, RenewedDisk, TaskRef, VcError,
        VcErrorKind, VcResult, VmAt, VmChange, VmObservation,
    },
};

use super::{Harm, World, form::FIRST, number};
use crate::{objects, shared::Shared};

/// An order to vCenter.
#[derive(Clone, Debug)]
pub enum Order {
    /// Create a VM.
    Create(Box<CreateVm>),
    /// Change its configuration.
    Configure(VmAt, Box<VmChange>),
    /// Switch it on.
    On(MoRef),
    /// Switch it off.
    Off(MoRef),
    /// Destroy it.
    Destroy(MoRef),
}

impl Order {
    /// The VM. `None` for one that is to be made.
    pub const fn vm(&self) -> Option<&MoRef> {
        match self {
            Self::Create(_) => None,
            Self::Configure(at, _) => Some(&at.moref),
            Self::On(vm) | Self::Off(vm) | Self::Destroy(vm) => Some(vm),
        }
    }

    /// The version of the VM that it was decided from.
    pub(super) const fn version(&mut self) -> Option<&mut String> {
        match self {
            Self::Configure(at, _) => at.change_version.as_mut(),
            _ => None,
        }
    }
}

/// Changes the VM as vCenter does. There are no drives and no notes here.
fn configure(vm: &mut VmObservation, change: &VmChange) {
    if let Some(mark) = &change.mark {
        vm.marker = mark.read().cloned();
    }
    if change.may_serve.is_some() {
        vm.may_serve.clone_from(&change.may_serve);
    }
    if let Some(keys) = &change.boot_order {
        let disks = keys.iter().map(|k| BootDevice::Disk(*k));
        vm.boot_order = disks.chain([BootDevice::Cdrom]).collect();
    }
    let Some(life) = &change.life else {
        return;
    };
    vm.generation = Some(life.generation);
    vm.may_serve = Some(MayServe::no(life.generation));
    vm.disk = Some(life.disk_mark());
    if life.disk == RenewedDisk::Kept {
        vm.boot_order.rotate_right(1);
    } else {
        // A new disk has another key.
        vm.disk_keys = vm.disk_keys.iter().map(|key| key + 1).collect();
    }
}

/// A request whose sender has given up, but that may still arrive.
#[derive(Clone, Debug)]
pub struct Late {
    /// The order in it.
    pub order: Order,
    /// Name of the VsphereAgent that sent it.
    pub by: String,
    /// How often the operator has since looked for its VM without success.
    pub looks: u8,
}

/// That many looks, two seconds apart, take longer than any request (`PROOF_PAUSE` and `Timing::call_bound` in the
/// product). By then the request has arrived, or it never does.
pub const LATEST: u8 = 14;

/// A failed call to vCenter.
pub fn vc_error(kind: VcErrorKind) -> VcError {
    VcError {
        kind,
        operation: "call",
        subject: "it".to_owned(),
        message: "as told".to_owned(),
        concealed: false,
    }
}

fn fault(fault: VcFault) -> VcError {
    vc_error(VcErrorKind::Fault(fault))
}

impl World {
    fn change_vm(
        &mut self,
        moref: &MoRef,
        (takes_away, by): (bool, &str),
        change: impl FnOnce(&mut VmObservation) -> Result<(), VcFault>,
    ) -> VcResult<TaskRef> {
        let Some(at) = self.vms.iter().position(|v| v.moref == *moref) else {
            return Err(fault(VcFault::ManagedObjectNotFound(Some(moref.clone()))));
        };
        let mut vm = self.vms[at].as_ref_clone();
        change(&mut vm).map_err(fault)?;
        match &self.vms[at].marker {
            None => self.harmed(Harm::ForeignTouched),
            Some(marker) if takes_away && marker.name != by => self.harmed(Harm::OthersTouched),
            Some(_) => {}
        }
        let serves = self
            .agent_on(&self.vms[at])
            .is_some_and(|a| a.is_claimed_or_bound());
        if takes_away && serves {
            self.harmed(Harm::ServingDestroyed);
        }
        self.vms[at] = Shared::new(vm);
        Ok(TaskRef("done".to_owned()))
    }

    /// vCenter carries an order of the VsphereAgent `by` out.
    ///
    /// # Errors
    /// The fault that vCenter answers with.
    #[allow(clippy::result_large_err, reason = "the port's own error type")]
    pub fn obey(&mut self, order: &Order, by: &str) -> VcResult<TaskRef> {
        let power = |vm: &VmObservation, want: PowerState| {
            if vm.power == want {
                let existing = vm.power.as_str().to_owned();
                return Err(VcFault::InvalidPowerState { existing });
            }
            Ok(())
        };
        match order {
            Order::Create(spec) => self.create(spec),
            Order::Configure(at, change) => {
                let lenient = self.lenient;
                self.change_vm(&at.moref, (change.life.is_some(), by), |vm| {
                    if change.life.is_some() {
                        power(vm, PowerState::On)?;
                    }
                    is_as_seen(vm, at.change_version.as_ref(), lenient)?;
                    configure(vm, change);
                    change_version(vm);
                    Ok(())
                })
            }
            Order::On(vm) => self.change_vm(vm, (false, by), |vm| {
                power(vm, PowerState::On)?;
                vm.power = PowerState::On;
                Ok(())
            }),
            Order::Off(vm) => self.change_vm(vm, (true, by), |vm| {
                power(vm, PowerState::Off)?;
                vm.power = PowerState::Off;
                Ok(())
            }),
            Order::Destroy(vm) => {
                let done = self.change_vm(vm, (true, by), |vm| power(vm, PowerState::On))?;
                self.vms.retain(|v| v.moref != *vm);
                Ok(done)
            }
        }
    }

    #[allow(clippy::result_large_err, reason = "the port's own error type")]
    fn create(&mut self, spec: &CreateVm) -> VcResult<TaskRef> {
        let mut others = self.vms.iter().filter(|_| !self.lenient);
        if let Some(holder) = others.find(|v| v.name == spec.name) {
            return Err(fault(VcFault::DuplicateName {
                name: spec.name.clone(),
                holder: Some(holder.moref.clone()),
            }));
        }
        let path = spec.vm_path.to_string();
        if !self.lenient && self.vms.iter().any(|v| v.vm_path == path) {
            return Err(fault(VcFault::AlreadyExists(path)));
        }
        let n = self.count_born(&spec.name, |(_, vms)| vms);
        let id = format!("vm-{}-{n}", spec.name);
        self.vms.push(Shared::new(VmObservation {
            bios_uuid: Some(spec.uuid),
            folder: Some(spec.place.folder.clone()),
            marker: Some(spec.marker.clone()),
            may_serve: Some(spec.may_serve.clone()),
            change_version: self.lives.then(|| FIRST.to_owned()),
            annotation: spec.annotation.clone(),
            macs: objects::mac(&spec.name, n).into_iter().collect(),
            vm_path: path,
            ..bare_vm(&id, &spec.name)
        }));
        self.vms.sort_by(|a, b| a.moref.cmp(&b.moref));
        Ok(TaskRef(id))
    }

    /// Counts one more VsphereAgent or VM of that name. Returns how many there were in all.
    pub fn count_born(&mut self, name: &str, which: impl FnOnce(&mut (u8, u8)) -> &mut u8) -> u8 {
        let mut born = self.born.get(name).copied().unwrap_or_default();
        let count = which(&mut born);
        *count += 1;
        let count = *count;
        self.born.insert(name.to_owned(), born);
        count
    }

    /// Looks for VMs with that uuid.
    pub fn look(&mut self, uuid: BiosUuid) -> Vec<VmObservation> {
        let has_it = |v: &&Shared<VmObservation>| v.bios_uuid == Some(uuid);
        let found = self.vms.iter().filter(has_it);
        let found: Vec<_> = found.map(Shared::as_ref_clone).collect();
        let awaited = |l: &Late| matches!(&l.order, Order::Create(spec) if spec.uuid == uuid);
        if found.is_empty() && self.late.as_ref().is_some_and(|l| awaited(l)) {
            let over = self.late.as_mut().is_some_and(|l| {
                l.change(|l| {
                    l.looks += 1;
                    l.looks >= LATEST
                })
            });
            if over {
                self.late = None;
            }
        }
        found
    }
}

/// Counts a change of the VM's configuration.
fn change_version(vm: &mut VmObservation) {
    if let Some(version) = &mut vm.change_version {
        *version = (number(Some(version)) + 1).to_string();
    }
}

/// vCenter refuses a request that was decided from another version of the VM.
fn is_as_seen(vm: &VmObservation, seen: Option<&String>, lenient: bool) -> Result<(), VcFault> {
    if lenient || seen.is_none() || vm.change_version.as_ref() == seen {
        return Ok(());
    }
    Err(VcFault::ConcurrentAccess)
}

/// A foreign VM.
pub fn foreign_vm(name: &str) -> VmObservation {
    VmObservation {
        bios_uuid: Some(BiosUuid::derive("elsewhere", "foreign", 1)),
        instance_uuid: Some("instance-foreign".to_owned()),
        folder: Some(MoRef::new("Folder", "group-v1")),
        power: PowerState::On,
        macs: objects::mac("z", 99).into_iter().collect(),
        vm_path: format!("[ds1] {name}/{name}.vmx"),
        ..bare_vm("vm-0-foreign", name)
    }
}

/// A VM with one disk that is off and that nobody has marked.
fn bare_vm(id: &str, name: &str) -> VmObservation {
    VmObservation {
        moref: MoRef::new("VirtualMachine", id),
        name: name.to_owned(),
        bios_uuid: None,
        instance_uuid: Some(format!("instance-{id}")),
        folder: None,
        marker: None,
        may_serve: None,
        generation: None,
        disk: None,
        change_version: None,
        marks: VmMarks::default(),
        adopt: None,
        annotation: String::new(),
        power: PowerState::Off,
        connection_state: "connected".to_owned(),
        macs: Vec::new(),
        disk_keys: vec![2000],
        cdroms: Vec::new(),
        boot_order: Vec::new(),
        vm_path: String::new(),
        tools: None,
        guest_address: None,
        hardware: ShownHardware::default(),
        guest_host: None,
    }
}
