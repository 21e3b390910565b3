//! A thin typed client of vCenter over VI/JSON (vCenter 8.0U1 and newer), the Automation API for tags and `/folder` for
//! datastore files.
//!
//! Flow: [`VsphereConnector`] shares one client per (server, user, password, trust settings). A client logs in once for
//! all its callers, logs in again when vCenter says that the session is gone, and replays the refused call once. Every
//! mutating request passes the effect gate. All tasks of a session are awaited by one property collector.
//!
//! Guarantees: every call is bounded in time. No credential byte leaves before the server's certificate is trusted. A
//! refused login is never repeated by itself, nor is a password that one of its other doors refused. No error, log or span carries a secret. Faults are told apart by type name
//! alone.
//!
//! Assumptions: callers retry; nothing here does, but for the one replay after a lost session.

mod connector;
mod datastore;
mod inventory;
mod machines;
mod rpc;
mod tasks;

pub(crate) use rpc::trust as tls;

pub use self::{
    connector::VsphereConnector,
    rpc::{
        options::{Options, RequestObserver, RequestRecord},
        transport::{Transport, TransportFailure},
    },
};
pub(crate) use datastore::upload::UPLOAD_LIMIT;
