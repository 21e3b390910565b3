//! Whether a vCenter that cannot be reached is worth another try.
//!
//! Hundreds of VM actors look at theirs by one vCenter. While that is away, each look would be a connection of its own;
//! so who comes between two tries shares the last one's failure, and nothing leaves.
//! Guarantee: from the first failed connection on, nobody tries for [`FIRST`], then for twice that, up to [`MOST`]: in
//! two hours fewer than 200 times, and the return is noticed within [`MOST`]. Any reply, whatever it says, ends it.
//! Those that come between the end of a pause and the next failure all try, and count as one: requests of one pass go out
//! side by side, and if all but one were refused, that one would be dropped with them, unheard.
//!
//! Nobody may have work there for hours: who has not been heard of for [`SILENCE`] is in doubt, and asked for something small
//! by whoever wants to know ([`Client::is_there`]).

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use agent_forge_actors::{
    domain::{failure::Class, names::MoRef},
    ports::vcenter::{VcError, VcResult},
};
use tokio::time::Instant;

use super::{client::Client, properties::Question, session::Asked};

/// From the first failed connection to the next try.
const FIRST: Duration = Duration::from_secs(1);
/// Between two tries at most.
const MOST: Duration = Duration::from_secs(40);
/// Who has not been heard of for so long may be away.
const SILENCE: Duration = Duration::from_secs(120);

/// What is known of the way to one vCenter.
#[derive(Debug, Default)]
pub(crate) struct CircuitBreaker(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    away: Option<Away>,
    heard: Option<Instant>,
}

#[derive(Debug)]
struct Away {
    pause: Duration,
    until: Instant,
    message: String,
}

impl CircuitBreaker {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether to try now.
    ///
    /// # Errors
    /// Not yet: why the last try failed.
    pub(crate) fn worth_a_try(&self) -> Result<(), String> {
        match &self.known().away {
            Some(away) if Instant::now() < away.until => Err(away.message.clone()),
            _ => Ok(()),
        }
    }

    /// No connection came about.
    pub(crate) fn failed(&self, message: String) {
        let now = Instant::now();
        let mut known = self.known();
        let pause = match &known.away {
            // Several set out together: their failures are one.
            Some(away) if now < away.until => return,
            Some(away) => (away.pause * 2).min(MOST),
            None => FIRST,
        };
        known.away = Some(Away {
            pause,
            until: now + pause,
            message,
        });
    }

    /// The server was there.
    pub(crate) fn answered(&self) {
        *self.known() = Known {
            away: None,
            heard: Some(Instant::now()),
        };
    }

    /// It could not be reached last, or nothing has been heard of it for a while.
    pub(crate) fn is_in_doubt(&self) -> bool {
        let known = self.known();
        known.away.is_some() || known.heard.is_none_or(|at| at.elapsed() >= SILENCE)
    }
}

impl Client {
    /// Does vCenter answer? Whatever else its answer says, it is one.
    pub(crate) async fn is_there(&self) -> VcResult<()> {
        if !self.http.is_in_doubt() {
            return Ok(());
        }
        let root: MoRef = match self.session(Asked::ByCall).await {
            Ok(session) => session.endpoint.content.root_folder.clone().into(),
            Err(e) => return transient(e),
        };
        let question = Question::about("root folder")
            .read("Folder", &["name"])
            .from(&root, Vec::new());
        match self.retrieve(question).await {
            Ok(_) => Ok(()),
            Err(e) => transient(e),
        }
    }
}

/// The failure, unless it is somebody's word.
fn transient(e: VcError) -> VcResult<()> {
    if e.class() == Class::Transient {
        return Err(e);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn two_hours_take_fewer_than_two_hundred_tries() {
        let reach = CircuitBreaker::default();
        let (began, mut tries) = (Instant::now(), 0);
        while began.elapsed() < Duration::from_secs(7200) {
            if reach.worth_a_try().is_ok() {
                tries += 1;
                reach.failed("refused".to_owned());
                reach.failed("another one that set out with it".to_owned());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!((180..200).contains(&tries), "{tries} tries");
    }

    #[tokio::test(start_paused = true)]
    async fn a_reply_ends_it_and_the_next_failure_begins_anew() {
        let reach = CircuitBreaker::default();
        for _ in 0..8 {
            reach.failed("refused".to_owned());
            tokio::time::sleep(MOST).await;
        }
        reach.answered();
        reach.failed("refused again".to_owned());
        assert_eq!(reach.worth_a_try(), Err("refused again".to_owned()));
        tokio::time::sleep(FIRST).await;
        assert_eq!(reach.worth_a_try(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_silent_or_away_is_in_doubt() {
        let reach = CircuitBreaker::default();
        assert!(reach.is_in_doubt(), "nobody has asked yet");
        reach.answered();
        assert!(!reach.is_in_doubt());
        tokio::time::sleep(SILENCE).await;
        assert!(reach.is_in_doubt());
        reach.answered();
        reach.failed("refused".to_owned());
        assert!(reach.is_in_doubt());
    }
}
