//! One vCenter, as the actors need it: named intents, not wire calls.
//!
//! Assumptions: every call is bounded in time by the adapter; a lost session is renewed and the call replayed once
//! inside the adapter; each mutating call passes the effect gate with the [`Effect`] it is given. Nothing here
//! retries: the callers decide.

use std::time::Duration;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use secrecy::SecretString;

use super::slots::Slots;
pub use super::vcenter_error::{Fault, VcError, VcErrorKind};
use crate::{
    domain::{
        hardware::Hardware,
        identity::{BiosUuid, MacAddress},
        marker::{Mark, Marker},
        names::{DatastorePath, MoRef},
        notes::Notes,
    },
    ports::effect::Effect,
};

/// Longest wait for one task within one pass. A creation that takes longer is taken up again by its recorded id, any other
/// task makes the VM count as busy.
pub const TASK_PATIENCE: Duration = Duration::from_secs(120);

/// Result of a vCenter call.
pub type VcResult<T> = Result<T, VcError>;

/// How to log in: the content of a credentials Secret, parsed and checked.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// Base URL without path, e.g. `https://vcenter.example:443`.
    pub server: url::Url,
    /// User name.
    pub username: String,
    /// Password.
    pub password: SecretString,
    /// How the server's certificate is checked.
    pub trust: Trust,
}

/// How the server's certificate is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Against the system's roots.
    System,
    /// Against these PEM certificates only.
    CaBundle(String),
    /// The leaf's SHA-256 digest must be this (32 bytes).
    Thumbprint([u8; 32]),
    /// Not at all (`insecure: "true"`), or plain http under the lab's flag.
    Insecure,
}

/// Logs in. Sessions are shared: equal credentials give the same session.
#[async_trait]
pub trait Connector: Send + Sync {
    /// Opens (or joins) the session of these credentials.
    ///
    /// # Errors
    /// `InvalidLogin`, `Untrusted`, `Unreachable`, `NoAnswer`, ...; see [`VcErrorKind`].
    async fn connect(&self, credentials: &Credentials) -> VcResult<Arc<dyn VCenter>>;

    /// All sessions that are open or being opened, each once, whoever asked for them.
    fn open(&self) -> Vec<Arc<dyn VCenter>>;
}

/// Where a VM shall live, by the names in the pool's spec.
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
    /// Space promised to creations in flight, per datastore id, to be subtracted from what is free.
    pub reserved: BTreeMap<String, u64>,
    /// Hardware, for recommendations.
    pub hardware: Hardware,
}

/// Where a VM lives: resolved once per attempt, recorded before the first write, never recomputed.
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

/// Everything one CreateVM_Task carries.
#[derive(Clone, Debug)]
pub struct CreateVm {
    /// Inventory name.
    pub name: String,
    /// BIOS uuid.
    pub uuid: BiosUuid,
    /// Ownership marker, born with the VM.
    pub marker: Marker,
    /// Hardware.
    pub hardware: Hardware,
    /// Place.
    pub place: Place,
    /// Explicit configuration file, `[ds] <name>-<uid8>-<attempt>/<name>.vmx`, so that a repeat collides visibly.
    pub vm_path: DatastorePath,
    /// Discovery ISO.
    pub iso: DatastorePath,
    /// Its notes ([`Notes`]).
    pub annotation: String,
}

/// Power state of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerState {
    /// `poweredOn`
    On,
    /// `poweredOff`
    Off,
    /// `suspended`
    Suspended,
}

impl PowerState {
    /// As on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::On => "poweredOn",
            Self::Off => "poweredOff",
            Self::Suspended => "suspended",
        }
    }
}

/// A device in the boot order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BootDevice {
    /// Disk with this device key.
    Disk(i32),
    /// Any CD-ROM.
    Cdrom,
    /// Anything else.
    Other(String),
}

/// A CD-ROM drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cdrom {
    /// Device key.
    pub key: i32,
    /// ISO behind it, as `[datastore] path`.
    pub iso: Option<String>,
    /// Connected now.
    pub connected: bool,
    /// Connected at power-on.
    pub start_connected: bool,
}

/// A VM as vCenter shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmObservation {
    /// Reference in this vCenter.
    pub moref: MoRef,
    /// Inventory name.
    pub name: String,
    /// BIOS uuid; absent on broken or inaccessible VMs.
    pub bios_uuid: Option<BiosUuid>,
    /// vCenter's own unique id of this VM (a clone has another one).
    pub instance_uuid: Option<String>,
    /// Folder it is in.
    pub folder: Option<MoRef>,
    /// Ownership marker, if any.
    pub marker: Option<Marker>,
    /// Whose the predecessor would take it for.
    pub notes: Notes,
    /// Power state.
    pub power: PowerState,
    /// `connected`, `disconnected`, `inaccessible`, ... as on the wire.
    pub connection_state: String,
    /// MACs of its virtual NICs.
    pub macs: Vec<MacAddress>,
    /// Device keys of its disks, in order.
    pub disk_keys: Vec<i32>,
    /// CD-ROM drives.
    pub cdroms: Vec<Cdrom>,
    /// Boot order; empty when none is set.
    pub boot_order: Vec<BootDevice>,
    /// Configuration file.
    pub vm_path: String,
    /// VMware Tools' running status, as evidence (`guestToolsRunning`).
    pub tools: Option<String>,
    /// Guest address that VMware Tools reports, as evidence.
    pub guest_address: Option<String>,
    /// Host name that VMware Tools reports, as evidence.
    pub guest_host: Option<String>,
}

impl VmObservation {
    /// Whether vCenter shows its configuration. It shows none of a VM that is `inaccessible` or `invalid`, nor at the
    /// beginning of a creation: whose such a VM is, nobody can tell.
    #[must_use]
    pub fn shows_config(&self) -> bool {
        self.bios_uuid.is_some()
    }
}

/// All VMs of a vCenter that the user sees, in as few properties as it takes to tell whose they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Those that carry an ownership marker, any cluster's; by reference.
    pub marked: Vec<MarkedVm>,
    /// Those of which vCenter shows no configuration: a search by uuid misses them; by reference.
    pub bare: Vec<BareVm>,
}

/// A VM of which vCenter shows no configuration, and so neither uuid nor marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BareVm {
    /// Reference in this vCenter.
    pub moref: MoRef,
    /// Inventory name. vCenter may name such a VM by the path of its configuration file on the host.
    pub name: String,
    /// Configuration file, where the summary still has it.
    pub vm_path: Option<String>,
    /// `inaccessible`, `invalid`, ... as on the wire.
    pub connection_state: String,
}

/// How a VM folder looks to the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FolderSight {
    /// It shows its name.
    Visible,
    /// It may be there: the user cannot tell.
    Hidden,
    /// The typed fault says that it is not there, and its datacenter shows its name.
    Deleted,
}

/// A VM that carries an ownership marker, in as few properties as a scan of all of them needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkedVm {
    /// Reference in this vCenter.
    pub moref: MoRef,
    /// Inventory name.
    pub name: String,
    /// Whose it is.
    pub marker: Marker,
    /// Power state.
    pub power: PowerState,
    /// A boot order is set, as before the first power-on.
    pub has_boot_order: bool,
}

/// A task that vCenter accepted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TaskRef(pub String);

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskEnd {
    /// With success; the result where it is a reference (the created VM).
    Success(Option<MoRef>),
    /// vCenter does not know the task any more: look at the object itself.
    Vanished,
}

/// A file on a datastore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// Where.
    pub path: DatastorePath,
    /// Size in bytes.
    pub size: u64,
    /// Last change, RFC 3339, where reported.
    pub modified: Option<String>,
}

/// An ISO in a VM's CD-ROM drive.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MountedIso {
    /// Which, as `[datastore] path`.
    pub iso: String,
    /// Name of the VM.
    pub vm: String,
}

impl MountedIso {
    /// Is it that file, or something that cannot be told from it: no path of a datastore, which ends with the file's name? That
    /// is a digest.
    #[must_use]
    pub fn may_be(&self, path: &DatastorePath) -> bool {
        DatastorePath::parse(&self.iso).map_or_else(
            |_| self.iso.ends_with(path.file_name()),
            |at| at.is_same_file(path),
        )
    }
}

/// What a vCenter says of the CD-ROM drives of its VMs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drives {
    /// ISOs in them, connected or not; sorted.
    pub isos: Vec<MountedIso>,
    /// VMs of which that is not known, by name.
    pub unknown: BTreeMap<String, Unread>,
}

/// A VM whose drives vCenter does not show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// Why.
    pub error: VcError,
    /// Names of the datastores that it uses; what is in its drives lies on one of them. `None`: not known.
    pub datastores: Option<BTreeSet<String>>,
}

impl Drives {
    /// What keeps that file from being deleted, in a sentence: a VM has it in a drive, or may have.
    #[must_use]
    pub fn keeps(&self, path: &DatastorePath) -> Option<String> {
        let mut isos = self.isos.iter();
        if let Some(mount) = isos.find(|mount| mount.may_be(path)) {
            return Some(format!("VM {} has it in its CD-ROM drive", mount.vm));
        }
        let may_have = |unread: &Unread| {
            let stores = unread.datastores.as_ref();
            stores.is_none_or(|all| all.contains(&path.datastore))
        };
        // The first one by name, so that the same trouble has the same words at each look.
        let mut unknown = self.unknown.iter().filter(|(_, unread)| may_have(unread));
        let (name, unread) = unknown.next()?;
        let more = if unknown.next().is_some() {
            ", nor of others"
        } else {
            ""
        };
        Some(format!(
            "it is not known which ISOs VM {name} has in its drives{more}: {}",
            unread.error.message
        ))
    }
}

/// Bytes on their way to a datastore.
pub type ByteStream = BoxStream<'static, std::io::Result<Bytes>>;

/// One vCenter session.
#[async_trait]
pub trait VCenter: Send + Sync {
    /// Server name for people and metrics, without credentials.
    fn server(&self) -> &str;

    /// What the vCenter calls itself (`about.instanceUuid`), whatever its address; `None` where it does not say.
    fn instance(&self) -> Option<String> {
        None
    }

    /// Whether the certificate goes unchecked (a Warning condition says so).
    fn insecure(&self) -> bool;

    /// vCenter has refused to renew this session's login: the session is of no use any more, and it does not try again.
    fn login_refused(&self) -> bool;

    /// Whether vCenter answers. Costs nothing while some session of ours has heard of it lately; otherwise, and while it
    /// could not be reached, one small read: so an outage is noticed although nobody has work there, and its end, too.
    ///
    /// # Errors
    /// It cannot be reached or gives no proper answer. What else is wrong with an answer is not said here.
    async fn reachable(&self) -> VcResult<()>;

    /// Bounds tasks in flight on this vCenter (`--max-concurrent-vcenter-tasks`); shared by all sessions to it.
    fn slots(&self) -> Slots;

    /// Resolves names to a place. Creates the folder when it is missing, as `effect`
    /// ([`crate::ports::effect::EffectKind::CreateFolder`]).
    async fn place(&self, effect: &Effect, request: &PlaceRequest) -> VcResult<Place>;

    /// All VMs in this vCenter with that BIOS uuid that the user can see: clones too. It misses VMs whose configuration
    /// vCenter does not show.
    async fn find_by_uuid(&self, uuid: BiosUuid) -> VcResult<Vec<VmObservation>>;

    /// The VM behind a reference; `None` from the typed fault `ManagedObjectNotFound` only.
    async fn observe(&self, vm: &MoRef) -> VcResult<Option<VmObservation>>;

    /// All VMs of this vCenter that the user can see, as they are after the call; who asks at about the same time shares
    /// the answer.
    async fn survey(&self) -> VcResult<Arc<Survey>>;

    /// Whether the user sees that folder of the datacenter, so that an empty lookup can mean "absent" (reliability.md: absence is proven).
    async fn folder_sight(&self, folder: &MoRef, datacenter: &MoRef) -> VcResult<FolderSight>;

    /// Starts the creation.
    async fn create_vm(&self, effect: &Effect, vm: &CreateVm) -> VcResult<TaskRef>;

    /// Sets the boot order to the given disks, then CD-ROM.
    async fn set_boot_order(
        &self,
        effect: &Effect,
        vm: &MoRef,
        disk_keys: &[i32],
    ) -> VcResult<TaskRef>;

    /// Stamps the ownership marker on a VM that the predecessor created (after proof), or releases one of ours; with `notes`,
    /// also the notes that name the marker's owner to the predecessor.
    async fn stamp_marker(
        &self,
        effect: &Effect,
        vm: &MoRef,
        mark: &Mark,
        notes: bool,
    ) -> VcResult<TaskRef>;

    /// Powers on.
    async fn power_on(&self, effect: &Effect, vm: &MoRef) -> VcResult<TaskRef>;

    /// Powers off, hard.
    async fn power_off(&self, effect: &Effect, vm: &MoRef) -> VcResult<TaskRef>;

    /// Destroys the VM and its files.
    async fn destroy(&self, effect: &Effect, vm: &MoRef) -> VcResult<TaskRef>;

    /// Waits for the end of a task. The outer error is one of waiting, such as a right that is missing for that: the task
    /// goes on. The inner one is how the task failed.
    async fn wait(&self, task: &TaskRef) -> VcResult<VcResult<TaskEnd>>;

    /// Takes these ISOs (as in [`Cdrom::iso`]) out of the VM's CD-ROM drives, connected or not, and waits; a guest that
    /// has locked its tray is overruled, also where an earlier call left that question open. None of them in any drive is
    /// success, and no write.
    async fn eject_isos(&self, effect: &Effect, vm: &MoRef, isos: &[String]) -> VcResult<()>;

    /// Attaches tags (ids as in `spec.vsphere.vmTags`); already attached is success.
    async fn attach_tags(&self, effect: &Effect, vm: &MoRef, tag_ids: &[String]) -> VcResult<()>;

    /// Reference of a datacenter by name or path.
    async fn datacenter(&self, name: &str) -> VcResult<MoRef>;

    /// Size of a file; `None` when it or its directory does not exist.
    async fn stat(&self, datacenter: &MoRef, path: &DatastorePath) -> VcResult<Option<u64>>;

    /// Files in a directory; `None` when the directory does not exist.
    async fn list(
        &self,
        datacenter: &MoRef,
        directory: &DatastorePath,
    ) -> VcResult<Option<Vec<FileInfo>>>;

    /// Creates a directory with its parents; already there is success.
    async fn make_directory(
        &self,
        effect: &Effect,
        datacenter: &MoRef,
        path: &DatastorePath,
    ) -> VcResult<()>;

    /// Uploads exactly `length` bytes, overwriting.
    async fn upload(
        &self,
        effect: &Effect,
        datacenter: &MoRef,
        path: &DatastorePath,
        length: u64,
        body: ByteStream,
    ) -> VcResult<()>;

    /// Moves a file without overwriting (`AlreadyExists` when the destination is there), and waits.
    async fn move_file(
        &self,
        effect: &Effect,
        datacenter: &MoRef,
        from: &DatastorePath,
        to: &DatastorePath,
    ) -> VcResult<()>;

    /// Deletes a file and waits; already gone is success.
    async fn delete_file(
        &self,
        effect: &Effect,
        datacenter: &MoRef,
        path: &DatastorePath,
    ) -> VcResult<()>;

    /// What the VMs in this vCenter have in their CD-ROM drives.
    async fn drives(&self) -> VcResult<Drives>;

    /// Ends the session; later calls fail. From the first poll on nobody who connects is given this session.
    async fn logout(&self, effect: &Effect);
}
