//! A bounded number of places, of which one holder gets only a part.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header::RETRY_AFTER};
use http_body_util::BodyExt as _;
use hyper::body::{Body as Sent, Frame, SizeHint};

use super::http::{Answer, Body, text};

/// How long a client should wait that got no place, in seconds.
pub const RETRY: u16 = 5;

/// The places. All clones are the same places.
#[derive(Clone)]
pub struct Places(Arc<Inner>);

struct Inner {
    most: usize,
    each: usize,
    held: Mutex<BTreeMap<String, usize>>,
}

/// A place. It is free again when this is dropped.
pub struct Place {
    all: Places,
    holder: String,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPlace {
    /// This holder has as many as one may have.
    Holder(usize),
    /// All are taken, by several holders.
    All(usize),
}

impl Places {
    /// `most` places, of which one holder gets `each` at most.
    #[must_use]
    pub fn new(most: usize, each: usize) -> Self {
        Self(Arc::new(Inner {
            most,
            each,
            held: Mutex::default(),
        }))
    }

    /// A place for that holder.
    ///
    /// # Errors
    /// There is none.
    pub fn take(&self, holder: &str) -> Result<Place, NoPlace> {
        let mut held = self.held();
        if held.get(holder).is_some_and(|own| *own >= self.0.each) {
            return Err(NoPlace::Holder(self.0.each));
        }
        if held.values().sum::<usize>() >= self.0.most {
            return Err(NoPlace::All(self.0.most));
        }
        *held.entry(holder.to_owned()).or_default() += 1;
        Ok(Place {
            all: self.clone(),
            holder: holder.to_owned(),
        })
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut held = self.all.held();
        if let Some(own) = held.get_mut(&self.holder) {
            *own -= 1;
            if *own == 0 {
                held.remove(&self.holder);
            }
        }
    }
}

impl NoPlace {
    /// The status, and the sentence for the client. `what`: what it has too many of, such as `connections`. `holder`: by whom
    /// they are counted, such as `this user`.
    #[must_use]
    pub fn explain(self, what: &str, holder: &str) -> (StatusCode, String) {
        match self {
            Self::Holder(each) => (
                StatusCode::TOO_MANY_REQUESTS,
                format!(
                    "{holder} has {each} {what}, and gets no more: close a page that shows agent-forge, or try again in {RETRY} s\n"
                ),
            ),
            Self::All(most) => (
                StatusCode::SERVICE_UNAVAILABLE,
                format!("all {most} {what} are taken by other viewers: try again in {RETRY} s\n"),
            ),
        }
    }

    /// The same as an answer, with `Retry-After`.
    #[must_use]
    pub fn answer(self, what: &str, holder: &str) -> Answer {
        let (status, why) = self.explain(what, holder);
        let mut answer = text(status, why);
        let headers = answer.headers_mut();
        headers.insert(RETRY_AFTER, HeaderValue::from(RETRY));
        answer
    }
}

/// A body that keeps a place until it is sent.
struct Held {
    body: Body,
    _place: Place,
}

impl Sent for Held {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Place {
    /// The answer, which keeps this place until it is sent.
    #[must_use]
    pub fn until_sent(self, answer: Answer) -> Answer {
        answer.map(|body| Held { body, _place: self }.boxed_unsync())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holder_gets_a_part_and_all_get_what_there_is() {
        let places = Places::new(3, 2);
        let own: Vec<_> = (0..2).map(|_| places.take("a").ok()).collect();
        assert!(own.iter().all(Option::is_some));
        assert_eq!(places.take("a").err(), Some(NoPlace::Holder(2)));
        let other = places.take("b");
        assert_eq!(places.take("c").err(), Some(NoPlace::All(3)));
        drop(other);
        assert!(places.take("c").is_ok(), "the place of b is free");
        drop(own);
        assert!(places.take("a").is_ok());
        assert!(places.held().is_empty(), "nothing is kept of who left");
    }

    #[test]
    fn who_gets_no_place_is_told_what_to_do_and_when() {
        for (full, status, words) in [
            (
                NoPlace::Holder(2),
                429,
                "this user has 2 pages, and gets no more",
            ),
            (
                NoPlace::All(9),
                503,
                "all 9 pages are taken by other viewers",
            ),
        ] {
            let answer = full.answer("pages", "this user");
            assert_eq!(answer.status().as_u16(), status);
            assert_eq!(answer.headers()[RETRY_AFTER], "5");
            let (_, said) = full.explain("pages", "this user");
            assert!(
                said.starts_with(words) && said.contains("again in 5 s"),
                "{said}"
            );
        }
    }

    #[tokio::test]
    async fn a_place_is_kept_until_the_answer_is_sent() {
        let places = Places::new(1, 1);
        let place = places.take("a").expect("a place");
        let answer = place.until_sent(text(StatusCode::OK, "all"));
        assert_eq!(answer.body().size_hint().exact(), Some(3));
        assert!(places.take("a").is_err());
        let body = answer.into_body().collect().await.expect("a body");
        assert_eq!(body.to_bytes(), "all");
        assert!(places.take("a").is_ok());
    }
}
