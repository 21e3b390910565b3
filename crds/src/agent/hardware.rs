//! The hardware that a VM was made with, and what differs from it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Hardware that a VM was made with, in the words of `spec.template` and `spec.vsphere` of its pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct VmTemplate {
    /// Number of virtual processors.
    #[serde(rename = "numCPUs", skip_serializing_if = "Option::is_none")]
    pub num_cpus: Option<i32>,
    /// Memory, in MiB.
    #[serde(rename = "memoryMiB", skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<i32>,
    /// Size of the disk, in GiB.
    #[serde(rename = "diskGiB", skip_serializing_if = "Option::is_none")]
    pub disk_gib: Option<i32>,
    /// Guest operating system identifier of vSphere.
    #[serde(rename = "guestID", skip_serializing_if = "Option::is_none")]
    pub guest_id: Option<String>,
    /// Firmware: `efi` or `bios`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware: Option<String>,
    /// Type of the disk's controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scsi_type: Option<String>,
    /// Type of the network card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_adapter_type: Option<String>,
    /// Whether the disk's blocks were zeroed when it was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_eagerly_scrub: Option<bool>,
}

/// One field in which a VM is not as it should be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct HardwareDifference {
    /// The field, as in the pool's spec: `numCPUs`.
    pub field: String,
    /// What it should be.
    pub want: String,
    /// What it is.
    pub have: String,
}
