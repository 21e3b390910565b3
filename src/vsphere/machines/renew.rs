//! Makes a switched-off VM ready for another life, in one reconfiguration.
//!
//! vCenter carries out the whole request or nothing of it. A removal and an edit need the whole device with its real keys, so
//! the devices are read first. A device that changes after that read makes the request fail by its `changeVersion`.

use agent_forge_actors::{
    domain::{
        marker::{DISK_KEY, MAY_SERVE_KEY, MayServe},
        names::{DatastorePath, MoRef},
    },
    ports::vcenter::{Fault, GENERATION_KEY, NewLife, RenewedDisk, VcError, VcErrorKind, VcResult},
};
use serde_json::Value;

use super::{
    config::{self, disk_backing},
    observation::{key, number_of, type_name},
};
use crate::vsphere::rpc::{
    client::Client,
    properties::Question,
    wire::{
        OptionValue,
        device::{CdromBacking, CdromDrive, Connectable, Device, DeviceChange, Disk},
        vm::{Bootable, VirtualMachineBootOptions, VirtualMachineConfigSpec},
    },
};

const DEVICES: &str = "config.hardware.device";
const POWER: &str = "runtime.powerState";
const OFF: &str = "poweredOff";
const METHOD: &str = "ReconfigVM_Task";

impl Client {
    /// Adds to the reconfiguration what prepares that life, for the devices that the VM has now.
    ///
    /// # Errors
    /// The VM is not switched off, vCenter does not show the devices, or one that is needed is missing. Then nothing was
    /// changed.
    pub(super) async fn prepare(
        &self,
        vm: &MoRef,
        life: &NewLife,
        spec: &mut VirtualMachineConfigSpec,
    ) -> VcResult<()> {
        let question = Question::about(vm.to_string())
            .read("VirtualMachine", &[DEVICES, POWER])
            .from(vm, Vec::new());
        let refused = |fault: Fault, why: &str| {
            VcError::new(VcErrorKind::Fault(fault), METHOD, vm.to_string(), why)
        };
        let shown = self.retrieve(question).await?.pop();
        if let Some(shown) = &shown {
            shown.require_readable(&[DEVICES, POWER])?;
        }
        let Some(shown) = shown.filter(|shown| !shown.list(DEVICES).is_empty()) else {
            let message = "vCenter does not show the devices of this VM";
            // vCenter itself refuses to change such a VM with this fault.
            let fault = Fault::Other {
                type_name: "InvalidState".to_owned(),
                message: message.to_owned(),
            };
            return Err(refused(fault, message));
        };
        let existing = shown.text(POWER).unwrap_or_default().to_owned();
        if existing != OFF {
            // vCenter would take the disk from a running VM.
            let why = format!("the VM is {existing}, it must be {OFF}");
            return Err(refused(Fault::InvalidPowerState { existing }, &why));
        }
        let property = "spec.deviceChange".to_owned();
        add(spec, shown.list(DEVICES), life)
            .map_err(|missing| refused(Fault::InvalidArgument { property }, missing))
    }
}

/// Adds everything that changes. The error says which device is missing.
fn add(
    spec: &mut VirtualMachineConfigSpec,
    devices: &[Value],
    life: &NewLife,
) -> Result<(), &'static str> {
    let of = |kind: &str| -> Vec<&Value> {
        let mut all: Vec<&Value> = devices.iter().filter(|d| type_name(d) == kind).collect();
        all.sort_by_key(|d| key(d));
        all
    };
    let drive = of("VirtualCdrom");
    let drive = drive
        .first()
        .and_then(|drive| loaded(drive, &life.iso))
        .ok_or(
            "the VM has no CD-ROM drive for the discovery ISO: delete its VsphereAgent object",
        )?;
    let mut device_change = vec![DeviceChange::edit(drive)];
    let mut boot_options = None;
    let is_system = |disk: &Value| life.system_disk.is_some() && key(disk) == life.system_disk;
    let mut disks = of("VirtualDisk");
    disks.sort_by_key(|disk| !is_system(disk));
    match life.disk {
        RenewedDisk::Replaced { gib, eagerly_scrub } => {
            let (old, others): (Vec<_>, Vec<_>) = disks.into_iter().cloned().partition(is_system);
            let new = old.first().and_then(|d| empty_disk(d, gib, eagerly_scrub));
            let new = new.ok_or("the VM has no disk to replace: delete its VsphereAgent object")?;
            device_change.extend(old.into_iter().map(DeviceChange::destroy));
            device_change.extend(others.into_iter().map(DeviceChange::detach));
            device_change.push(DeviceChange::create(new));
        }
        RenewedDisk::Kept => {
            let disks = disks.iter().filter_map(|d| key(d));
            let disks = disks.map(|device_key| Bootable::Disk { device_key });
            let boot_order = std::iter::once(Bootable::Cdrom {}).chain(disks).collect();
            boot_options = Some(VirtualMachineBootOptions { boot_order });
        }
    }
    spec.device_change = device_change;
    spec.boot_options = boot_options;
    spec.extra_config.extend([
        OptionValue::text(GENERATION_KEY, life.generation.to_string()),
        OptionValue::text(MAY_SERVE_KEY, MayServe::no(life.generation).to_string()),
        OptionValue::text(DISK_KEY, life.disk_mark().to_string()),
    ]);
    Ok(())
}

/// This CD-ROM drive with that ISO, as in a new VM.
fn loaded(drive: &Value, iso: &DatastorePath) -> Option<Device> {
    Some(Device::VirtualCdrom(CdromDrive {
        key: key(drive)?,
        controller_key: number_of(drive, "controllerKey")?,
        unit_number: number_of(drive, "unitNumber")?,
        connectable: Connectable::PLUGGED,
        backing: CdromBacking::VirtualCdromIsoBackingInfo {
            file_name: iso.to_string(),
        },
    }))
}

/// A new disk in the place of this one.
fn empty_disk(old: &Value, gib: u64, eagerly_scrub: bool) -> Option<Device> {
    Some(Device::VirtualDisk(Disk {
        key: config::DISK_KEY,
        controller_key: number_of(old, "controllerKey")?,
        unit_number: number_of(old, "unitNumber")?,
        capacity_in_kb: gib.saturating_mul(1 << 20),
        backing: disk_backing(eagerly_scrub),
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn life(disk: RenewedDisk, system_disk: Option<i32>) -> NewLife {
        NewLife {
            system_disk,
            generation: 3,
            iso: DatastorePath::new("isos", "new.iso").expect("a path"),
            disk,
        }
    }

    const REPLACED: RenewedDisk = RenewedDisk::Replaced {
        gib: 2,
        eagerly_scrub: true,
    };

    fn cdrom(key: i32) -> Value {
        json!({"_typeName": "VirtualCdrom", "key": key, "controllerKey": 15000, "unitNumber": 1})
    }

    fn disk(key: i32, unit: i32) -> Value {
        json!({
            "_typeName": "VirtualDisk", "key": key, "controllerKey": 1000, "unitNumber": unit, "capacityInKB": 5,
            "backing": {"_typeName": "VirtualDiskFlatVer2BackingInfo", "fileName": "[ds] a/a.vmdk", "diskMode": "persistent"},
        })
    }

    fn spec(
        devices: &[Value],
        disk: RenewedDisk,
        system: Option<i32>,
    ) -> Result<VirtualMachineConfigSpec, &'static str> {
        let mut spec = VirtualMachineConfigSpec::default();
        add(&mut spec, devices, &life(disk, system)).map(|()| spec)
    }

    fn sent(devices: &[Value], disk: RenewedDisk) -> Value {
        let spec = spec(devices, disk, Some(2000)).expect("a spec");
        serde_json::to_value(spec).expect("serialises")
    }

    #[test]
    fn an_empty_disk_takes_the_place_of_the_named_one_and_others_keep_their_files() {
        let devices = [cdrom(16001), disk(2001, 4), cdrom(16000), disk(2000, 3)];
        let sent = sent(&devices, REPLACED);
        assert_eq!(
            sent["extraConfig"],
            json!([
                {"_typeName": "OptionValue", "key": "agent-forge.generation",
                    "value": {"_typeName": "string", "_value": "3"}},
                {"_typeName": "OptionValue", "key": "agent-forge.may-serve",
                    "value": {"_typeName": "string", "_value": "3/no"}},
                {"_typeName": "OptionValue", "key": "agent-forge.disk",
                    "value": {"_typeName": "string", "_value": "3/new"}},
            ])
        );
        let operations = sent["deviceChange"].as_array().expect("changes");
        let shown: Vec<_> = operations
            .iter()
            .map(|c| (&c["operation"], &c["fileOperation"], &c["device"]["key"]))
            .map(|(operation, file, key)| format!("{operation} {file} {key}"))
            .collect();
        assert_eq!(
            shown,
            [
                r#""edit" null 16000"#,
                r#""remove" "destroy" 2000"#,
                r#""remove" null 2001"#,
                r#""add" "create" -102"#,
            ]
        );
        assert_eq!(
            operations[0]["device"]["backing"]["fileName"],
            "[isos] new.iso"
        );
        assert_eq!(operations[0]["device"]["connectable"]["connected"], true);
        assert_eq!(
            operations[0]["device"]["connectable"]["startConnected"],
            true
        );
        assert_eq!(
            operations[1]["device"],
            disk(2000, 3),
            "as vCenter shows it"
        );
        let new = &operations[3]["device"];
        assert_eq!(new["controllerKey"], 1000);
        assert_eq!(new["unitNumber"], 3);
        assert_eq!(new["capacityInKB"], 2 << 20);
        assert_eq!(new["backing"]["fileName"], "");
        assert_eq!(new["backing"]["eagerlyScrub"], true);
        assert!(sent.get("bootOptions").is_none(), "{sent}");
    }

    #[test]
    fn disks_that_stay_are_behind_the_drive_in_the_boot_order() {
        // A volume was attached at a SCSI controller. The system disk is at a SATA controller, and has a higher key.
        let devices = [disk(2000, 0), cdrom(16000), disk(16010, 0)];
        let spec_of = spec(&devices, RenewedDisk::Kept, Some(16010)).expect("a spec");
        let sent = serde_json::to_value(spec_of).expect("serialises");
        assert_eq!(sent["deviceChange"].as_array().map(Vec::len), Some(1));
        let order = &sent["bootOptions"]["bootOrder"];
        assert_eq!(
            order,
            &json!([
                {"_typeName": "VirtualMachineBootOptionsBootableCdromDevice"},
                {"_typeName": "VirtualMachineBootOptionsBootableDiskDevice", "deviceKey": 16010},
                {"_typeName": "VirtualMachineBootOptionsBootableDiskDevice", "deviceKey": 2000},
            ])
        );
        let without = spec(&[cdrom(16000)], RenewedDisk::Kept, None);
        assert!(without.is_ok(), "a VM without a disk keeps none");
    }

    #[test]
    fn the_device_that_is_missing_is_named() {
        let missing =
            |devices: &[Value], system| spec(devices, REPLACED, system).expect_err("missing");
        assert!(missing(&[disk(2000, 0)], Some(2000)).contains("no CD-ROM drive"));
        let others = [cdrom(16000), disk(2001, 0)];
        for (devices, key) in [
            (&others[..1], None),
            (&others[..], None),
            (&others[..], Some(2000)),
        ] {
            let why = missing(devices, key);
            assert!(why.contains("no disk"), "{key:?}: {why}");
        }
    }
}
