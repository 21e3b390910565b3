//! A thin typed client of vCenter. It uses VI/JSON (vCenter 8.0U1 and newer), the Automation API for tags, and
//! `/folder` for datastore files.
//!
//! Each port of [`agent_forge_actors::ports::vcenter`] has a room here with its `impl`: `machines`, `inventory`,
//! `datastore` and `tasks`. The room `rpc` sends calls and reads replies.
//!
//! [`VsphereConnector`] shares one client per server, user, password and trust settings. A client logs in once for all
//! its callers. When vCenter says that the session is gone, the client logs in again and repeats the refused call once.
//! Every call that changes something passes the effect gate. One property collector awaits all tasks of a session.
//!
//! Every call has a time limit. No credential leaves before the server's certificate is trusted. The client never
//! repeats a refused login by itself, nor a password that another interface refused. No error, log or span contains a
//! secret. Only the type name distinguishes faults.
//!
//! Callers retry. The client itself repeats only the one call after a lost session.

mod connector;
mod datastore;
mod inventory;
mod machines;
mod rpc;
mod tasks;

pub(crate) use rpc::{resolver::Resolver, transport::network_failure, trust as tls};

pub use self::{
    connector::VsphereConnector,
    rpc::{
        options::{Options, RequestObserver, RequestRecord},
        transport::{Transport, TransportFailure},
    },
};
pub(crate) use datastore::upload::UPLOAD_LIMIT;
