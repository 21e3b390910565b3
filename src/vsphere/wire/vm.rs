//! Virtual machines: creation and reconfiguration.

use serde::Serialize;

use super::{OptionValue, Ref, device::DeviceChange};

/// `Folder.CreateVM_Task`
#[derive(Clone, Debug, Serialize)]
pub(in crate::vsphere) struct CreateVm {
    /// The VM's configuration.
    pub(in crate::vsphere) config: VirtualMachineConfigSpec,
    /// The resource pool.
    pub(in crate::vsphere) pool: Ref,
    /// The host. Without it DRS decides, or it is the pool's only host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::vsphere) host: Option<Ref>,
}

/// `VirtualMachine.ReconfigVM_Task`
#[derive(Clone, Debug, Serialize)]
pub(in crate::vsphere) struct ReconfigVm {
    /// What changes.
    pub(in crate::vsphere) spec: VirtualMachineConfigSpec,
}

/// `VirtualMachine.AnswerVM`
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::vsphere) struct AnswerVm {
    /// Id of the question.
    pub(in crate::vsphere) question_id: String,
    /// Key of the choice.
    pub(in crate::vsphere) answer_choice: String,
}

/// `VirtualMachineConfigSpec`. Unset fields do not change.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(tag = "_typeName", rename_all = "camelCase")]
pub(in crate::vsphere) struct VirtualMachineConfigSpec {
    /// Inventory name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::vsphere) name: Option<String>,
    /// BIOS uuid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::vsphere) uuid: Option<String>,
    /// Guest OS identifier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::vsphere) guest_id: Option<String>,
    /// Note for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::vsphere) annotation: Option<String>,
    /// Files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::vsphere) files: Option<VirtualMachineFileInfo>,
    /// Virtual CPUs.
    #[serde(rename = "numCPUs", skip_serializing_if = "Option::is_none")]
    pub(in crate::vsphere) num_cpus: Option<u32>,
    /// Memory in MiB.
    #[serde(rename = "memoryMB", skip_serializing_if = "Option::is_none")]
    pub(in crate::vsphere) memory_mb: Option<u64>,
    /// Devices.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::vsphere) device_change: Vec<DeviceChange>,
    /// Free-form settings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::vsphere) extra_config: Vec<OptionValue>,
    /// Boot order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::vsphere) boot_options: Option<VirtualMachineBootOptions>,
    /// `efi` or `bios`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::vsphere) firmware: Option<&'static str>,
}

/// Files of a VM.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "_typeName", rename_all = "camelCase")]
pub(in crate::vsphere) struct VirtualMachineFileInfo {
    /// `[datastore] directory/name.vmx`
    pub(in crate::vsphere) vm_path_name: String,
}

/// Boot settings.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "_typeName", rename_all = "camelCase")]
pub(in crate::vsphere) struct VirtualMachineBootOptions {
    /// The order of the devices.
    pub(in crate::vsphere) boot_order: Vec<Bootable>,
}

/// A device to boot from.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "_typeName")]
pub(in crate::vsphere) enum Bootable {
    /// This disk.
    #[serde(
        rename = "VirtualMachineBootOptionsBootableDiskDevice",
        rename_all = "camelCase"
    )]
    Disk {
        /// Real device key.
        device_key: i32,
    },
    /// Any CD-ROM drive.
    #[serde(rename = "VirtualMachineBootOptionsBootableCdromDevice")]
    Cdrom {},
}
