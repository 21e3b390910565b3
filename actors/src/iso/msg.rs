//! Messages of the ISO cache.

use std::{collections::BTreeSet, fmt, time::Duration};

use futures::future::BoxFuture;
use jiff::Timestamp;
use ractor::RpcReplyPort;

use super::retention::PruneNews;
use crate::{
    domain::{
        failure::ReconcileError,
        names::{DatastorePath, ObjectKey},
    },
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
    /// Its path: `<prefix>/<sha256>.iso`.
    pub path: DatastorePath,
    /// Size in bytes.
    pub size: u64,
    /// When it was uploaded; for a reused file, when it was found.
    pub uploaded_at: Timestamp,
    /// The source's validators of the bytes.
    pub validators: Validators,
    /// The source reported other validators right after the download. So its validators do not show whether its bytes
    /// changed.
    pub volatile: bool,
}

/// Where an ISO is about to get its final name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsoPlace {
    /// SHA-256 of its bytes, lower-case hex.
    pub sha256: String,
    /// Its path: `<prefix>/<sha256>.iso`.
    pub path: DatastorePath,
}

/// The state of the transfer under way, for all flights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lane {
    /// Its number. Only that flight may write.
    pub transfer: Option<u64>,
    /// Some pool still wants it.
    pub wanted: bool,
    /// The record of such a pool lists its final name: it may publish.
    pub listed: bool,
}

/// Work for a flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Checks whether this file is there, with this size. If the flag is set, also checks whether the source still has
    /// these bytes.
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
    /// The want of the pool that the flight is for.
    pub want: IsoWant,
    /// What it does.
    pub task: Task,
}

/// What a pool wants on a datastore.
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
    /// It has the default directory: a file of the same content in the directory of another such pool serves as well.
    pub shares: bool,
    /// Where the bytes come from.
    pub source: IsoUrl,
    /// Certificates that may sign the source's certificate, beside those that are trusted anyway. Or why they are not
    /// available: this blocks a transfer, not an ISO that is there.
    pub ca_pem: Result<Option<String>, ReconcileError>,
    /// What identifies the source without its token. Equal keys mean equal content.
    pub source_key: String,
    /// Value of the force-refresh annotation that no fetch has served yet: it asks for one more transfer.
    pub force_token: Option<String>,
    /// How often the source is asked whether it has other bytes under this source key. `None` if its answer proves
    /// nothing (the Assisted Service's image server, volatile sources).
    pub check_every: Option<Duration>,
    /// The file for this source key by the pool's status, if any.
    pub known: Option<IsoFile>,
    /// Directories in which files of this pool are, or were. Partial files of dead processes are looked for there too.
    pub directories: BTreeSet<DatastorePath>,
    /// Older files of this pool that retention allows to remove, oldest first. Never the wanted one.
    pub prunable: Vec<DatastorePath>,
    /// The users of vCenters, who are asked what their VMs have in their drives. Empty if nothing is to be removed.
    pub users: Vec<User>,
    /// Places that the pool's record lists, as far as its writes were confirmed.
    pub listed: BTreeSet<DatastorePath>,
    /// Where its VMs get their ISO from, by that record.
    pub used: Option<DatastorePath>,
    /// A file that was not looked at for that long is looked at now. `None`: there is no hurry.
    pub look_within: Option<Duration>,
}

impl IsoWant {
    /// The request for the bytes.
    ///
    /// # Errors
    /// The certificates that the pool names are not available.
    pub fn request(&self) -> Result<IsoRequest, ReconcileError> {
        Ok(IsoRequest {
            url: self.source.clone(),
            ca_pem: self.ca_pem.clone()?,
        })
    }
}

/// How far an ISO is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IsoState {
    /// On its way.
    Fetching {
        /// Bytes so far.
        done: u64,
        /// Bytes in total; `None` before the source answered.
        total: Option<u64>,
        /// Bytes per second so far. `None` while it is too early to know.
        rate: Option<u64>,
    },
    /// It will be fetched later: the datastore takes one upload at a time, and the upload of this pool is under way.
    Queued(ObjectKey),
    /// The file that [`IsoWant::used`] names is missing or incomplete. It is fetched again. This stays the answer until
    /// the pool's record no longer names the file.
    Lost(DatastorePath),
    /// All bytes have come. The file gets this name once the pool's record lists it. Otherwise a crash would leave a
    /// file that no record names.
    Publishing(IsoPlace),
    /// There, complete.
    Ready {
        /// The file.
        file: IsoFile,
        /// It was found, or uploaded for another pool.
        reused: bool,
        /// Files of the pool's list that retention removed.
        pruned: Vec<DatastorePath>,
        /// Files that could not be removed, and why.
        prune_failures: Vec<(DatastorePath, String)>,
    },
    /// It failed, and is tried again after a backoff.
    Failed(ReconcileError),
}

/// Messages of the ISO cache actor.
pub enum IsoMsg {
    /// Provide the ISO. Answers at once how far it is. The pool is woken when that changes.
    Ensure(Box<IsoWant>, RpcReplyPort<IsoState>, Queued),
    /// The pool only wants its `prunable` files removed here. Answers at once with the files that are gone, and with
    /// the files that stay and why. The pool is woken when that changes.
    Clear(Box<IsoWant>, RpcReplyPort<PruneNews>, Queued),
    /// That pool is being deleted: the cache drops what only this pool wants.
    Leave(ObjectKey, Queued),
    /// A flight made progress or ended (internal).
    Flight(u64, FlightNews),
    /// Work that outlives the flight that asked for it (internal). It ends with the actor.
    Later(BoxFuture<'static, ()>),
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
    /// All bytes have come, and the file is to get that name.
    Publishing(IsoPlace),
    /// A check found the file missing or incomplete: it must be transferred.
    Missing,
    /// A check found that the source has other bytes by now: they must be transferred.
    Outdated,
    /// The file is there, complete. `true`: it was found rather than uploaded.
    Arrived(IsoFile, bool),
    /// The flight failed.
    Failed(ReconcileError),
    /// No pool wanted it any more. It ended and left nothing.
    Recalled,
    /// Retention ran: files removed, and files kept with the reason.
    Pruned(Vec<DatastorePath>, Vec<(DatastorePath, String)>),
}
