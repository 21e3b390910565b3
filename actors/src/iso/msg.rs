//! Messages of the ISO cache.

use std::{collections::BTreeSet, fmt, time::Duration};

use jiff::Timestamp;
use ractor::RpcReplyPort;

use crate::{
    domain::{
        failure::ReconcileError,
        names::{DatastorePath, ObjectKey},
    },
    iso::PruneNews,
    ports::iso_source::{IsoRequest, IsoUrl, Validators},
    runtime::mailbox::Queued,
    sessions::users::User,
};

/// Which cache: uploads to one datastore of one vCenter are serialised by one actor.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IsoKey {
    /// Server name of the vCenter.
    pub server: String,
    /// Datacenter.
    pub datacenter: String,
    /// Datastore.
    pub datastore: String,
}

impl fmt::Display for IsoKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.server, self.datacenter, self.datastore)
    }
}

/// An ISO that is complete on the datastore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsoFile {
    /// SHA-256 of its bytes, lower-case hex.
    pub sha256: String,
    /// Where, `<prefix>/<sha256>.iso`.
    pub path: DatastorePath,
    /// Size in bytes.
    pub size: u64,
    /// When it was uploaded; for a reused file, when it was found.
    pub uploaded_at: Timestamp,
    /// The source's validators of the bytes.
    pub validators: Validators,
    /// The source was seen to say something else right after: what it says does not tell whether it has other bytes.
    pub volatile: bool,
}

/// Pools that share files of equal content although each has a directory of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShareGroup {
    /// Those with the default directory.
    Default,
    /// Those whose directory has these segments; `None` is a segment that is the pool's own name or namespace.
    Alike(Vec<Option<String>>),
}

/// Where an ISO is about to get its final name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsoPlace {
    /// SHA-256 of its bytes, lower-case hex.
    pub sha256: String,
    /// Where, `<prefix>/<sha256>.iso`.
    pub path: DatastorePath,
}

/// What flights hear about the transfer under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lane {
    /// Its number; only that flight may write.
    pub transfer: Option<u64>,
    /// Some pool still wants it.
    pub wanted: bool,
    /// The record of such a pool lists its final name: it may publish.
    pub listed: bool,
}

/// Work for a flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Is this file there, with this size? And, if asked for, does the source still have these bytes?
    Check(IsoFile, bool),
    /// Fetch and publish.
    Transfer,
    /// Remove these unless a VM has them in its drive.
    Prune(Vec<DatastorePath>),
}

impl Task {
    /// Name for traces.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Check(..) => "check",
            Self::Transfer => "transfer",
            Self::Prune(_) => "prune",
        }
    }
}

/// A flight to start.
#[derive(Clone, Debug)]
pub struct Start {
    /// Its number.
    pub id: u64,
    /// What the pool wants for which it flies.
    pub want: IsoWant,
    /// What it does.
    pub task: Task,
}

/// What a pool wants there.
#[derive(Clone, Debug)]
pub struct IsoWant {
    /// The pool that asks.
    pub pool: ObjectKey,
    /// Its uid.
    pub uid: String,
    /// Its credentials Secret.
    pub secret: ObjectKey,
    /// Directory on the datastore (`spec.iso.pathPrefix` or its default).
    pub directory: DatastorePath,
    /// A file of the same content in the directory of another pool of this group will do.
    pub shareable: Option<ShareGroup>,
    /// Where the bytes come from.
    pub source: IsoUrl,
    /// Certificates that the source's may be signed by, beside those that are trusted anyway; or why they cannot be had:
    /// that is in the way of a transfer, not of an ISO that is there.
    pub ca_pem: Result<Option<String>, ReconcileError>,
    /// What identifies the source without its token; equal keys mean equal content.
    pub source_key: String,
    /// Value of the force-refresh annotation that was not fetched for yet: it asks for one more transfer.
    pub force_token: Option<String>,
    /// How often the source is asked whether it has other bytes under this source key; `None` where its answer tells
    /// nothing (the assisted service's image server, volatile sources).
    pub check_every: Option<Duration>,
    /// What a pool's status says is there for this very source key, if anything.
    pub known: Option<IsoFile>,
    /// Directories in which files of this pool are, or were: partial ones of dead processes are looked for there too.
    pub directories: BTreeSet<DatastorePath>,
    /// Older files of this pool that retention allows to go, oldest first; never the wanted one.
    pub prunable: Vec<DatastorePath>,
    /// Who uses vCenters, to be asked what their VMs have in their drives; empty where nothing is to go.
    pub users: Vec<User>,
    /// Places that the pool's record lists, as far as its writes were acknowledged.
    pub listed: BTreeSet<DatastorePath>,
    /// Where its VMs get their ISO from, by that record.
    pub used: Option<DatastorePath>,
    /// A file that was not looked at for so long is looked at now; `None`: there is time for it.
    pub look_within: Option<Duration>,
}

impl IsoWant {
    /// The request for the bytes.
    ///
    /// # Errors
    /// Certificates that the pool names are not to be had.
    pub fn request(&self) -> Result<IsoRequest, ReconcileError> {
        Ok(IsoRequest {
            url: self.source.clone(),
            ca_pem: self.ca_pem.clone()?,
        })
    }
}

/// How far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IsoState {
    /// On its way.
    Fetching {
        /// Bytes so far.
        done: u64,
        /// Bytes in total; `None` before the source answered.
        total: Option<u64>,
        /// Bytes per second so far; `None` while it is too early to tell.
        rate: Option<u64>,
    },
    /// It is to come: the datastore takes one upload at a time, and that of this pool is under way.
    Queued(ObjectKey),
    /// What [`IsoWant::used`] names is not there, whole; it is fetched. It stays the answer until the pool's record names it no more.
    Lost(DatastorePath),
    /// All of it has come. It gets this name once the pool's record lists it: a crash would leave a file that no record names.
    Publishing(IsoPlace),
    /// There, complete.
    Ready {
        /// The file.
        file: IsoFile,
        /// Found, or uploaded for another pool, rather than for this one.
        reused: bool,
        /// Files of the pool's list that retention removed.
        pruned: Vec<DatastorePath>,
        /// Files that could not be removed, and why.
        prune_failures: Vec<(DatastorePath, String)>,
    },
    /// Failed; tried again after a backoff.
    Failed(ReconcileError),
}

/// Messages of the ISO cache actor.
pub enum IsoMsg {
    /// Make it so; answers at once with how far it is. The pool is woken when that changes.
    Ensure(Box<IsoWant>, RpcReplyPort<IsoState>, Queued),
    /// The pool wants nothing here any more but that its `prunable` files go; answers at once with what is gone, and with
    /// what stays and why. The pool is woken when that changes.
    Clear(Box<IsoWant>, RpcReplyPort<PruneNews>, Queued),
    /// That pool is being deleted: what only it wants is let go.
    Leave(ObjectKey, Queued),
    /// A flight made progress or ended (internal).
    Flight(u64, FlightNews),
    /// Describe yourself.
    Describe(RpcReplyPort<crate::runtime::shell::Description>),
    /// Die in a handler (debug endpoint only).
    Panic,
}

/// What a flight reports to its actor.
#[derive(Clone, Debug)]
pub enum FlightNews {
    /// Bytes so far and in total.
    Progress(u64, Option<u64>),
    /// All bytes have come, and are to get that name.
    Publishing(IsoPlace),
    /// A check found that the file is not there, or not whole: it must be transferred.
    Missing,
    /// A check found that the source has other bytes by now: they must be transferred.
    Outdated,
    /// The file is there, complete; `true` when it was found rather than uploaded.
    Arrived(IsoFile, bool),
    /// It did not work.
    Failed(ReconcileError),
    /// No pool wanted it any more: it ended and left nothing.
    Recalled,
    /// Retention ran: files removed, files kept and why.
    Pruned(Vec<DatastorePath>, Vec<(DatastorePath, String)>),
}
