//! The only backoff of the operator: how long to wait after the n-th failure in a row.

use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::domain::failure::Class;

/// Period of the resync, which replaces lost messages.
pub const RESYNC: Duration = Duration::from_secs(60);
/// Period of the slow probe, while only a changed input can help. A changed object wakes the actor at once. A changed Secret
/// does not, because Secrets are not watched. Its change must still take effect within 30 s, with jitter and a login in that
/// time.
pub const SLOW_PROBE: Duration = Duration::from_secs(20);
const FIRST: Duration = Duration::from_millis(500);
const CAP: Duration = Duration::from_secs(30);
const CONFLICT: Duration = Duration::from_millis(50);

/// Delay before the next try.
///
/// `failures` counts failures in a row, this one included. `seed` (the actor's key) spreads the actors: the jitter of up to
/// a quarter is a hash of it. So the same run waits the same times.
#[must_use]
pub fn delay(class: Class, failures: u32, seed: &str) -> Duration {
    match class {
        // The first new look is almost always the last one. A late view causes many conflicts.
        Class::Conflict => doubled(CONFLICT, failures, CAP),
        Class::Transient => {
            let base = doubled(FIRST, failures, CAP);
            base + jitter(base / 4, failures, seed)
        }
        Class::Throttled(after) => after.max(FIRST),
        Class::Blocked | Class::Defect => SLOW_PROBE + jitter(SLOW_PROBE / 6, failures, seed),
    }
}

/// `first` after the first failure in a row, twice as long after each further one, and never longer than `cap`.
#[must_use]
pub fn doubled(first: Duration, failures: u32, cap: Duration) -> Duration {
    let times = failures.saturating_sub(1).min(31);
    first.saturating_mul(1_u32 << times).min(cap)
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
            // Never before the session table allows another read of the Secret: a look too early wastes a whole period.
            assert!(probe >= crate::sessions::table::FRESH, "{probe:?}");
        }
        assert_eq!(delay(Class::Conflict, 1, "a"), CONFLICT);
        assert!(
            delay(Class::Conflict, 30, "a") >= FIRST,
            "conflicts are bounded"
        );
    }

    #[test]
    fn each_class_waits_as_it_is_told() {
        let (s, ms) = (Duration::from_secs, Duration::from_millis);
        // With up to a quarter, or a sixth, of jitter.
        for (class, failures, least, most) in [
            (Class::Conflict, 0, ms(50), ms(50)),
            (Class::Conflict, 1, ms(50), ms(50)),
            (Class::Conflict, 2, ms(100), ms(100)),
            (Class::Conflict, 10, ms(25_600), ms(25_600)),
            (Class::Conflict, 11, CAP, CAP),
            (Class::Conflict, u32::MAX, CAP, CAP),
            (Class::Transient, 0, ms(500), ms(625)),
            (Class::Transient, 1, ms(500), ms(625)),
            (Class::Transient, 2, s(1), ms(1250)),
            (Class::Transient, 6, s(16), s(20)),
            (Class::Transient, 7, CAP, ms(37_500)),
            (Class::Transient, u32::MAX, CAP, ms(37_500)),
            (Class::Throttled(s(90)), 3, s(90), s(90)),
            (Class::Throttled(ms(1)), 3, FIRST, FIRST),
            (Class::Blocked, 1, s(20), ms(23_334)),
            (Class::Defect, 9, s(20), ms(23_334)),
        ] {
            let each = (0..64).map(|actor| delay(class, failures, &actor.to_string()));
            let (shortest, longest) = each.fold((Duration::MAX, Duration::ZERO), |(a, z), wait| {
                (a.min(wait), z.max(wait))
            });
            let what = format!("{class:?} {failures}: {shortest:?} to {longest:?}");
            assert!(least <= shortest && longest <= most, "{what}");
            // The delays use the whole range.
            assert!((longest - shortest) * 2 >= most - least, "{what}");
        }
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
