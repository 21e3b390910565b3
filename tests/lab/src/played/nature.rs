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

/// Random values of this simulation come from `seed` from now on, as if `drawn` of them were drawn. Returns the former
/// two values: with them, the simulation continues where it was.
pub fn draw_from(seed: u64, drawn: u64) -> Option<(u64, u64)> {
    SIMULATED.with_borrow_mut(|s| {
        let s = s.as_mut()?;
        let before = (s.seed, s.drawn);
        (s.seed, s.drawn) = (seed, drawn);
        Some(before)
    })
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
