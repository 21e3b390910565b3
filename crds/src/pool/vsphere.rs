//! Placement and hardware of a VM.

use super::CredentialsSecretRef;
use crate::schema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Default of `spec.vsphere.datacenter`.
pub const DEFAULT_DATACENTER: &str = "dc1";
/// Default of `spec.vsphere.guestID`.
pub const DEFAULT_GUEST_ID: &str = "rhel9_64Guest";
/// Default of `spec.vsphere.scsiType`.
pub const DEFAULT_SCSI_TYPE: &str = "pvscsi";
/// Default of `spec.vsphere.networkAdapterType`.
pub const DEFAULT_NETWORK_ADAPTER_TYPE: &str = "vmxnet3";

/// Where VMs stand in vCenter and what virtual hardware they get.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct VsphereSpec {
    /// Secret with the address of vCenter and the user to log in with.
    pub credentials_secret_ref: CredentialsSecretRef,
    /// Name of the datacenter.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256), extend("default" = DEFAULT_DATACENTER))]
    pub datacenter: Option<String>,
    /// Name of the datastore cluster for disks. A name that no datastore cluster has is looked up
    /// among datastores.
    #[schemars(length(min = 1, max = 256))]
    pub datastore_cluster: String,
    /// Name of the datastore that holds the discovery ISO. It has to be mounted on the hosts that
    /// run the VMs.
    #[schemars(length(min = 1, max = 256))]
    pub iso_datastore: String,
    /// Path of the resource pool, such as `cluster/Resources`.
    #[schemars(length(min = 1, max = 512))]
    pub resource_pool: String,
    /// Path of the VM folder; created when missing. Empty: the name of the HostedCluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub folder: Option<String>,
    /// Name of the standard or distributed network of the first network card.
    #[schemars(length(min = 1, max = 256))]
    pub network: String,
    /// Ids of the tags that every VM gets, such as `urn:vmomi:InventoryServiceTag:…:GLOBAL`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxItems" = 64))]
    pub vm_tags: Option<Vec<String>>,
    /// Guest operating system identifier of vSphere.
    #[serde(rename = "guestID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = schema::VSPHERE_WORD), extend("default" = DEFAULT_GUEST_ID))]
    pub guest_id: Option<String>,
    /// Type of the disk's SCSI controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = schema::VSPHERE_WORD), extend("default" = DEFAULT_SCSI_TYPE))]
    pub scsi_type: Option<String>,
    /// Firmware that boots the VM.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = Firmware::Efi))]
    pub firmware: Option<Firmware>,
    /// Type of the network card.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = schema::VSPHERE_WORD), extend("default" = DEFAULT_NETWORK_ADAPTER_TYPE))]
    pub network_adapter_type: Option<String>,
    /// Whether the disk's blocks are zeroed when it is created, instead of at first use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_eagerly_scrub: Option<bool>,
}

/// Firmware of a VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Firmware {
    /// UEFI.
    #[default]
    Efi,
    /// Legacy BIOS.
    Bios,
}

impl Firmware {
    /// The word on this wire, which is also the one vSphere uses (`VirtualMachineConfigSpec.firmware`).
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Efi => "efi",
            Self::Bios => "bios",
        }
    }
}

impl VsphereSpec {
    /// Datacenter, `dc1` unless set.
    pub fn datacenter(&self) -> &str {
        self.datacenter.as_deref().unwrap_or(DEFAULT_DATACENTER)
    }

    /// Tag ids, none unless set.
    pub fn vm_tags(&self) -> &[String] {
        self.vm_tags.as_deref().unwrap_or_default()
    }

    /// Guest identifier, `rhel9_64Guest` unless set.
    pub fn guest_id(&self) -> &str {
        self.guest_id.as_deref().unwrap_or(DEFAULT_GUEST_ID)
    }

    /// SCSI controller type, `pvscsi` unless set.
    pub fn scsi_type(&self) -> &str {
        self.scsi_type.as_deref().unwrap_or(DEFAULT_SCSI_TYPE)
    }

    /// Firmware, `efi` unless set.
    pub fn firmware(&self) -> Firmware {
        self.firmware.unwrap_or_default()
    }

    /// Network card type, `vmxnet3` unless set.
    pub fn network_adapter_type(&self) -> &str {
        self.network_adapter_type
            .as_deref()
            .unwrap_or(DEFAULT_NETWORK_ADAPTER_TYPE)
    }

    /// Eager zeroing, off unless set.
    pub fn disk_eagerly_scrub(&self) -> bool {
        self.disk_eagerly_scrub.unwrap_or(false)
    }
}
