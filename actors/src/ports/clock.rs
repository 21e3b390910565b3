//! Time as a value.

use std::time::Duration;

use jiff::Timestamp;

/// Gives the present time. Waiting uses `tokio::time` (virtual under a paused runtime). This port is for times that are
/// written down or compared with times of others.
pub trait Clock: Send + Sync {
    /// Wall clock. May jump; only for display and for comparing with other objects' times.
    fn wall(&self) -> Timestamp;

    /// The time for the age of what others write: [`Self::wall`], without what it was set ahead since the process began.
    /// So a clock that jumps makes nothing look old that is new.
    fn steady(&self) -> Timestamp {
        self.wall()
    }

    /// Monotonic time since some fixed start.
    fn monotonic(&self) -> Duration;
}
