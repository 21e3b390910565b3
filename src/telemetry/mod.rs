//! What the operator reports about itself: logs, traces, metrics, and the small HTTP servers for them.

pub mod http;
pub mod logging;
pub mod metrics;
mod otlp_client;
pub mod places;
pub mod propagate;
mod repeats;
pub mod server;
pub mod tls;
#[cfg(test)]
pub mod told;
pub mod traces;
