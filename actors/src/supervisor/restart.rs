//! When a dead actor restarts. Each actor has its own budget, with exponential backoff and a cap. Pure.

use std::time::Duration;

use crate::runtime::backoff;

/// Restarts older than this do not count.
pub const WINDOW: Duration = Duration::from_secs(60);
const FIRST: Duration = Duration::from_millis(100);
const CAP: Duration = Duration::from_secs(5);
/// All actors wait for an infrastructure actor, and a start costs little. So it is never away for long.
const INFRASTRUCTURE_CAP: Duration = Duration::from_secs(1);
/// This many restarts of one infrastructure actor within the window end the process. Only a new process, or a user, can then
/// repair the cause.
const ESCALATE_AFTER: usize = 25;

/// What to do about a death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Restart it after that time.
    RestartAfter(Duration),
    /// End the process.
    Escalate,
}

/// The deaths of one actor.
#[derive(Clone, Debug, Default)]
pub struct Budget {
    deaths: Vec<Duration>,
}

impl Budget {
    /// Records a death at `now` (monotonic). VM and pool actors always restart; `infrastructure` actors escalate.
    pub fn died(&mut self, now: Duration, infrastructure: bool) -> Verdict {
        self.deaths.retain(|at| now.saturating_sub(*at) < WINDOW);
        self.deaths.push(now);
        let times = self.deaths.len();
        if infrastructure && times > ESCALATE_AFTER {
            return Verdict::Escalate;
        }
        let failures = u32::try_from(times).unwrap_or(u32::MAX);
        let cap = if infrastructure {
            INFRASTRUCTURE_CAP
        } else {
            CAP
        };
        Verdict::RestartAfter(backoff::doubled(FIRST, failures, cap))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_grows_is_capped_and_forgets() {
        let mut b = Budget::default();
        assert_eq!(b.died(Duration::ZERO, false), Verdict::RestartAfter(FIRST));
        assert_eq!(
            b.died(Duration::from_secs(1), false),
            Verdict::RestartAfter(FIRST * 2)
        );
        for n in 2..200 {
            assert!(
                matches!(b.died(Duration::from_secs(n), false), Verdict::RestartAfter(d) if d <= CAP)
            );
        }
        assert_eq!(
            b.died(Duration::from_secs(400), false),
            Verdict::RestartAfter(FIRST)
        );
    }

    #[test]
    fn a_death_counts_for_a_window() {
        let ms = Duration::from_millis;
        for (again, after) in [(59_999, 200), (60_000, 100)] {
            let mut b = Budget::default();
            b.died(Duration::ZERO, false);
            let verdict = b.died(ms(again), false);
            assert_eq!(verdict, Verdict::RestartAfter(ms(after)), "{again}");
        }
    }

    #[test]
    fn each_death_doubles_the_wait_up_to_its_cap() {
        for (infrastructure, waits) in [
            (false, [100, 200, 400, 800, 1600, 3200, 5000, 5000]),
            (true, [100, 200, 400, 800, 1000, 1000, 1000, 1000]),
        ] {
            let mut b = Budget::default();
            for wait in waits.map(Duration::from_millis) {
                let verdict = b.died(Duration::ZERO, infrastructure);
                assert_eq!(verdict, Verdict::RestartAfter(wait));
            }
        }
    }

    #[test]
    fn only_infrastructure_escalates() {
        for (infrastructure, escalates) in [(true, true), (false, false)] {
            let mut b = Budget::default();
            for n in 1..=ESCALATE_AFTER + 1 {
                let verdict = b.died(Duration::ZERO, infrastructure);
                let expected = escalates && n > ESCALATE_AFTER;
                assert_eq!(verdict == Verdict::Escalate, expected, "death {n}");
            }
        }
    }
}
