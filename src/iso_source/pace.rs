//! The bytes of a download, with a limited wait.

use std::time::Duration;

use agent_forge_actors::{
    domain::failure::Class,
    ports::{iso_source::IsoError, vcenter::ByteStream},
};
use agent_forge_crds::conditions::Reason;
use bytes::Bytes;
use futures::StreamExt as _;
use tokio::time::{Instant, timeout};

use super::{Options, failed, why};

/// A download's body. It measures the wait for bytes without the time that the reader takes between them.
struct Pace {
    response: reqwest::Response,
    stall: Duration,
    min_progress: u64,
    length: u64,
    seen: u64,
    end: Instant,
    waited: Duration,
    moved: u64,
    /// Too few bytes came during `waited`. The chunk that showed it is passed on first, because it counts as read.
    slow: bool,
}

/// The body. It ends with an error when it stalls, is too slow, or exceeds its time limit or its length.
pub(super) fn paced(
    options: &Options,
    response: reqwest::Response,
    length: u64,
    started: Instant,
) -> ByteStream {
    let pace = Pace {
        end: started + options.deadline,
        stall: options.stall,
        min_progress: options.min_progress,
        response,
        length,
        seen: 0,
        waited: Duration::ZERO,
        moved: 0,
        slow: false,
    };
    futures::stream::unfold(Some(pace), async |pace| {
        let mut pace = pace?;
        match pace.chunk().await {
            Ok(Some(chunk)) => Some((Ok(chunk), Some(pace))),
            Ok(None) => None,
            // The typed error is inside, so that the reader can find the reason.
            Err(e) => Some((Err(std::io::Error::other(e)), None)),
        }
    })
    .boxed()
}

impl Pace {
    async fn chunk(&mut self) -> Result<Option<Bytes>, IsoError> {
        let stall = self.stall;
        if std::mem::take(&mut self.slow) {
            return Err(self.stalled("the download is too slow"));
        }
        let began = Instant::now();
        let left = self.end.saturating_duration_since(began);
        if left.is_zero() {
            return Err(self.stalled("the download takes longer than its deadline allows"));
        }
        let chunk = match timeout(stall.min(left), self.response.chunk()).await {
            Err(_) => return Err(self.stalled("no more bytes come")),
            Ok(Err(e)) => {
                return Err(failed(
                    &format!("{} (after {} of {} bytes)", why(&e), self.seen, self.length),
                    Class::Transient,
                ));
            }
            Ok(Ok(chunk)) => chunk,
        };
        let Some(chunk) = chunk else {
            if self.seen == self.length {
                return Ok(None);
            }
            let message = format!("the ISO ended after {} of {} bytes", self.seen, self.length);
            return Err(failed(&message, Class::Transient));
        };
        let bytes = u64::try_from(chunk.len()).unwrap_or(u64::MAX);
        self.seen = self.seen.saturating_add(bytes);
        self.moved = self.moved.saturating_add(bytes);
        self.waited += began.elapsed();
        if self.waited >= stall {
            self.slow = self.moved < self.min_progress && self.seen < self.length;
            (self.waited, self.moved) = (Duration::ZERO, 0);
        }
        Ok(Some(chunk))
    }

    fn stalled(&self, what: &str) -> IsoError {
        IsoError {
            reason: Reason::IsoStalled,
            message: format!("{what} ({} of {} bytes so far)", self.seen, self.length),
            class: Class::Transient,
        }
    }
}
