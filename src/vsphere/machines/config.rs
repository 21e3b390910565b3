//! Arguments of creations and changes of VMs.

use agent_forge_actors::{
    domain::{
        hardware::{DiskController, Firmware, Hardware, NetworkAdapter},
        marker::{MARKER_KEY, MAY_SERVE_KEY},
        network::MacSource,
    },
    ports::vcenter::{CreateVm, VmChange},
};
use serde::Serialize;

use crate::vsphere::rpc::wire::{
    self, OptionValue,
    device::{
        CdromBacking, CdromDrive, Connectable, Controller, Device, DeviceChange, Disk, DiskBacking,
        Nic, NicBacking, ScsiController,
    },
    vm::{Bootable, VirtualMachineBootOptions, VirtualMachineConfigSpec, VirtualMachineFileInfo},
};

// Temporary keys connect the devices of one request. vCenter replaces them with real ones.
const DISK_CONTROLLER_KEY: i32 = -101;
/// Temporary key of the system disk.
pub(crate) const DISK_KEY: i32 = -102;
/// Temporary key of the first network card; the others follow 100 apart.
const NIC_KEY: i32 = -103;
const CDROM_CONTROLLER_KEY: i32 = -104;
const CDROM_KEY: i32 = -105;

/// Arguments of `CreateVM_Task`. `networks`: one for each card of the plan.
pub(super) fn creation(vm: &CreateVm, networks: Vec<NicBacking>) -> impl Serialize + use<> {
    let hardware = &vm.hardware;
    let mut config = diskful(hardware);
    config.name = Some(vm.name.clone());
    config.uuid = Some(vm.uuid.to_string());
    config.annotation = Some(vm.annotation.clone());
    config.files = Some(VirtualMachineFileInfo {
        vm_path_name: vm.vm_path.to_string(),
    });
    config.extra_config = vec![
        // Without this the guest cannot find its disks by uuid.
        OptionValue::text("disk.EnableUUID", "TRUE"),
        OptionValue::text(MARKER_KEY, vm.marker.to_string()),
        OptionValue::text(MAY_SERVE_KEY, vm.may_serve.to_string()),
    ];
    let keys = (0..).map(|n| NIC_KEY - 100 * n);
    let cards = vm.nics.iter().zip(networks).zip(keys);
    config
        .device_change
        .extend(cards.map(|((card, network), key)| {
            DeviceChange::add(nic(key, hardware.network_adapter, card.mac, network))
        }));
    // The controller of a SATA disk also serves the CD-ROM.
    let (controller_key, unit_number) = if hardware.disk_controller == DiskController::Sata {
        (DISK_CONTROLLER_KEY, 1)
    } else {
        let controller = Controller {
            key: CDROM_CONTROLLER_KEY,
            bus_number: 0,
        };
        config
            .device_change
            .push(DeviceChange::add(Device::VirtualAHCIController(controller)));
        (CDROM_CONTROLLER_KEY, 0)
    };
    config
        .device_change
        .push(DeviceChange::add(Device::VirtualCdrom(CdromDrive {
            key: CDROM_KEY,
            controller_key,
            unit_number,
            connectable: Connectable::PLUGGED,
            backing: CdromBacking::VirtualCdromIsoBackingInfo {
                file_name: vm.iso.to_string(),
            },
        })));
    wire::vm::CreateVm {
        config,
        pool: (&vm.place.resource_pool).into(),
        host: vm.place.host.as_ref().map(|(_, host)| host.into()),
    }
}

/// Hardware with its disk and nothing else: the question to Storage DRS, and the basis of a creation.
pub(crate) fn diskful(hardware: &Hardware) -> VirtualMachineConfigSpec {
    let disk = Device::VirtualDisk(Disk {
        key: DISK_KEY,
        controller_key: DISK_CONTROLLER_KEY,
        unit_number: 0,
        capacity_in_kb: hardware.disk_gib.saturating_mul(1 << 20),
        backing: disk_backing(hardware.eagerly_scrub),
    });
    VirtualMachineConfigSpec {
        guest_id: Some(hardware.guest_id.clone()),
        num_cpus: Some(hardware.num_cpus),
        memory_mb: Some(hardware.memory_mib),
        firmware: Some(match hardware.firmware {
            Firmware::Efi => "efi",
            Firmware::Bios => "bios",
        }),
        device_change: vec![
            DeviceChange::add(disk_controller(hardware.disk_controller)),
            DeviceChange::create(disk),
        ],
        ..VirtualMachineConfigSpec::default()
    }
}

/// File of a new system disk.
pub(crate) fn disk_backing(eagerly_scrub: bool) -> DiskBacking {
    DiskBacking::VirtualDiskFlatVer2BackingInfo {
        file_name: String::new(),
        disk_mode: "persistent",
        thin_provisioned: !eagerly_scrub,
        eagerly_scrub: eagerly_scrub.then_some(true),
    }
}

fn disk_controller(kind: DiskController) -> Device {
    let scsi = ScsiController {
        key: DISK_CONTROLLER_KEY,
        bus_number: 0,
        shared_bus: "noSharing",
    };
    let plain = Controller {
        key: DISK_CONTROLLER_KEY,
        bus_number: 0,
    };
    match kind {
        DiskController::ParaVirtual => Device::ParaVirtualSCSIController(scsi),
        DiskController::LsiLogic => Device::VirtualLsiLogicController(scsi),
        DiskController::LsiLogicSas => Device::VirtualLsiLogicSASController(scsi),
        DiskController::BusLogic => Device::VirtualBusLogicController(scsi),
        DiskController::Nvme => Device::VirtualNVMEController(plain),
        DiskController::Sata => Device::VirtualAHCIController(plain),
    }
}

fn nic(key: i32, adapter: NetworkAdapter, mac: MacSource, backing: NicBacking) -> Device {
    let nic = Nic {
        key,
        address_type: match mac {
            MacSource::Generated => "Generated",
        },
        connectable: Connectable::PLUGGED,
        backing,
    };
    match adapter {
        NetworkAdapter::Vmxnet3 => Device::VirtualVmxnet3(nic),
        NetworkAdapter::Vmxnet2 => Device::VirtualVmxnet2(nic),
        NetworkAdapter::E1000 => Device::VirtualE1000(nic),
        NetworkAdapter::E1000e => Device::VirtualE1000e(nic),
        NetworkAdapter::PcNet32 => Device::VirtualPCNet32(nic),
    }
}

/// Everything of the change that needs no look at the VM's devices.
pub(super) fn changed(change: &VmChange) -> VirtualMachineConfigSpec {
    let mark = change.mark.as_ref();
    let mark = mark.map(|mark| OptionValue::text(MARKER_KEY, mark.to_string()));
    let may_serve = change.may_serve.as_ref();
    let may_serve = may_serve.map(|m| OptionValue::text(MAY_SERVE_KEY, m.to_string()));
    let boot_options = change.boot_order.as_ref().map(|keys| {
        let disks = keys.iter();
        let disks = disks.map(|key| Bootable::Disk { device_key: *key });
        VirtualMachineBootOptions {
            boot_order: disks.chain([Bootable::Cdrom {}]).collect(),
        }
    });
    VirtualMachineConfigSpec {
        annotation: change.annotation.clone(),
        extra_config: mark.into_iter().chain(may_serve).collect(),
        boot_options,
        ..VirtualMachineConfigSpec::default()
    }
}
