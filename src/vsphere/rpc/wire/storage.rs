//! Storage DRS: which datastore of a cluster?

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Ref, device::DiskBacking, vm::VirtualMachineConfigSpec};

/// `StorageResourceManager.RecommendDatastores`
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RecommendDatastores {
    /// Question.
    pub(crate) storage_spec: StoragePlacementSpec,
}

/// Question to Storage DRS.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "_typeName", rename_all = "camelCase")]
pub(crate) struct StoragePlacementSpec {
    /// `create`
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    /// VM folder.
    pub(crate) folder: Ref,
    /// Resource pool.
    pub(crate) resource_pool: Ref,
    /// The VM, without any datastore.
    pub(crate) config_spec: VirtualMachineConfigSpec,
    /// Datastore cluster.
    pub(crate) pod_selection_spec: StorageDrsPodSelectionSpec,
}

/// A datastore cluster and the disks for it.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "_typeName", rename_all = "camelCase")]
pub(crate) struct StorageDrsPodSelectionSpec {
    /// The disks for it.
    pub(crate) initial_vm_config: Vec<VmPodConfigForPlacement>,
    /// Datastore cluster.
    pub(crate) storage_pod: Ref,
}

/// Disks that go to a datastore cluster.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "_typeName", rename_all = "camelCase")]
pub(crate) struct VmPodConfigForPlacement {
    /// Datastore cluster.
    pub(crate) storage_pod: Ref,
    /// One per disk.
    pub(crate) disk: Vec<PodDiskLocator>,
}

/// A disk of the VM in question.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "_typeName", rename_all = "camelCase")]
pub(crate) struct PodDiskLocator {
    /// Its temporary key.
    pub(crate) disk_id: i32,
    /// Its backing.
    pub(crate) disk_backing_info: DiskBacking,
}

/// Answer of Storage DRS; without recommendations when no datastore fits.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct StoragePlacementResult {
    /// Best first or not: see the rating.
    #[serde(default)]
    pub(crate) recommendations: Vec<Recommendation>,
}

/// One way to do it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Recommendation {
    /// 1 (worst) to 5 (best).
    #[serde(default)]
    pub(crate) rating: i32,
    /// Polymorphic; placements carry `destination`.
    #[serde(default)]
    pub(crate) action: Vec<Value>,
}
