//! What a vCenter holds and how it is organised: datacenters, folders, hosts, networks, and all VMs at a glance.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;

use super::{PowerState, VcResult};
use crate::{
    domain::{hardware::Hardware, marker::Marker, names::MoRef},
    ports::effect::Effect,
};

/// Where a VM should run, by the names in the pool's spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceRequest {
    /// `spec.vsphere.datacenter`.
    pub datacenter: String,
    /// Folder path below the datacenter's `vm` folder; created when missing.
    pub folder: String,
    /// `spec.vsphere.resourcePool`, `cluster/Resources` (relative to the datacenter's `host` folder), or an
    /// inventory path.
    pub resource_pool: String,
    /// `spec.vsphere.datastoreCluster`: a StoragePod, else a Datastore.
    pub datastore_cluster: String,
    /// `spec.vsphere.isoDatastore`: must be mounted where the VM runs.
    pub iso_datastore: String,
    /// `spec.vsphere.network`.
    pub network: String,
    /// Space that the VM will need on its datastore, in bytes (disk and swap file).
    pub bytes: u64,
    /// Bytes that creations in flight will still take, per datastore id. Placement subtracts them from the free space.
    pub reserved: BTreeMap<String, u64>,
    /// Hardware, for recommendations.
    pub hardware: Hardware,
}

/// Where a VM runs. The operator resolves it once per attempt, and records it before the first write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Datacenter.
    pub datacenter: MoRef,
    /// VM folder.
    pub folder: MoRef,
    /// Resource pool.
    pub resource_pool: MoRef,
    /// Chosen datastore: name and reference.
    pub datastore: (String, MoRef),
    /// Host that sees network and both datastores; only where the cluster has no DRS.
    pub host: Option<(String, MoRef)>,
    /// Network name as in the spec; resolved to a backing at create time.
    pub network: String,
}

/// All VMs of a vCenter that the user sees, with only the properties that show the owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// VMs with an ownership marker of any cluster; sorted by reference.
    pub marked: Vec<MarkedVm>,
    /// VMs of which vCenter shows no configuration; sorted by reference. A search by uuid misses them.
    pub bare: Vec<BareVm>,
}

/// A VM of which vCenter shows no configuration, and so neither uuid nor marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BareVm {
    /// Reference in this vCenter.
    pub moref: MoRef,
    /// Inventory name. vCenter may name such a VM by the path of its configuration file on the host.
    pub name: String,
    /// Configuration file, if the summary still has it.
    pub vm_path: Option<String>,
    /// `inaccessible`, `invalid`, ... as on the wire.
    pub connection_state: String,
}

/// How a VM folder looks to the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FolderSight {
    /// It shows its name.
    Visible,
    /// It may be there: the user cannot see it.
    Hidden,
    /// vCenter answers with the typed fault for a missing object, and the datacenter shows its name.
    Deleted,
}

/// A VM with an ownership marker, with only the properties that a scan of all VMs needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkedVm {
    /// Reference in this vCenter.
    pub moref: MoRef,
    /// Inventory name.
    pub name: String,
    /// Its owner.
    pub marker: Marker,
    /// Power state.
    pub power: PowerState,
    /// A boot order is set, as before the first power-on.
    pub has_boot_order: bool,
}

/// Looks up objects by their names, and lists VMs.
#[async_trait]
pub trait Inventory: Send + Sync {
    /// Resolves names to a place. Creates the folder when it is missing, as `effect`
    /// ([`crate::ports::effect::EffectKind::CreateFolder`]).
    async fn place(&self, effect: &Effect, request: &PlaceRequest) -> VcResult<Place>;

    /// All VMs of this vCenter that the user can see. The answer is never older than the call; calls at about the same time
    /// share one request.
    async fn survey(&self) -> VcResult<Arc<Survey>>;

    /// Whether the user sees that folder of the datacenter. An empty lookup means "absent" only for a visible folder.
    async fn folder_sight(&self, folder: &MoRef, datacenter: &MoRef) -> VcResult<FolderSight>;
}
