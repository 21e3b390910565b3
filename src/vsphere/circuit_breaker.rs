//! Decides whether a request to an unreachable vCenter is sent at all.
//!
//! Hundreds of VM actors use one vCenter. While it is unreachable, each request would open a connection of its own. So
//! a request between two tries fails at once with the last error, and nothing is sent.
//!
//! Guarantee: after the first failed connection nothing is sent for [`FIRST`], then for twice as long, up to [`MOST`].
//! That is fewer than 200 tries in two hours, and the return of vCenter is noticed within [`MOST`]. Any reply ends this
//! state. All requests that come between the end of a pause and the next failure are sent, and count as one try. A pass
//! sends several requests side by side, and drops all of them when one fails. If only one of them were allowed, it
//! would be dropped before its answer.
//!
//! Sometimes no request is sent for hours. When nothing was heard of a vCenter for [`SILENCE`], its state is unknown.
//! Then [`Client::is_there`] finds out with a small request.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use agent_forge_actors::{
    error::Class,
    model::names::MoRef,
    ports::vcenter::{VcError, VcResult},
};
use tokio::time::Instant;

use super::{client::Client, properties::Question, session::Asked};

/// From the first failed connection to the next try.
const FIRST: Duration = Duration::from_secs(1);
/// Longest pause between two tries.
const MOST: Duration = Duration::from_secs(40);
/// When nothing was heard for this long, the vCenter may be unreachable.
const SILENCE: Duration = Duration::from_secs(120);

/// What is known about the connection to one vCenter.
#[derive(Debug, Default)]
pub(super) struct CircuitBreaker(Mutex<Known>);

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

    /// Whether a request may be sent now.
    ///
    /// # Errors
    /// Not yet. The message says why the last try failed.
    pub(super) fn worth_a_try(&self) -> Result<(), String> {
        match &self.known().away {
            Some(away) if Instant::now() < away.until => Err(away.message.clone()),
            _ => Ok(()),
        }
    }

    /// Notes that no connection was possible.
    pub(super) fn failed(&self, message: String) {
        let now = Instant::now();
        let mut known = self.known();
        let pause = match &known.away {
            // Several requests were sent together. Their failures count as one.
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

    /// Notes that the server answered.
    pub(super) fn answered(&self) {
        *self.known() = Known {
            away: None,
            heard: Some(Instant::now()),
        };
    }

    /// Whether the last connection failed, or nothing has been heard for a while.
    pub(super) fn is_in_doubt(&self) -> bool {
        let known = self.known();
        known.away.is_some() || known.heard.is_none_or(|at| at.elapsed() >= SILENCE)
    }
}

impl Client {
    /// Whether vCenter answers. Any answer counts.
    pub(super) async fn is_there(&self) -> VcResult<()> {
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

/// Passes on a failure only if it is transient. Any other failure is an answer of the vCenter.
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
