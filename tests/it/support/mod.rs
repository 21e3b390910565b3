//! What scenarios share.

pub mod alone;
pub mod changes;
pub mod cli;
pub mod collector;
pub mod look;
pub mod server;
pub mod shared;
pub mod site;
pub mod tls_door;
pub mod tokens;
pub mod witness;
pub mod world;
