//! Gathers what was done with VsphereAgents into one Event. Pure, except for its own memory.
//!
//! A NodePool that grows by ten takes several passes, and gets one Event.
//! Caveat: what was done within [`GATHER`] before the actor ends is not announced.

use std::time::Duration;

use crate::pool::outcome::Acted;

/// How long the Event waits for more.
pub const GATHER: Duration = Duration::from_secs(2);

/// What was done and is not announced yet.
#[derive(Debug, Default)]
pub struct Applied {
    created: usize,
    reassigned: usize,
    released: usize,
    /// Since when (monotonic) there is something to announce.
    since: Option<Duration>,
}

impl Applied {
    /// Adds what was done by `now`, which is monotonic.
    pub fn add(&mut self, acted: &Acted, now: Duration) {
        self.created += acted.created;
        self.reassigned += acted.reassigned;
        self.released += acted.released;
        if acted.created + acted.reassigned + acted.released > 0 {
            self.since.get_or_insert(now);
        }
    }

    /// The note that is due. It counts as announced from then on.
    ///
    /// # Errors
    /// Nothing is due. The value is the time that is left, if something waits.
    pub fn due(&mut self, now: Duration) -> Result<String, Option<Duration>> {
        let Some(since) = self.since else {
            return Err(None);
        };
        let left = GATHER.saturating_sub(now.saturating_sub(since));
        if !left.is_zero() {
            return Err(Some(left));
        }
        let Self {
            created,
            reassigned,
            released,
            ..
        } = std::mem::take(self);
        Ok(format!(
            "VsphereAgents: {created} created, {reassigned} reassigned, {released} released"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acted(created: usize, released: usize) -> Acted {
        Acted {
            created,
            reassigned: 0,
            released,
            gone: false,
            again: None,
            held: Vec::new(),
            result: Ok(()),
        }
    }

    #[test]
    fn what_follows_closely_is_one_piece_of_news() {
        let ms = Duration::from_millis;
        let mut applied = Applied::default();
        applied.add(&acted(0, 0), ms(0));
        assert_eq!(applied.due(ms(5000)), Err(None), "nothing was done");
        applied.add(&acted(3, 0), ms(5000));
        assert_eq!(applied.due(ms(5000)), Err(Some(GATHER)));
        applied.add(&acted(7, 1), ms(6500));
        // Later actions do not delay the Event.
        assert_eq!(applied.due(ms(6500)), Err(Some(ms(500))));
        let all = "VsphereAgents: 10 created, 0 reassigned, 1 released";
        assert_eq!(applied.due(ms(7000)), Ok(all.to_owned()));
        assert_eq!(applied.due(ms(60_000)), Err(None), "it was told");
        applied.add(&acted(0, 2), ms(60_000));
        let next = "VsphereAgents: 0 created, 0 reassigned, 2 released";
        assert_eq!(applied.due(ms(62_000)), Ok(next.to_owned()));
    }
}
