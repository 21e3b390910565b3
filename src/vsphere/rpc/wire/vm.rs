//! Virtual machines: creation and reconfiguration.

use serde::Serialize;

use super::{OptionValue, Ref, device::DeviceChange};

/// `Folder.CreateVM_Task`
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CreateVm {
    /// What.
    pub(crate) config: VirtualMachineConfigSpec,
    /// Where.
    pub(crate) pool: Ref,
    /// On this host; without it DRS or the pool's only host decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) host: Option<Ref>,
}

/// `VirtualMachine.ReconfigVM_Task`
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ReconfigVm {
    /// What changes.
    pub(crate) spec: VirtualMachineConfigSpec,
}

/// `VirtualMachine.AnswerVM`
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AnswerVm {
    /// Id of the question.
    pub(crate) question_id: String,
    /// Key of the choice.
    pub(crate) answer_choice: String,
}

/// `VirtualMachineConfigSpec`: unset fields stay as they are.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(tag = "_typeName", rename_all = "camelCase")]
pub(crate) struct VirtualMachineConfigSpec {
    /// `config.changeVersion` that the VM must still have. Otherwise vCenter refuses with `ConcurrentAccess`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) change_version: Option<String>,
    /// Inventory name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// BIOS uuid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) uuid: Option<String>,
    /// Guest OS identifier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) guest_id: Option<String>,
    /// Note for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) annotation: Option<String>,
    /// Files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) files: Option<VirtualMachineFileInfo>,
    /// Virtual CPUs.
    #[serde(rename = "numCPUs", skip_serializing_if = "Option::is_none")]
    pub(crate) num_cpus: Option<u32>,
    /// Memory in MiB.
    #[serde(rename = "memoryMB", skip_serializing_if = "Option::is_none")]
    pub(crate) memory_mb: Option<u64>,
    /// Devices.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) device_change: Vec<DeviceChange>,
    /// Free-form settings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) extra_config: Vec<OptionValue>,
    /// Boot order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) boot_options: Option<VirtualMachineBootOptions>,
    /// `efi` or `bios`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) firmware: Option<&'static str>,
}

/// Files of a VM.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "_typeName", rename_all = "camelCase")]
pub(crate) struct VirtualMachineFileInfo {
    /// `[datastore] directory/name.vmx`
    pub(crate) vm_path_name: String,
}

/// Boot settings.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "_typeName", rename_all = "camelCase")]
pub(crate) struct VirtualMachineBootOptions {
    /// In this order.
    pub(crate) boot_order: Vec<Bootable>,
}

/// A device to boot from.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "_typeName")]
pub(crate) enum Bootable {
    /// That disk.
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
