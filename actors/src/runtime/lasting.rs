//! When something that lasts is told to people: not at once, then once, and again only after a while. Pure.

use std::time::Duration;

/// What ends before that is the usual course of things.
pub const QUIET: Duration = Duration::from_secs(30);
/// What goes on for the same reason is said again after that.
pub const AGAIN: Duration = Duration::from_secs(900);

/// Something that lasts, for a reason that may change; times are monotonic.
#[derive(Clone, Debug)]
pub struct Lasting {
    reason: String,
    since: Duration,
    said: Option<Duration>,
}

impl Lasting {
    /// It begins.
    #[must_use]
    pub fn new(reason: &str, now: Duration) -> Self {
        Self {
            reason: reason.to_owned(),
            since: now,
            said: None,
        }
    }

    /// It goes on. What was said of another reason stays in mind: reasons that take turns are no storm.
    pub fn goes_on(&mut self, reason: &str, now: Duration) {
        if self.reason != reason {
            *self = Self {
                said: self.said,
                ..Self::new(reason, now)
            };
        }
    }

    /// Whether it is to be said now, which counts as done then.
    ///
    /// # Errors
    /// How long until it is.
    pub fn say(&mut self, now: Duration) -> Result<(), Duration> {
        if self.due() > now {
            return Err(self.left(now));
        }
        self.said = Some(now);
        Ok(())
    }

    /// How long until it is to be said, at least a second.
    #[must_use]
    pub fn left(&self, now: Duration) -> Duration {
        self.due().saturating_sub(now).max(Duration::from_secs(1))
    }

    fn due(&self) -> Duration {
        self.said.map_or(self.since + QUIET, |said| {
            let changed = self.since > said;
            said + if changed { QUIET * 4 } else { AGAIN }
        })
    }
}
