//! The real clock.

use std::time::{Duration, Instant};

use agent_forge_actors::ports::clock::Clock;
use jiff::{SignedDuration, Timestamp};

/// The system's time.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    start: Instant,
    began: Timestamp,
}

impl Default for SystemClock {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            began: Timestamp::now(),
        }
    }
}

impl Clock for SystemClock {
    fn wall(&self) -> Timestamp {
        Timestamp::now()
    }

    fn steady(&self) -> Timestamp {
        let gone = SignedDuration::try_from(self.monotonic()).unwrap_or(SignedDuration::MAX);
        let wall = self.wall();
        self.began
            .checked_add(gone)
            .map_or(wall, |steady| steady.min(wall))
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}
