//! Failures of the flight table's sources: how long each holds, and when to say that it is over.

use std::{collections::BTreeMap, time::Duration};

use super::entry::Source;
use crate::{
    domain::failure::{ErrorSource, ReconcileError},
    runtime::backoff,
};

#[derive(Clone, Debug)]
struct Backoff {
    failures: u32,
    until: Duration,
    trouble: ReconcileError,
    announced: bool,
}

/// Backoffs by source.
#[derive(Clone, Debug, Default)]
pub(super) struct Backoffs(BTreeMap<Source, Backoff>);

impl Backoffs {
    /// May this source not be tried yet?
    pub(super) fn holds(&self, source: &Source, now: Duration) -> bool {
        self.0.get(source).is_some_and(|b| b.until > now)
    }

    /// It may be tried again: what it failed for is mended. Whoever calls wakes its pools.
    pub(super) fn end(&mut self, source: &Source) {
        if let Some(backoff) = self.0.get_mut(source) {
            (backoff.until, backoff.announced) = (Duration::ZERO, true);
        }
    }

    /// It may be tried again, if its last failure was the ISO source's.
    pub(super) fn release(&mut self, source: &Source) {
        if let Some(backoff) = self.0.get_mut(source)
            && backoff.trouble.side == ErrorSource::Iso
        {
            (backoff.until, backoff.announced) = (Duration::ZERO, true);
        }
    }

    /// Its last failure, until it succeeds.
    pub(super) fn trouble(&self, source: &Source) -> Option<&ReconcileError> {
        self.0.get(source).map(|b| &b.trouble)
    }

    /// One more failure in a row.
    pub(super) fn failed(&mut self, source: Source, trouble: ReconcileError, now: Duration) {
        let failures = self
            .0
            .get(&source)
            .map_or(1, |b| b.failures.saturating_add(1));
        let until = now + delay(&trouble, failures, &source);
        self.0.insert(
            source,
            Backoff {
                failures,
                until,
                trouble,
                announced: false,
            },
        );
    }

    /// It worked; `true` when it had failed before.
    pub(super) fn succeeded(&mut self, source: &Source) -> bool {
        self.0.remove(source).is_some()
    }

    /// Sources whose backoff is over by now; each is named once per backoff.
    pub(super) fn due(&mut self, now: Duration) -> Vec<Source> {
        let mut due = Vec::new();
        for (source, backoff) in &mut self.0 {
            if !backoff.announced && backoff.until <= now {
                backoff.announced = true;
                due.push(source.clone());
            }
        }
        due
    }

    /// When [`Self::due`] has something to say next.
    pub(super) fn next_due(&self) -> Option<Duration> {
        self.0
            .values()
            .filter(|b| !b.announced)
            .map(|b| b.until)
            .min()
    }

    /// Other moments.
    pub(super) fn retell(&mut self, moment: &dyn Fn(Duration) -> Duration) {
        for backoff in self.0.values_mut() {
            backoff.until = moment(backoff.until);
        }
    }

    /// Most failures in a row.
    pub(super) fn most_failures(&self) -> u32 {
        self.0
            .values()
            .map(|b| b.failures)
            .max()
            .unwrap_or_default()
    }

    /// Drops what is over and nobody wants.
    pub(super) fn forget(&mut self, now: Duration, wanted: impl Fn(&Source) -> bool) {
        self.0.retain(|source, b| b.until > now || wanted(source));
    }
}

/// A failure holds that long at least: its pools are woken by it, and have to ask before the next try hides it.
pub(super) const HEARD: Duration = Duration::from_secs(2);

/// How long a failure holds.
pub(super) fn delay(trouble: &ReconcileError, failures: u32, source: &Source) -> Duration {
    let key = format!("{}/{}", source.0, source.1);
    backoff::delay(trouble.class, failures, &key).max(HEARD)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{failure::Class, names::DatastorePath};

    fn source(key: &str) -> Source {
        let directory = DatastorePath::new("ds", "d").expect("path");
        (directory, key.to_owned())
    }

    fn failed(side: ErrorSource, class: Class) -> ReconcileError {
        ReconcileError {
            side,
            reason: "R".to_owned(),
            message: "m".to_owned(),
            class,
        }
    }

    #[test]
    fn what_is_mended_is_tried_at_once_and_its_trouble_told_until_it_works() {
        let (one, other) = (source("one"), source("other"));
        for (side, released) in [(ErrorSource::Iso, true), (ErrorSource::Vsphere, false)] {
            type Ends = fn(&mut Backoffs, &Source);
            let ends: [(Ends, bool); 2] = [(Backoffs::end, true), (Backoffs::release, released)];
            for (end, ended) in ends {
                let mut all = Backoffs::default();
                for _ in 0..3 {
                    all.failed(one.clone(), failed(side, Class::Blocked), Duration::ZERO);
                }
                all.failed(other.clone(), failed(side, Class::Blocked), Duration::ZERO);
                assert!(all.holds(&one, HEARD) && all.holds(&other, HEARD));
                assert_eq!(all.most_failures(), 3);
                end(&mut all, &one);
                assert_eq!(all.holds(&one, HEARD), !ended, "{side:?}");
                assert!(all.holds(&other, HEARD) && all.trouble(&one).is_some());
                // Whoever mended it has said so.
                let due = all.due(Duration::from_secs(60));
                assert_eq!(due.contains(&one), !ended, "{side:?}");
                assert!(all.succeeded(&one) && !all.succeeded(&one));
                assert_eq!(all.most_failures(), 1);
            }
        }
    }

    #[test]
    fn the_image_servers_word_counts_and_a_changed_secret_is_heard_of_soon() {
        let source = source("key");
        let told = Duration::from_secs(600);
        let throttled = failed(ErrorSource::Iso, Class::Throttled(told));
        assert_eq!(delay(&throttled, 1, &source), told);
        // A refused password rests where it was refused, for longer.
        let refused = failed(ErrorSource::Vsphere, Class::Blocked);
        assert!(delay(&refused, 9, &source) < Duration::from_secs(30));
    }
}
