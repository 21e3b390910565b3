//! One vCenter, as the actors need it: named intents instead of wire calls.
//!
//! A session is a [`VCenter`]. It is the sum of five ports, so that an actor can ask for the one it needs: [`Machines`],
//! [`Inventory`], [`Datastores`], [`Tasks`] and [`News`].
//!
//! Assumptions: the adapter bounds every call in time. It renews a lost session, and repeats the refused call once. Each
//! call that changes something passes the effect gate with its [`Effect`], and one that may harm a host takes a
//! [`Permit`](super::permit::Permit). Nothing here retries: the callers decide.

mod datastore;
pub mod error;
mod inventory;
mod machines;
mod news;
mod power;
mod tasks;

use std::sync::Arc;

use async_trait::async_trait;
use secrecy::SecretString;

pub use self::{
    datastore::{ByteStream, Datastores, Drives, FileInfo, MountedIso, Unread},
    error::{CallStage, Fault, VcError, VcErrorKind, VcResult},
    inventory::{
        BareVm, ComputeTopology, Datastore, FolderSight, Host, Inventory, MarkedVm, Place,
        PlaceCandidates, PlaceRequest, Recommendation, Survey,
    },
    machines::{
        BootDevice, Cdrom, CreateVm, GENERATION_KEY, Machines, NewLife, RenewedDisk, VmAt,
        VmChange, VmObservation,
    },
    news::{Listener, News, VmNews, VmSight},
    power::PowerState,
    tasks::{Ended, TASK_PATIENCE, TaskEnd, TaskRef, Tasks},
};
use super::effect::Effect;

/// How to log in: the content of a credentials Secret, parsed and checked.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// Base URL without path, e.g. `https://vcenter.example:443`.
    pub server: url::Url,
    /// User name.
    pub username: String,
    /// Password.
    pub password: SecretString,
    /// How the client checks the server's certificate.
    pub trust: Trust,
}

/// How the client checks the server's certificate.
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

/// Logs in. Equal credentials share one session.
#[async_trait]
pub trait Connector: Send + Sync {
    /// Opens or joins the session of these credentials.
    ///
    /// # Errors
    /// `InvalidLogin`, `Untrusted`, `Unreachable`, `NoAnswer`, ...; see [`VcErrorKind`].
    async fn connect(&self, credentials: &Credentials) -> VcResult<Arc<dyn VCenter>>;

    /// All sessions that are open or about to open, each once.
    fn open(&self) -> Vec<Arc<dyn VCenter>>;
}

/// One vCenter session.
#[async_trait]
pub trait VCenter: Machines + Inventory + Datastores + Tasks + News {
    /// Server name for people and metrics, without credentials.
    fn server(&self) -> &str;

    /// The vCenter's own id (`about.instanceUuid`), which does not depend on its address; `None` where it has none.
    fn instance(&self) -> Option<String> {
        None
    }

    /// Whether the certificate is not checked (a Warning condition reports it).
    fn insecure(&self) -> bool;

    /// Whether vCenter has refused to renew this session's login. The session is then useless and does not try again.
    fn login_refused(&self) -> bool;

    /// Whether vCenter answers. If one of our sessions got an answer lately, the call sends nothing. Otherwise it sends one
    /// small read, so that the operator notices the begin and the end of an outage without other work there.
    ///
    /// # Errors
    /// It cannot be reached or gives no proper answer. Other contents of the answer are not checked.
    async fn reachable(&self) -> VcResult<()>;

    /// Ends the session; later calls fail. From the first poll on, `connect` does not return this session.
    async fn logout(&self, effect: &Effect);
}
