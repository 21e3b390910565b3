//! Server-sent events: one for each change, at most one a second. An event has no content except a number. The page then
//! asks for the topology again.

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use futures::stream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::telemetry::{
    http::{Answer, Body, stream_of},
    places::{NoPlace, Place, Places},
};

/// The most clients at the same time.
pub const MOST: usize = 64;
/// The most clients of one viewer.
pub const EACH: usize = 16;
/// How often the version is compared.
const EVERY: Duration = Duration::from_secs(1);
/// After this time without a change the client gets a comment, so that both sides notice a dead connection.
const QUIET: Duration = Duration::from_secs(15);
/// The stream ends after this time. The client connects again, and its rights are checked again.
pub const LONGEST: Duration = Duration::from_secs(300);

/// The clients that follow.
#[derive(Clone)]
pub struct Followers(Places);

impl Default for Followers {
    fn default() -> Self {
        Self(Places::new(MOST, EACH))
    }
}

struct Follower {
    beats: tokio::time::Interval,
    told: Option<u64>,
    last: Instant,
    end: Instant,
    /// A place among the clients. It is free again when the stream is dropped.
    _place: Place,
}

impl Followers {
    /// A stream for that viewer of the versions that `version` returns. The first event comes at once.
    ///
    /// # Errors
    /// There is no place.
    pub fn follow(
        &self,
        viewer: &str,
        version: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Result<Answer, NoPlace> {
        let place = self.0.take(viewer)?;
        let mut beats = interval(EVERY);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let now = Instant::now();
        let follower = Follower {
            beats,
            told: None,
            last: now,
            end: now + LONGEST,
            _place: place,
        };
        let events = stream::unfold((follower, version), |(mut follower, version)| async move {
            let event = follower.next(&version).await?;
            let frame = Ok::<_, Infallible>(Frame::data(Bytes::from(event)));
            Some((frame, (follower, version)))
        });
        let body: Body = StreamBody::new(events).boxed_unsync();
        Ok(stream_of("text/event-stream", body))
    }
}

impl Follower {
    /// The next event or comment; `None` at the end of the stream.
    async fn next(&mut self, version: &impl Fn() -> u64) -> Option<String> {
        loop {
            self.beats.tick().await;
            let (now, seen) = (Instant::now(), version());
            if now >= self.end {
                return None;
            }
            if self.told != Some(seen) {
                (self.told, self.last) = (Some(seen), now);
                return Some(format!("event: changed\ndata: {seen}\n\n"));
            }
            if now.duration_since(self.last) >= QUIET {
                self.last = now;
                return Some(": nothing new\n\n".to_owned());
            }
        }
    }
}
