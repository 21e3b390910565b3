//! What the operator tells of itself: logs and traces, metrics, the small HTTP servers that serve them.

pub mod http;
pub mod logging;
pub mod metrics;
mod otlp_client;
pub mod propagate;
mod repeats;
pub mod server;
#[cfg(test)]
pub mod told;
pub mod traces;
