//! Wall clock and random values of the played parts. They are the real ones, unless a simulation sets its own for this
//! thread.
//!
//! Guarantee: in a simulation both depend only on its seed and its virtual time.

use std::cell::RefCell;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;
use uuid::Uuid;

thread_local! {
    static SIMULATED: RefCell<Option<Simulated>> = const { RefCell::new(None) };
}

struct Simulated {
    began: Instant,
    wall: Timestamp,
    seed: u64,
    drawn: u64,
}

/// From now on, the played parts of this thread begin at the time `wall`, which advances with tokio's clock. Random
/// values come from `seed`.
pub fn simulate(wall: Timestamp, seed: u64) {
    let began = Instant::now();
    SIMULATED.set(Some(Simulated {
        began,
        wall,
        seed,
        drawn: 0,
    }));
}

/// The wall clock.
#[must_use]
pub fn now() -> Timestamp {
    let simulated = SIMULATED.with_borrow(|s| {
        let s = s.as_ref()?;
        let passed = SignedDuration::try_from(s.began.elapsed()).ok()?;
        s.wall.checked_add(passed).ok()
    });
    simulated.unwrap_or_else(Timestamp::now)
}

/// A uuid that was never used before.
#[must_use]
pub fn uuid() -> Uuid {
    let simulated = SIMULATED.with_borrow_mut(|s| {
        let s = s.as_mut()?;
        s.drawn += 1;
        let name = [s.seed.to_be_bytes(), s.drawn.to_be_bytes()].concat();
        Some(Uuid::new_v5(&Uuid::NAMESPACE_OID, &name))
    });
    simulated.unwrap_or_else(Uuid::new_v4)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_simulation_repeats_itself() {
        let run = async || {
            simulate(Timestamp::UNIX_EPOCH, 7);
            tokio::time::sleep(Duration::from_secs(90)).await;
            (now(), uuid(), uuid())
        };
        let (first, second) = (run().await, run().await);
        assert_eq!(first, second);
        assert_eq!(first.0.as_second(), 90);
        assert_ne!(first.1, first.2);
        SIMULATED.set(None);
    }
}
