//! Virtual devices of a new VM.

use serde::Serialize;

use super::Ref;

/// `VirtualDeviceConfigSpec` that adds a device.
#[derive(Clone, Debug, Serialize)]
#[serde(
    tag = "_typeName",
    rename = "VirtualDeviceConfigSpec",
    rename_all = "camelCase"
)]
pub(in crate::vsphere) struct DeviceChange {
    /// `add`
    pub(in crate::vsphere) operation: &'static str,
    /// `create` for a disk that gets a new file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::vsphere) file_operation: Option<&'static str>,
    /// Device.
    pub(in crate::vsphere) device: Device,
}

impl DeviceChange {
    /// Adds a device.
    pub(in crate::vsphere) fn add(device: Device) -> Self {
        Self {
            operation: "add",
            file_operation: None,
            device,
        }
    }

    /// Changes the device with this key.
    pub(in crate::vsphere) fn edit(device: Device) -> Self {
        Self {
            operation: "edit",
            file_operation: None,
            device,
        }
    }

    /// Adds a disk with a new file.
    pub(in crate::vsphere) fn create(device: Device) -> Self {
        Self {
            operation: "add",
            file_operation: Some("create"),
            device,
        }
    }
}

/// A SCSI controller.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::vsphere) struct ScsiController {
    /// Temporary (negative) key.
    pub(in crate::vsphere) key: i32,
    /// First bus.
    pub(in crate::vsphere) bus_number: i32,
    /// `noSharing`
    pub(in crate::vsphere) shared_bus: &'static str,
}

/// Any other controller.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::vsphere) struct Controller {
    /// Temporary (negative) key.
    pub(in crate::vsphere) key: i32,
    /// First bus.
    pub(in crate::vsphere) bus_number: i32,
}

/// A network adapter.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::vsphere) struct Nic {
    /// Temporary (negative) key.
    pub(in crate::vsphere) key: i32,
    /// `Generated`: vCenter chooses a free address.
    pub(in crate::vsphere) address_type: &'static str,
    /// Connection.
    pub(in crate::vsphere) connectable: Connectable,
    /// Network.
    pub(in crate::vsphere) backing: NicBacking,
}

/// A disk.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::vsphere) struct Disk {
    /// Temporary (negative) key.
    pub(in crate::vsphere) key: i32,
    /// Key of its controller.
    pub(in crate::vsphere) controller_key: i32,
    /// Slot; required; never 7 on SCSI.
    pub(in crate::vsphere) unit_number: i32,
    /// Size in KiB.
    #[serde(rename = "capacityInKB")]
    pub(in crate::vsphere) capacity_in_kb: u64,
    /// File.
    pub(in crate::vsphere) backing: DiskBacking,
}

/// A CD-ROM drive.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::vsphere) struct CdromDrive {
    /// Temporary (negative) key.
    pub(in crate::vsphere) key: i32,
    /// Key of its controller.
    pub(in crate::vsphere) controller_key: i32,
    /// Slot.
    pub(in crate::vsphere) unit_number: i32,
    /// Connection.
    pub(in crate::vsphere) connectable: Connectable,
    /// Medium.
    pub(in crate::vsphere) backing: CdromBacking,
}

/// A device; the variant is its wire type.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "_typeName")]
pub(in crate::vsphere) enum Device {
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
}

/// `VirtualDeviceConnectInfo`
#[derive(Clone, Debug, Serialize)]
#[serde(
    tag = "_typeName",
    rename = "VirtualDeviceConnectInfo",
    rename_all = "camelCase"
)]
pub(in crate::vsphere) struct Connectable {
    /// Connect it at power-on.
    pub(in crate::vsphere) start_connected: bool,
    /// The guest may connect and disconnect it.
    pub(in crate::vsphere) allow_guest_control: bool,
    /// It is connected now.
    pub(in crate::vsphere) connected: bool,
}

impl Connectable {
    /// Connected from the start.
    pub(in crate::vsphere) const PLUGGED: Self = Self {
        start_connected: true,
        allow_guest_control: true,
        connected: true,
    };

    /// Neither connected now nor at power-on.
    pub(in crate::vsphere) const UNPLUGGED: Self = Self {
        start_connected: false,
        allow_guest_control: true,
        connected: false,
    };
}

/// File of a disk.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "_typeName")]
pub(in crate::vsphere) enum DiskBacking {
    /// A flat file beside the VM's configuration (`fileName` empty).
    #[serde(rename_all = "camelCase")]
    VirtualDiskFlatVer2BackingInfo {
        /// Empty: vCenter chooses the name.
        file_name: String,
        /// `persistent`
        disk_mode: &'static str,
        /// The file grows on demand.
        thin_provisioned: bool,
        /// Write zeros to all blocks at creation.
        #[serde(skip_serializing_if = "Option::is_none")]
        eagerly_scrub: Option<bool>,
    },
}

/// Medium of a CD-ROM drive.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "_typeName")]
pub(in crate::vsphere) enum CdromBacking {
    /// An ISO file.
    #[serde(rename_all = "camelCase")]
    VirtualCdromIsoBackingInfo {
        /// `[datastore] path`
        file_name: String,
    },
    /// The drive of a client that does not exist: an empty drive.
    #[serde(rename_all = "camelCase")]
    VirtualCdromRemotePassthroughBackingInfo {
        /// Empty.
        device_name: String,
        /// Whether a client uses the drive exclusively.
        exclusive: bool,
        /// Whether any drive of a client is accepted.
        use_auto_detect: bool,
    },
}

/// Network of an adapter. The vendor's names share a prefix.
#[allow(clippy::enum_variant_names)]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "_typeName")]
pub(in crate::vsphere) enum NicBacking {
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
pub(in crate::vsphere) struct SwitchPort {
    /// uuid of the switch.
    pub(in crate::vsphere) switch_uuid: String,
    /// Key of the port group.
    pub(in crate::vsphere) portgroup_key: String,
}
