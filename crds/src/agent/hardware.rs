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
    /// Network cards in the order of their keys, as vCenter showed them when the VM first ran. Absent where an older release
    /// made the VM: its networks are compared with nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default, extend("maxItems" = MAX_CARDS))]
    pub network_cards: Vec<NetworkCard>,
}

/// vSphere gives a VM no more network cards.
const MAX_CARDS: usize = 10;

/// What a network card was connected to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct NetworkCard {
    /// Name of the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Id of the network: `network-7`, `dvportgroup-31`, or the id that NSX gave it. Absent where vCenter showed none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_ref: Option<String>,
}

/// One field in which a VM is not as it should be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct HardwareDifference {
    /// The field, as in the pool's spec: `numCPUs`. `networkCards` is the number of network cards, and `networkConnection`
    /// whether a card is connected.
    pub field: String,
    /// What it should be.
    pub want: String,
    /// What it is.
    pub have: String,
}
