//! A thin typed client of vCenter. It uses VI/JSON (vCenter 8.0U1 and newer), the Automation API for tags, and
//! `/folder` for datastore files.
//!
//! [`VsphereConnector`] shares one client for each combination of server, user, password and trust settings. A client
//! logs in once for all its callers. When vCenter reports that the session is gone, the client logs in again and
//! repeats the refused call once. Every mutating request passes the effect gate. One property collector awaits all
//! tasks of a session.
//!
//! Guarantees:
//!
//! - Every call has a time limit.
//! - No credentials are sent before the server's certificate is trusted.
//! - A refused login is not repeated automatically. A password that one interface refused is not sent to the others.
//! - No error, log line or span contains a secret.
//! - Faults are distinguished by their type name alone.
//!
//! Assumption: callers retry. The client repeats nothing except the one call after a lost session.

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
