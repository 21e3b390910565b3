//! The bytes of a download, with a limited wait, and with more tries where that is safe.

use std::time::Duration;

use agent_forge_actors::{
    domain::failure::Class,
    ports::{
        iso_source::{IsoError, Validators},
        vcenter::ByteStream,
    },
};
use bytes::Bytes;
use futures::StreamExt as _;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use tokio::time::{Instant, timeout};
use tracing::{Instrument as _, Span};

use super::{Way, failed, validators, why};

/// How often a download resumes in a row without [`super::Options::min_progress`] bytes in between.
const RESUMES: u32 = 4;
/// Pause before the first resume. Each further pause is twice as long.
const PAUSE: Duration = Duration::from_millis(250);

/// A download's body. It measures the wait for bytes without the time that the reader takes between them.
struct Pace {
    /// The span in which the download was opened. A task of the connection reads the bytes, and it has no span.
    around: Span,
    way: Way,
    response: reqwest::Response,
    /// The server promises that equal strong tags mean equal bytes. Without one nothing is resumed.
    strong_etag: Option<String>,
    length: u64,
    seen: u64,
    end: Instant,
    waited: Duration,
    moved: u64,
    /// Too few bytes came during `waited`. The chunk that showed it is passed on first, because it counts as read.
    slow: bool,
    resumes: u32,
    resumed_at: u64,
}

/// The body. It ends with an error when it stalls, is too slow, or exceeds its time limit or its length.
pub(super) fn paced(
    way: Way,
    response: reqwest::Response,
    length: u64,
    validators: Validators,
    started: Instant,
) -> ByteStream {
    let pace = Pace {
        around: Span::current(),
        end: started + way.door.options.deadline,
        way,
        response,
        strong_etag: validators.strong_etag().map(str::to_owned),
        length,
        seen: 0,
        waited: Duration::ZERO,
        moved: 0,
        slow: false,
        resumes: 0,
        resumed_at: 0,
    };
    futures::stream::unfold(Some(pace), async |pace| {
        let mut pace = pace?;
        let around = pace.around.clone();
        match pace.next().instrument(around).await {
            Ok(Some(chunk)) => Some((Ok(chunk), Some(pace))),
            Ok(None) => None,
            // The typed error is inside, so that the reader can find the reason.
            Err(e) => Some((Err(std::io::Error::other(e)), None)),
        }
    })
    .boxed()
}

impl Pace {
    async fn next(&mut self) -> Result<Option<Bytes>, IsoError> {
        match self.chunk().await {
            Err(e) if e.class == Class::Transient && self.may_resume() => {
                self.resume(e).await?;
                // An empty chunk shows the reader that the download makes progress, however long the break was.
                Ok(Some(Bytes::new()))
            }
            other => other,
        }
    }

    async fn chunk(&mut self) -> Result<Option<Bytes>, IsoError> {
        let (stall, min_progress) = (
            self.way.door.options.stall,
            self.way.door.options.min_progress,
        );
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
            self.slow = self.moved < min_progress && self.seen < self.length;
            (self.waited, self.moved) = (Duration::ZERO, 0);
        }
        Ok(Some(chunk))
    }

    fn may_resume(&mut self) -> bool {
        if self.seen.saturating_sub(self.resumed_at) >= self.way.door.options.min_progress {
            self.resumes = 0;
        }
        self.strong_etag.is_some()
            && self.resumes < RESUMES
            && (1..self.length).contains(&self.seen)
            && Instant::now() < self.end
    }

    /// Asks for the rest, on the condition that it belongs to the same image. Fails with `broken`, the cause of the
    /// break, unless the server confirms this condition.
    async fn resume(&mut self, broken: IsoError) -> Result<(), IsoError> {
        let Some(tag) = self
            .strong_etag
            .as_deref()
            .and_then(|t| HeaderValue::from_str(t).ok())
        else {
            return Err(broken);
        };
        tokio::time::sleep(PAUSE * (1 << self.resumes)).await;
        (self.resumes, self.resumed_at) = (self.resumes + 1, self.seen);
        let range = format!("bytes={}-", self.seen);
        let mut headers = HeaderMap::from_iter([(header::IF_RANGE, tag)]);
        headers.insert(
            header::RANGE,
            HeaderValue::from_str(&range).map_err(|_| broken.clone())?,
        );
        let response = match self.way.ask(&headers).await {
            Ok(response) => response,
            // The server is not reachable now. The next read fails again, or the old answer continues after all. The
            // next try is counted.
            Err(e) if e.class == Class::Transient && self.resumes < RESUMES => return Ok(()),
            Err(_) => return Err(broken),
        };
        if response.status() != StatusCode::PARTIAL_CONTENT || !self.is_the_rest(&response) {
            return Err(broken);
        }
        tracing::info!(seen = self.seen, length = self.length, error = %broken, "ISO download resumed");
        self.response = response;
        (self.waited, self.moved) = (Duration::ZERO, 0);
        Ok(())
    }

    fn is_the_rest(&self, response: &reqwest::Response) -> bool {
        let wanted = format!("bytes {}-{}/{}", self.seen, self.length - 1, self.length);
        let said = response.headers().get(header::CONTENT_RANGE);
        let tag = validators(response).etag;
        said.and_then(|v| v.to_str().ok()) == Some(&wanted)
            && tag.is_none_or(|tag| Some(tag) == self.strong_etag)
    }

    fn stalled(&self, what: &str) -> IsoError {
        IsoError {
            reason: "ISOStalled",
            message: format!("{what} ({} of {} bytes so far)", self.seen, self.length),
            class: Class::Transient,
        }
    }
}
