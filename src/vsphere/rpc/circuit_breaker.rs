//! Whether a vCenter that cannot be reached is worth another try.
//!
//! Hundreds of VM actors share one vCenter. While it is away, each of their calls would open a connection of its own.
//! So between two tries every call fails with the last failure, and nothing is sent.
//!
//! After the first failed connection there is no try for [`FIRST`], then for twice that, up to [`MOST`]. That is fewer
//! than 200 tries in two hours, and the operator notices the return within [`MOST`]. Any reply closes the breaker.
//!
//! Calls between the end of a pause and the next failure all try, and count as one try. The requests of one pass leave
//! together: if the breaker let only one through, that one would be cancelled with the others.
//!
//! There may be no work at a vCenter for hours. After [`SILENCE`] without a reply it is in doubt, and
//! [`Client::is_there`] sends a small read.

use std::{
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use agent_forge_actors::{
    domain::{failure::Class, names::MoRef},
    ports::vcenter::{VcError, VcResult},
};
use tokio::time::Instant;

use super::{client::Client, locked, properties::Question, session::Asked};

/// Pause after the first failed connection.
const FIRST: Duration = Duration::from_secs(1);
/// Longest pause.
const MOST: Duration = Duration::from_secs(40);
/// After so long without a reply, a vCenter may be away.
const SILENCE: Duration = Duration::from_secs(120);

/// What is known about the connection to one vCenter.
#[derive(Debug, Default)]
pub(crate) struct CircuitBreaker(Mutex<Signs>);

#[derive(Debug, Default)]
struct Signs {
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
    fn known(&self) -> MutexGuard<'_, Signs> {
        locked(&self.0)
    }

    /// Whether to try now.
    ///
    /// # Errors
    /// Why the last try failed, while the pause lasts.
    pub(crate) fn worth_a_try(&self) -> Result<(), String> {
        match &self.known().away {
            Some(away) if Instant::now() < away.until => Err(away.message.clone()),
            _ => Ok(()),
        }
    }

    /// Notes that a connection failed.
    pub(crate) fn failed(&self, message: String) {
        let now = Instant::now();
        let mut known = self.known();
        let pause = match &known.away {
            // Several calls left together: their failures count as one.
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
    pub(crate) fn answered(&self) {
        *self.known() = Signs {
            away: None,
            heard: Some(Instant::now()),
        };
    }

    /// Whether the last connection failed, or the last reply is old.
    pub(crate) fn is_in_doubt(&self) -> bool {
        let known = self.known();
        known.away.is_some() || known.heard.is_none_or(|at| at.elapsed() >= SILENCE)
    }
}

impl Client {
    /// Asks vCenter for something small. Any answer counts, also a fault.
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

/// The failure, unless vCenter itself answered with it.
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
