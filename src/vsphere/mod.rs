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

mod automation;
mod cache;
mod call;
mod circuit_breaker;
mod client;
mod connector;
mod datastore;
mod eject;
mod fault;
mod folders;
mod http;
mod inventory;
mod limits;
mod login;
mod look;
mod lookup;
mod machines;
mod networks;
mod observation;
mod options;
mod placement;
#[cfg(test)]
mod played;
mod properties;
mod reply;
mod resolver;
mod session;
mod site;
mod storage;
mod storage_drs;
mod survey;
mod tags;
mod task;
mod transport;
pub(crate) mod trust;
mod upload;
mod vcenter;
mod wire;

pub(crate) use trust as tls;

pub use connector::VsphereConnector;
pub use options::{Options, RequestObserver, RequestRecord};
pub use transport::{Transport, TransportFailure};
pub(crate) use upload::UPLOAD_LIMIT;
