//! Status writes that can wait for company.
//!
//! A status moves in small steps that follow each other closely (an Agent appears, is prepared, is bound). What a person
//! or a controller has to know at once is written at once; the rest is written when it has waited for a while, and takes
//! along whatever changed meanwhile.

use std::time::Duration;

/// Since when something waits to be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    since: Option<Duration>,
}

impl Batch {
    /// There is something to write at monotonic time `now`, which may wait for `window`: `None` says write it, else the
    /// time that is left.
    #[must_use]
    pub fn hold(&mut self, now: Duration, window: Duration) -> Option<Duration> {
        let since = *self.since.get_or_insert(now);
        let left = window.saturating_sub(now.saturating_sub(since));
        (!left.is_zero()).then_some(left)
    }

    /// Nothing waits any more: it was written, or there is no difference.
    pub fn clear(&mut self) {
        self.since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_begins_with_the_first_difference() {
        let s = Duration::from_secs;
        let mut batch = Batch::default();
        for (now, left) in [
            (10, Some(s(2))),
            // Another difference does not put it off.
            (11, Some(s(1))),
            (12, None),
            // A write that failed is due at once.
            (13, None),
        ] {
            assert_eq!(batch.hold(s(now), s(2)), left, "at {now}");
        }
        batch.clear();
        assert_eq!(batch.hold(s(20), s(2)), Some(s(2)));
        assert_eq!(Batch::default().hold(s(1), Duration::ZERO), None);
    }
}
