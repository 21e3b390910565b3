//! Time as a value.

use std::time::Duration;

use jiff::Timestamp;

/// Gives the present time. Waiting uses `tokio::time` (virtual under a paused runtime). This port is for times that are
/// written down or compared with times of others.
pub trait Clock: Send + Sync {
    /// Wall clock. May jump; only for display and for comparing with other objects' times.
    fn wall(&self) -> Timestamp;

    /// Monotonic time since some fixed start.
    fn monotonic(&self) -> Duration;
}
