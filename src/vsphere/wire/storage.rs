//! Storage DRS: which datastore of a cluster?

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Ref, device::DiskBacking, vm::VirtualMachineConfigSpec};

/// `StorageResourceManager.RecommendDatastores`
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::vsphere) struct RecommendDatastores {
    /// Question.
    pub(in crate::vsphere) storage_spec: StoragePlacementSpec,
}

/// Question to Storage DRS.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "_typeName", rename_all = "camelCase")]
pub(in crate::vsphere) struct StoragePlacementSpec {
    /// `create`
    #[serde(rename = "type")]
    pub(in crate::vsphere) kind: &'static str,
    /// VM folder.
    pub(in crate::vsphere) folder: Ref,
    /// Resource pool.
    pub(in crate::vsphere) resource_pool: Ref,
    /// The VM without any datastore.
    pub(in crate::vsphere) config_spec: VirtualMachineConfigSpec,
    /// Datastore cluster.
    pub(in crate::vsphere) pod_selection_spec: StorageDrsPodSelectionSpec,
}

/// A datastore cluster and the VM to place there.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "_typeName", rename_all = "camelCase")]
pub(in crate::vsphere) struct StorageDrsPodSelectionSpec {
    /// The VM to place.
    pub(in crate::vsphere) initial_vm_config: Vec<VmPodConfigForPlacement>,
    /// Datastore cluster.
    pub(in crate::vsphere) storage_pod: Ref,
}

/// Disks to place on a datastore cluster.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "_typeName", rename_all = "camelCase")]
pub(in crate::vsphere) struct VmPodConfigForPlacement {
    /// Datastore cluster.
    pub(in crate::vsphere) storage_pod: Ref,
    /// One per disk.
    pub(in crate::vsphere) disk: Vec<PodDiskLocator>,
}

/// A disk of the VM in question.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "_typeName", rename_all = "camelCase")]
pub(in crate::vsphere) struct PodDiskLocator {
    /// Its temporary key.
    pub(in crate::vsphere) disk_id: i32,
    /// Its backing.
    pub(in crate::vsphere) disk_backing_info: DiskBacking,
}

/// The answer of Storage DRS; without recommendations if no datastore fits.
#[derive(Clone, Debug, Default, Deserialize)]
pub(in crate::vsphere) struct StoragePlacementResult {
    /// In any order: see the rating.
    #[serde(default)]
    pub(in crate::vsphere) recommendations: Vec<Recommendation>,
}

/// One recommendation.
#[derive(Clone, Debug, Deserialize)]
pub(in crate::vsphere) struct Recommendation {
    /// From 1 (worst) to 5 (best).
    #[serde(default)]
    pub(in crate::vsphere) rating: i32,
    /// Different types of actions. Placements carry `destination`.
    #[serde(default)]
    pub(in crate::vsphere) action: Vec<Value>,
}
