//! The only backoff there is: how long to wait after the n-th failure in a row.

use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::error::Class;

/// The tick that replaces any lost message (house.md §2).
pub const RESYNC: Duration = Duration::from_secs(60);
/// Slow probe while only a changed input can help. A changed object wakes the actor at once; a changed Secret does not
/// (Secrets are not watched), and yet it is acted upon within 30 s: jitter and a login must fit in.
pub const SLOW_PROBE: Duration = Duration::from_secs(20);
const FIRST: Duration = Duration::from_millis(500);
const CAP: Duration = Duration::from_secs(30);
const CONFLICT: Duration = Duration::from_millis(50);

/// Delay before the next try.
///
/// `failures` counts failures in a row including this one; `seed` (the actor's key) spreads actors apart: the jitter
/// of up to a quarter is a hash, so that the same run waits the same times.
#[must_use]
pub fn delay(class: Class, failures: u32, seed: &str) -> Duration {
    match class {
        // The first look again is almost always the last; a view that lags makes many of them.
        Class::Conflict => CONFLICT
            .saturating_mul(1_u32 << failures.saturating_sub(1).min(10))
            .min(CAP),
        Class::Transient => {
            let base = FIRST
                .saturating_mul(1_u32 << failures.saturating_sub(1).min(6))
                .min(CAP);
            base + jitter(base / 4, failures, seed)
        }
        Class::Throttled(after) => after.max(FIRST),
        Class::Blocked | Class::Defect => SLOW_PROBE + jitter(SLOW_PROBE / 6, failures, seed),
    }
}

fn jitter(span: Duration, failures: u32, seed: &str) -> Duration {
    let digest = Sha256::digest(format!("{seed}#{failures}").as_bytes());
    span.mul_f64(f64::from(u16::from_be_bytes([digest[0], digest[1]])) / f64::from(u16::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_and_stay_below_the_bounds() {
        let mut last = Duration::ZERO;
        for n in 1..=7 {
            let d = delay(Class::Transient, n, "a");
            assert!(d > last || n == 7, "{n}: {d:?} after {last:?}");
            last = d;
        }
        for n in 1..200 {
            assert!(delay(Class::Transient, n, "a") <= CAP + CAP / 4);
            assert!(delay(Class::Blocked, n, "a") <= RESYNC);
        }
        for n in 1..200 {
            let probe = delay(Class::Blocked, n, "a");
            assert!(
                probe <= Duration::from_secs(25),
                "a changed Secret waits {probe:?}"
            );
            // Never before the session table lets the Secret be read again: a look for nothing costs a whole period.
            assert!(probe >= crate::vcenter::table::FRESH, "{probe:?}");
        }
        assert_eq!(delay(Class::Conflict, 1, "a"), CONFLICT);
        assert!(
            delay(Class::Conflict, 30, "a") >= FIRST,
            "conflicts are bounded"
        );
    }

    #[test]
    fn actors_spread_apart_yet_repeatably() {
        assert_eq!(
            delay(Class::Transient, 3, "a"),
            delay(Class::Transient, 3, "a")
        );
        assert_ne!(
            delay(Class::Transient, 3, "a"),
            delay(Class::Transient, 3, "b")
        );
    }
}
