//! Whether a VM that serves, and that somebody switched off, is switched on again: `spec.power` of the pool. Pure.
//!
//! The operator switches off only VMs that it removes, so a VM that it keeps was switched off by somebody else.

use std::time::Duration;

use agent_forge_crds::{Time, pool::PowerPolicy};
use jiff::{SignedDuration, Timestamp};

/// Two looks at least that far apart must show the VM switched off.
pub const APART: Duration = Duration::from_secs(60);
/// How often a VM is switched on again within [`WITHIN`].
pub const MOST: usize = 3;
/// See [`MOST`].
pub const WITHIN: SignedDuration = SignedDuration::from_hours(1);

/// The first and the last of the looks in a row that showed the VM switched off. Monotonic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffSeen {
    /// The first.
    pub first: Duration,
    /// The last.
    pub last: Duration,
}

/// What becomes of a VM that is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// People decide.
    Report,
    /// A look after this long decides.
    SecondLook(Duration),
    /// It was switched on too often. The next time is after this long.
    Limited(Duration),
    /// It is switched on.
    Now,
}

/// Decides. `before`: when the operator switched it on again so far.
#[must_use]
pub fn again(policy: PowerPolicy, off: Option<OffSeen>, before: &[Time], now: Timestamp) -> Again {
    if policy == PowerPolicy::Report {
        return Again::Report;
    }
    let recent = recent(before, now);
    if let Some(first) = recent.len().checked_sub(MOST) {
        let since = now.duration_since(recent[first].0);
        let left = Duration::try_from(WITHIN.saturating_sub(since)).unwrap_or_default();
        return Again::Limited(left);
    }
    let seen = off.map_or(Duration::ZERO, |off| off.last.saturating_sub(off.first));
    match APART.saturating_sub(seen) {
        Duration::ZERO => Again::Now,
        left => Again::SecondLook(left),
    }
}

/// Those that still count, in order.
#[must_use]
pub fn recent(before: &[Time], now: Timestamp) -> Vec<Time> {
    let counts = |at: &&Time| now.duration_since(at.0) < WITHIN;
    let mut all: Vec<Time> = before.iter().filter(counts).cloned().collect();
    all.sort();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;

    const MINUTE: i64 = 60;

    fn times(minutes: &[i64]) -> Vec<Time> {
        minutes.iter().map(|m| Time(at(m * MINUTE))).collect()
    }

    fn seen(first: u64, last: u64) -> Option<OffSeen> {
        Some(OffSeen {
            first: Duration::from_secs(first),
            last: Duration::from_secs(last),
        })
    }

    #[test]
    fn two_looks_a_minute_apart_switch_it_on_and_only_if_the_pool_says_so() {
        let s = Duration::from_secs;
        for (off, expected) in [
            (None, Again::SecondLook(s(60))),
            (seen(100, 100), Again::SecondLook(s(60))),
            (seen(100, 159), Again::SecondLook(s(1))),
            (seen(100, 160), Again::Now),
            (seen(100, 900), Again::Now),
        ] {
            let decided = |policy| again(policy, off, &[], at(0));
            assert_eq!(decided(PowerPolicy::EnsureOn), expected, "{off:?}");
            assert_eq!(decided(PowerPolicy::Report), Again::Report);
        }
    }

    #[test]
    fn three_times_an_hour_and_not_more() {
        let decided = |before: &[i64], now: i64| {
            let before = times(before);
            again(
                PowerPolicy::EnsureOn,
                seen(0, 60),
                &before,
                at(now * MINUTE),
            )
        };
        let minutes = |m: u64| Again::Limited(Duration::from_secs(m * 60));
        assert_eq!(decided(&[0, 10], 20), Again::Now);
        assert_eq!(decided(&[0, 10, 20], 30), minutes(30));
        assert_eq!(decided(&[20, 0, 10], 59), minutes(1), "in any order");
        assert_eq!(decided(&[0, 10, 20], 60), Again::Now);
        assert_eq!(decided(&[0, 10, 20, 30], 40), minutes(30));
        // A clock that was set back only makes the answer stricter.
        assert_eq!(decided(&[50, 51, 52], 0), minutes(110));
    }
}
