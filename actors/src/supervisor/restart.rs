//! When a dead actor is started anew: a budget of its own per actor, exponential backoff, a cap. Pure.

use std::time::Duration;

/// Restarts older than this are forgotten.
pub const WINDOW: Duration = Duration::from_secs(60);
const FIRST: Duration = Duration::from_millis(100);
const CAP: Duration = Duration::from_secs(5);
/// Everybody waits for an infrastructure actor, and starting one costs nothing: it is never away for long.
const INFRASTRUCTURE_CAP: Duration = Duration::from_secs(1);
/// So many restarts of one infrastructure actor within the window end the process: something is wrong that only a new
/// start, or a person, can mend.
const ESCALATE_AFTER: usize = 25;

/// What to do about a death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Start it anew after that.
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
    /// Notes a death at `now` (monotonic). VM and pool actors are never given up; `infrastructure` ones escalate.
    pub fn died(&mut self, now: Duration, infrastructure: bool) -> Verdict {
        self.deaths.retain(|at| now.saturating_sub(*at) < WINDOW);
        self.deaths.push(now);
        let times = self.deaths.len();
        if infrastructure && times > ESCALATE_AFTER {
            return Verdict::Escalate;
        }
        let exponent = u32::try_from(times - 1).unwrap_or(u32::MAX).min(12);
        let cap = if infrastructure {
            INFRASTRUCTURE_CAP
        } else {
            CAP
        };
        Verdict::RestartAfter(FIRST.saturating_mul(1 << exponent).min(cap))
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
    fn only_infrastructure_escalates() {
        let mut b = Budget::default();
        let last = (0..=ESCALATE_AFTER)
            .map(|_| b.died(Duration::ZERO, true))
            .last();
        assert_eq!(last, Some(Verdict::Escalate));
    }
}
