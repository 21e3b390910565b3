//! Messages of the supervisor, and its description of the tree.

use ractor::RpcReplyPort;
use serde::Serialize;

use super::routing::{ActorKey, Change};
use crate::{
    domain::names::ObjectKey,
    iso::msg::{IsoKey, IsoMsg},
    runtime::{mailbox::Counted, shell::Description},
};

/// Messages of the supervisor.
pub enum SupervisorMsg {
    /// A watch saw something.
    Changed(Change),
    /// Wake one actor.
    Wake(ActorKey, &'static str),
    /// Compare actors with objects.
    Resync,
    /// The backoff of a dead actor is over.
    Respawn(ActorKey),
    /// Get the ISO cache for that key.
    IsoCache(IsoKey, RpcReplyPort<Counted<IsoMsg>>),
    /// That pool is being deleted: the live ISO caches release what only this pool needs.
    LeaveIsoCaches(ObjectKey),
    /// Get all actors with their state.
    Describe(RpcReplyPort<Vec<Described>>),
    /// Kill the actors whose name starts with the text (debug endpoint only).
    Kill {
        /// Start of the name, e.g. `vm/` or `pool/ns/name`; `*` for all.
        which: String,
        /// Makes a handler fail instead of a kill from outside.
        panic: bool,
        /// Names of the killed actors.
        reply: RpcReplyPort<Vec<String>>,
    },
    /// [`super::exit::Exit::leave`] was called: all actors stop, sessions are closed.
    Shutdown,
}

/// Whether an actor is there.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", tag = "is")]
pub enum Life {
    /// It is.
    Alive,
    /// It died, and restarts.
    #[serde(rename_all = "camelCase")]
    Restarting {
        /// In this many seconds.
        in_seconds: f64,
    },
}

/// One actor in the tree's description.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Described {
    /// `kind/key`.
    pub name: String,
    /// Its supervisor, which restarts it: the tree has one level.
    pub supervisor: &'static str,
    /// Alive, or about to restart.
    pub life: Life,
    /// How often it restarted.
    pub restarts: u64,
    /// Wakes and requests in its mailbox; `null` if it is not alive.
    pub mailbox: Option<usize>,
    /// Its description of itself; `null` if it did not answer or is not alive.
    pub state: Option<Description>,
}
