//! Virtual devices, as far as a VM of this operator has them.

use serde::Serialize;
use serde_json::Value;

use super::Ref;

/// `VirtualDeviceConfigSpec` that adds, edits or removes a device.
#[derive(Clone, Debug, Serialize)]
#[serde(
    tag = "_typeName",
    rename = "VirtualDeviceConfigSpec",
    rename_all = "camelCase"
)]
pub(crate) struct DeviceChange {
    /// `add`, `edit` or `remove`
    pub(crate) operation: &'static str,
    /// `create` for a disk that gets a new file, `destroy` for one whose file goes with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) file_operation: Option<&'static str>,
    /// Device.
    pub(crate) device: Device,
}

impl DeviceChange {
    /// Adds a device.
    pub(crate) fn add(device: Device) -> Self {
        Self {
            operation: "add",
            file_operation: None,
            device,
        }
    }

    /// Changes the device with this key.
    pub(crate) fn edit(device: Device) -> Self {
        Self {
            operation: "edit",
            file_operation: None,
            device,
        }
    }

    /// Adds a disk with a new file.
    pub(crate) fn create(device: Device) -> Self {
        Self {
            operation: "add",
            file_operation: Some("create"),
            device,
        }
    }

    /// Removes a disk, and leaves its file. `disk` is the whole device as vCenter shows it.
    pub(crate) fn detach(disk: Value) -> Self {
        Self {
            operation: "remove",
            file_operation: None,
            device: Device::Shown(disk),
        }
    }

    /// Removes a disk with its file. `disk` is the whole device as vCenter shows it.
    pub(crate) fn destroy(disk: Value) -> Self {
        Self {
            operation: "remove",
            file_operation: Some("destroy"),
            device: Device::Shown(disk),
        }
    }
}

/// A SCSI controller.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ScsiController {
    /// Temporary (negative) key.
    pub(crate) key: i32,
    /// First bus.
    pub(crate) bus_number: i32,
    /// `noSharing`
    pub(crate) shared_bus: &'static str,
}

/// Any other controller.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Controller {
    /// Temporary (negative) key.
    pub(crate) key: i32,
    /// First bus.
    pub(crate) bus_number: i32,
}

/// A network adapter.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Nic {
    /// Temporary (negative) key.
    pub(crate) key: i32,
    /// Where its MAC address comes from.
    pub(crate) address_type: &'static str,
    /// Connection.
    pub(crate) connectable: Connectable,
    /// Network.
    pub(crate) backing: NicBacking,
}

/// A disk.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Disk {
    /// Temporary (negative) key.
    pub(crate) key: i32,
    /// Key of its controller.
    pub(crate) controller_key: i32,
    /// Slot; required, never 7 on SCSI.
    pub(crate) unit_number: i32,
    /// Size in KiB.
    #[serde(rename = "capacityInKB")]
    pub(crate) capacity_in_kb: u64,
    /// File.
    pub(crate) backing: DiskBacking,
}

/// A CD-ROM drive.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CdromDrive {
    /// Temporary (negative) key.
    pub(crate) key: i32,
    /// Key of its controller.
    pub(crate) controller_key: i32,
    /// Slot.
    pub(crate) unit_number: i32,
    /// Connection.
    pub(crate) connectable: Connectable,
    /// Medium.
    pub(crate) backing: CdromBacking,
}

/// A device; the variant is its wire type.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "_typeName")]
pub(crate) enum Device {
    /// Paravirtual SCSI.
    ParaVirtualSCSIController(ScsiController),
    /// LSI Logic parallel.
    VirtualLsiLogicController(ScsiController),
    /// LSI Logic SAS.
    VirtualLsiLogicSASController(ScsiController),
    /// BusLogic.
    VirtualBusLogicController(ScsiController),
    /// NVMe.
    VirtualNVMEController(Controller),
    /// SATA.
    VirtualAHCIController(Controller),
    /// Disk.
    VirtualDisk(Disk),
    /// CD-ROM.
    VirtualCdrom(CdromDrive),
    /// vmxnet3.
    VirtualVmxnet3(Nic),
    /// vmxnet2.
    VirtualVmxnet2(Nic),
    /// e1000.
    VirtualE1000(Nic),
    /// e1000e.
    VirtualE1000e(Nic),
    /// PCnet32.
    VirtualPCNet32(Nic),
    /// Any device, as vCenter shows it. Its fields are in order, so `_typeName` is the first.
    #[serde(untagged)]
    Shown(Value),
}

/// `VirtualDeviceConnectInfo`
#[derive(Clone, Debug, Serialize)]
#[serde(
    tag = "_typeName",
    rename = "VirtualDeviceConnectInfo",
    rename_all = "camelCase"
)]
pub(crate) struct Connectable {
    /// At power-on.
    pub(crate) start_connected: bool,
    /// The guest may (dis)connect it.
    pub(crate) allow_guest_control: bool,
    /// Now.
    pub(crate) connected: bool,
}

impl Connectable {
    /// Connected from the start.
    pub(crate) const PLUGGED: Self = Self {
        start_connected: true,
        allow_guest_control: true,
        connected: true,
    };

    /// Connected neither now nor at power-on.
    pub(crate) const UNPLUGGED: Self = Self {
        start_connected: false,
        allow_guest_control: true,
        connected: false,
    };
}

/// File of a disk.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "_typeName")]
pub(crate) enum DiskBacking {
    /// A flat file beside the VM's configuration (`fileName` empty).
    #[serde(rename_all = "camelCase")]
    VirtualDiskFlatVer2BackingInfo {
        /// Empty: vCenter names it.
        file_name: String,
        /// `persistent`
        disk_mode: &'static str,
        /// Grow on demand.
        thin_provisioned: bool,
        /// Zero all blocks at creation.
        #[serde(skip_serializing_if = "Option::is_none")]
        eagerly_scrub: Option<bool>,
    },
}

/// Medium of a CD-ROM drive.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "_typeName")]
pub(crate) enum CdromBacking {
    /// An ISO file.
    #[serde(rename_all = "camelCase")]
    VirtualCdromIsoBackingInfo {
        /// `[datastore] path`
        file_name: String,
    },
    /// The drive of a client that is not there: nothing.
    #[serde(rename_all = "camelCase")]
    VirtualCdromRemotePassthroughBackingInfo {
        /// Empty.
        device_name: String,
        /// Whether a client has it for itself.
        exclusive: bool,
        /// Whether any drive of a client will do.
        use_auto_detect: bool,
    },
}

/// Network of an adapter. The vendor's names share a prefix.
#[allow(clippy::enum_variant_names)]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "_typeName")]
pub(crate) enum NicBacking {
    /// Port group of a standard switch.
    #[serde(rename_all = "camelCase")]
    VirtualEthernetCardNetworkBackingInfo {
        /// Its name.
        device_name: String,
        /// Its reference.
        network: Ref,
    },
    /// Port group of a distributed switch.
    VirtualEthernetCardDistributedVirtualPortBackingInfo {
        /// Port.
        port: SwitchPort,
    },
    /// Network of a third party (NSX).
    #[serde(rename_all = "camelCase")]
    VirtualEthernetCardOpaqueNetworkBackingInfo {
        /// Its id.
        opaque_network_id: String,
        /// Its type.
        opaque_network_type: String,
    },
}

/// `DistributedVirtualSwitchPortConnection`
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(
    tag = "_typeName",
    rename = "DistributedVirtualSwitchPortConnection",
    rename_all = "camelCase"
)]
pub(crate) struct SwitchPort {
    /// uuid of the switch.
    pub(crate) switch_uuid: String,
    /// Key of the port group.
    pub(crate) portgroup_key: String,
}
