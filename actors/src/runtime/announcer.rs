//! When a lasting state is announced, as an Event or as a log line. Pure.
//!
//! Guarantees
//! - A state that ends before [`Pace::first`] is never announced.
//! - A state is announced once, and again only after the times in its [`Pace`]. So changing reasons cause no burst of
//!   Events.

use std::{collections::BTreeMap, time::Duration};

/// A state that ends before this time is normal.
pub const QUIET: Duration = Duration::from_secs(30);

/// How often a kind of state is announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// How long a state must last before it is announced.
    pub first: Duration,
    /// How long after the last announcement another reason of the same state is announced. `None`: another reason is another
    /// state, which begins with [`Self::first`].
    pub other: Option<Duration>,
    /// How long after the last announcement the same reason is announced again; `None`: never.
    pub again: Option<Duration>,
}

impl Pace {
    /// Announced at once, and never again.
    pub const NEWS: Self = Self::once(Duration::ZERO);
    /// A problem that users may have to remove.
    pub const OBSTACLE: Self = Self {
        first: QUIET,
        other: Some(Duration::from_secs(4 * QUIET.as_secs())),
        again: Some(Duration::from_secs(900)),
    };

    /// Announced once, when it has lasted that long.
    #[must_use]
    pub const fn once(first: Duration) -> Self {
        Self {
            first,
            other: None,
            again: None,
        }
    }
}

/// Whether something is announced now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Announce it.
    Now,
    /// After that time; at least a second.
    In(Duration),
    /// It was announced.
    Never,
}

/// The lasting states, by topic; times are monotonic.
#[derive(Clone, Debug)]
pub struct Announcer<T>(BTreeMap<T, Lasting>);

#[derive(Clone, Debug)]
struct Lasting {
    reason: String,
    since: Duration,
    announced: Option<Duration>,
}

impl<T> Default for Announcer<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Ord> Announcer<T> {
    /// The state of `topic` lasts because of `reason`. Returns whether to announce it.
    pub fn due(&mut self, topic: T, reason: &str, now: Duration, pace: Pace) -> Due {
        let begins = |announced| Lasting {
            reason: reason.to_owned(),
            since: now,
            announced,
        };
        let state = self.0.entry(topic).or_insert_with(|| begins(None));
        if state.reason != reason {
            *state = begins(state.announced.filter(|_| pace.other.is_some()));
        }
        let at = match state.announced {
            None => Some(state.since + pace.first),
            Some(last) if state.since > last => pace.other.map(|other| last + other),
            Some(last) => pace.again.map(|again| last + again),
        };
        match at.map(|at| at.saturating_sub(now)) {
            None => Due::Never,
            Some(Duration::ZERO) => Due::Now,
            Some(left) => Due::In(left.max(Duration::from_secs(1))),
        }
    }

    /// It was announced.
    pub fn announced(&mut self, topic: &T, now: Duration) {
        if let Some(state) = self.0.get_mut(topic) {
            state.announced = Some(now);
        }
    }

    /// As [`Self::due`]; what is due counts as announced.
    pub fn announce(&mut self, topic: T, reason: &str, now: Duration, pace: Pace) -> Due
    where
        T: Clone,
    {
        let due = self.due(topic.clone(), reason, now, pace);
        if due == Due::Now {
            self.announced(&topic, now);
        }
        due
    }

    /// The state is over. The next one is a new state.
    pub fn over(&mut self, topic: &T) {
        self.0.remove(topic);
    }

    /// The states of all other topics are over.
    pub fn keep(&mut self, wanted: impl Fn(&T) -> bool) {
        self.0.retain(|topic, _| wanted(topic));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// The seconds at which an announcement is made, if each second has this reason.
    fn times(pace: Pace, seconds: u64, reason: impl Fn(u64) -> Option<&'static str>) -> Vec<u64> {
        let mut announcer = Announcer::default();
        let mut said = |second: &u64| match reason(*second) {
            Some(reason) => announcer.announce((), reason, s(*second), pace) == Due::Now,
            None => {
                announcer.over(&());
                false
            }
        };
        (0..seconds).filter(|second| said(second)).collect()
    }

    #[test]
    fn an_obstacle_is_announced_when_it_lasts_and_again_after_a_while() {
        let obstacle = Pace::OBSTACLE;
        assert_eq!(times(obstacle, 2000, |_| Some("A")), [30, 930, 1830]);
        let short = |second| (second % 31 < 30).then_some("A");
        assert_eq!(times(obstacle, 2000, short), [0; 0], "each one is short");
        // Another reason is announced sooner, but not at once.
        let other = |second| Some(if second < 40 { "A" } else { "B" });
        assert_eq!(times(obstacle, 1100, other), [30, 150, 1050]);
        // A reason that changes before the first announcement starts its time again.
        let early = |second| Some(if second < 20 { "A" } else { "B" });
        assert_eq!(times(obstacle, 100, early), [50]);
        let turns = |second| Some(if second % 2 == 0 { "A" } else { "B" });
        assert!(times(obstacle, 600, turns).len() <= 5);
    }

    #[test]
    fn news_are_announced_once_for_each_reason() {
        assert_eq!(times(Pace::NEWS, 5000, |_| Some("A")), [0]);
        let other = |second| Some(if second < 40 { "A" } else { "B" });
        assert_eq!(times(Pace::NEWS, 5000, other), [0, 40]);
        let back = |second| (second != 7).then_some("A");
        assert_eq!(times(Pace::NEWS, 5000, back), [0, 8]);
        assert_eq!(times(Pace::once(s(600)), 5000, |_| Some("A")), [600]);
    }

    #[test]
    fn who_asks_hears_how_long_it_is_until_then() {
        let mut announcer = Announcer::default();
        let mut due = |second| announcer.announce("x", "A", s(second), Pace::OBSTACLE);
        assert_eq!(due(0), Due::In(s(30)));
        assert_eq!(due(29), Due::In(s(1)));
        assert_eq!(due(30), Due::Now);
        assert_eq!(due(31), Due::In(s(899)));
        assert_eq!(announcer.announce("y", "A", s(31), Pace::NEWS), Due::Now);
        assert_eq!(announcer.announce("y", "A", s(32), Pace::NEWS), Due::Never);
        announcer.keep(|topic| *topic == "y");
        assert_eq!(announcer.due("x", "A", s(33), Pace::NEWS), Due::Now);
        assert_eq!(
            announcer.due("x", "A", s(33), Pace::NEWS),
            Due::Now,
            "not announced"
        );
    }
}
