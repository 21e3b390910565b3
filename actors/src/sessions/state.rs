//! What the session actor knows, and what it is told.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use agent_forge_crds::pool::RefusedCredentials;
use ractor::RpcReplyPort;
use tokio::task::JoinSet;

use super::{ledger::Ledger, login::Digest, table::Table};
use crate::{
    domain::{failure::ReconcileError, names::ObjectKey, server::ServerRule},
    ports::{
        clock::Clock,
        cluster::{Cluster, SecretVersion, View},
        instruments::Instruments,
        vcenter::{Connector, Credentials, VCenter, VcResult},
    },
    runtime::{mailbox::Queued, shell::Description},
};

/// An open session.
pub type Session = Arc<dyn VCenter>;
/// Who waits for a session.
pub(super) type Reply = RpcReplyPort<Result<Session, ReconcileError>>;

/// Credentials as a Secret holds them.
pub struct Found {
    pub(super) credentials: Credentials,
    pub(super) version: SecretVersion,
}

/// A Secret as it was read.
pub struct ReadSecret {
    pub(super) pools_from: Option<String>,
    pub(super) held: Result<Found, ReconcileError>,
}

/// The pools that a Secret allowed when it was read last.
pub(super) struct Admits {
    pub(super) at: Duration,
    pub(super) pools_from: Option<String>,
}

/// Messages of the session actor.
pub enum SessionMsg {
    /// Get the session of that Secret for a pool of that namespace.
    Get(ObjectKey, String, Reply, Queued),
    /// Get what another process must know of that Secret.
    Refusal(ObjectKey, RpcReplyPort<Option<RefusedCredentials>>, Queued),
    /// That Secret was read (internal).
    Read(ObjectKey, Result<Box<ReadSecret>, ReconcileError>),
    /// The login with these credentials ended (internal).
    LoggedIn(Box<Credentials>, VcResult<Session>),
    /// The process ends: open no more sessions, close every open one, then answer.
    LogOut(RpcReplyPort<()>),
    /// Describe yourself.
    Describe(RpcReplyPort<Description>),
    /// Die in a handler (debug endpoint only).
    Panic,
}

/// What the session actor needs.
#[derive(Clone)]
pub struct SessionArgs {
    /// Reads Secrets.
    pub cluster: Arc<dyn Cluster>,
    /// Shows which refused credentials the pools have on record.
    pub view: Arc<dyn View>,
    /// Logs in.
    pub connector: Arc<dyn Connector>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Counts open sessions.
    pub instruments: Arc<dyn Instruments>,
    /// Which vCenters Secrets may name.
    pub server_rule: ServerRule,
    /// Refused passwords. The connector records them.
    pub ledger: Arc<Ledger>,
}

/// State.
pub struct SessionState {
    pub(super) args: SessionArgs,
    pub(super) table: Table<Session>,
    pub(super) waiting: BTreeMap<ObjectKey, Vec<(String, Reply)>>,
    pub(super) looks: BTreeMap<ObjectKey, Admits>,
    /// Logins under way, and the Secrets that have these bytes.
    pub(super) logins: BTreeMap<Digest, Vec<(ObjectKey, SecretVersion)>>,
    pub(super) resolutions: JoinSet<()>,
    /// Logouts under way.
    pub(super) closing: JoinSet<()>,
    /// The process ends.
    pub(super) ends: bool,
    /// Callers that wait for the end of all sessions.
    pub(super) leaving: Vec<RpcReplyPort<()>>,
    pub(super) about: Description,
}
