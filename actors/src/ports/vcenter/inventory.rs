//! What a vCenter holds and how it is organised: datacenters, folders, hosts, networks, and all VMs at a glance.

use std::{collections::HashSet, sync::Arc};

use async_trait::async_trait;

use super::{error::VcResult, power::PowerState};
use crate::{
    domain::{hardware::Hardware, holds::VmMarks, marker::Marker, names::MoRef},
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
    /// Space that the VM needs on its datastore, in bytes (disk and swap file).
    pub bytes: u64,
    /// Hardware. Storage DRS bases its recommendations on it.
    pub hardware: Hardware,
}

/// The objects that the names of a [`PlaceRequest`] mean, with the facts that the choice of a place needs.
#[derive(Clone, Debug)]
pub struct PlaceCandidates {
    /// Datacenter.
    pub datacenter: MoRef,
    /// Resource pool with the hosts of its cluster.
    pub compute: Arc<ComputeTopology>,
    /// Network.
    pub network: MoRef,
    /// The `datastoreCluster` of the request: a StoragePod or a Datastore.
    pub store: MoRef,
    /// The datastores of `store`, whatever their state.
    pub datastores: Arc<Vec<Datastore>>,
    /// The ISO datastore; empty if vCenter does not show it.
    pub iso_datastores: Arc<Vec<Datastore>>,
}

/// Compute topology: the hosts where the VMs of a resource pool can run.
#[derive(Clone, Debug)]
pub struct ComputeTopology {
    /// Resource pool.
    pub resource_pool: MoRef,
    /// vCenter chooses the host: the cluster has DRS, or there is only one host.
    pub chooses_host: bool,
    /// All hosts of the compute resource, whatever their state.
    pub hosts: Vec<Host>,
}

/// A host.
#[derive(Clone, Debug)]
pub struct Host {
    /// Reference.
    pub moref: MoRef,
    /// Name.
    pub name: String,
    /// vCenter is connected to it.
    pub connected: bool,
    /// It is in maintenance mode, or enters it.
    pub in_maintenance: bool,
    /// Networks that it has.
    pub networks: HashSet<MoRef>,
}

/// A datastore.
#[derive(Clone, Debug)]
pub struct Datastore {
    /// Reference.
    pub moref: MoRef,
    /// Name.
    pub name: String,
    /// Free space in bytes.
    pub free: u64,
    /// vCenter can access it.
    pub accessible: bool,
    /// It is in maintenance mode, or enters it.
    pub in_maintenance: bool,
    /// Ids of the hosts that can write to it.
    pub hosts: HashSet<String>,
    /// Storage DRS is on for its datastore cluster. Only known when the request names the cluster.
    pub storage_drs: bool,
}

/// A datastore that Storage DRS recommends for a new VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recommendation {
    /// Datastore.
    pub datastore: MoRef,
    /// 1 (worst) to 5 (best).
    pub rating: i32,
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
    /// Host that reaches network and both datastores; only where the cluster has no DRS.
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
    /// What an administrator has marked it with.
    pub marks: VmMarks,
    /// Number of virtual CPUs, if vCenter shows it.
    pub num_cpus: Option<u32>,
    /// Memory in MiB, if vCenter shows it.
    pub memory_mib: Option<u64>,
}

/// Looks up objects by their names, and lists VMs.
#[async_trait]
pub trait Inventory: Send + Sync {
    /// Resolves the names of a request, except for the folder, and reads what the choice of a place depends on.
    ///
    /// # Errors
    /// `Unresolved` with the field whose name leads to nothing.
    async fn place_candidates(&self, request: &PlaceRequest) -> VcResult<PlaceCandidates>;

    /// The VM folder at a path below the datacenter's `vm` folder. Creates missing folders, as `effect`
    /// ([`crate::ports::effect::EffectKind::CreateFolder`]).
    async fn ensure_folder(
        &self,
        effect: &Effect,
        datacenter: &MoRef,
        path: &str,
    ) -> VcResult<MoRef>;

    /// What Storage DRS recommends for such a VM on the datastore cluster of `candidates`. Empty when it recommends nothing
    /// or refuses to answer.
    async fn recommend_datastores(
        &self,
        candidates: &PlaceCandidates,
        folder: &MoRef,
        hardware: &Hardware,
    ) -> VcResult<Vec<Recommendation>>;

    /// All VMs of this vCenter that the user can see. The answer is never older than the call; calls at about the same time
    /// share one request.
    async fn survey(&self) -> VcResult<Arc<Survey>>;

    /// Whether the user sees that folder of the datacenter. An empty lookup means "absent" only for a visible folder.
    async fn folder_sight(&self, folder: &MoRef, datacenter: &MoRef) -> VcResult<FolderSight>;
}
