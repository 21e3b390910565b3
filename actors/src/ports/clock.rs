//! Time as a value.

use std::time::Duration;

use jiff::Timestamp;

/// Where "now" comes from. Waiting is `tokio::time` (virtual under a paused runtime); this port is for what is
/// written down or compared with what others wrote.
pub trait Clock: Send + Sync {
    /// Wall clock. May jump; only for display and for comparing with other objects' times.
    fn wall(&self) -> Timestamp;

    /// Monotonic time since some fixed start.
    fn monotonic(&self) -> Duration;
}
