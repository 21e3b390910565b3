//! Watches: the log from a revision on, as lines of JSON.
//!
//! Guarantees: events come in order, and none twice. A watch that allows bookmarks gets one each minute. It ends after
//! the client's `timeoutSeconds`. A compacted revision gives a 410. The operator's watches may lag, and those of some kinds may hang. With seeds other
//! than 1, each of them is a few milliseconds late.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::stream;
use http::Response;
use http_body_util::{BodyExt as _, StreamBody};
use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;

use super::{
    ApiServer,
    path::What,
    service::{Asked, Door, ReplyBody, Shown, encoded},
    store::{Change, Entry, Kind, Refusal},
};
use crate::{
    director::{Life, alive},
    news::Listener,
};

const BOOKMARKS: Duration = Duration::from_secs(60);
/// How late an event usually is, at most. A seed that draws times makes a watch later by the difference.
const LATE: Duration = Duration::from_millis(5);
/// How often a lagging watch looks whether it may show the next event.
const LOOKS: Duration = Duration::from_millis(500);

struct Open {
    server: ApiServer,
    life: Option<Arc<Life>>,
    kind: Kind,
    version: String,
    namespace: String,
    metadata_only: bool,
    changed: Listener,
    /// The revision that the client has.
    seen: u64,
    /// How many lines of the log were read.
    read: usize,
    /// How late this watch shows each event. It differs between watches, so they show one change in another order.
    late: Duration,
    bookmarks: bool,
    next_bookmark: Instant,
    until: Instant,
    over: bool,
}

/// Opens a watch.
pub(super) fn open(door: &Door, asked: &Asked) -> Response<ReplyBody> {
    let target = &asked.target;
    let What::Collection(namespace) = &target.what else {
        panic!("a watch of {target:?} is not played");
    };
    let get = |key: &str| asked.query(key);
    for unknown in ["labelSelector", "fieldSelector", "sendInitialEvents"] {
        assert!(get(unknown).is_none(), "{unknown} of watches is not played");
    }
    let seconds = get("timeoutSeconds")
        .and_then(|t| t.parse().ok())
        .unwrap_or(300);
    let seen = get("resourceVersion")
        .and_then(|v| v.parse().ok())
        .unwrap_or(0);
    let open = Open {
        changed: door.server.changed.listener(),
        server: door.server.clone(),
        life: door.life.clone(),
        kind: target.kind.clone(),
        late: door.life.as_ref().map_or(Duration::ZERO, |_| {
            let director = &door.server.director;
            director.paced(LATE).saturating_sub(LATE)
        }),
        version: target.version.clone(),
        namespace: namespace.clone(),
        metadata_only: asked.metadata_only,
        seen,
        read: door
            .server
            .read(|s| s.log.partition_point(|e| e.revision <= seen)),
        bookmarks: door.life.is_some() && get("allowWatchBookmarks") == Some("true"),
        next_bookmark: Instant::now() + BOOKMARKS,
        until: Instant::now() + Duration::from_secs(seconds),
        over: false,
    };
    let lines = stream::unfold(open, |mut open| async move {
        let line = open.next().await?;
        Some((line.map(hyper::body::Frame::data), open))
    });
    let mut reply = Response::new(StreamBody::new(lines).boxed_unsync());
    let json = http::HeaderValue::from_static("application/json");
    reply.headers_mut().insert(http::header::CONTENT_TYPE, json);
    reply
}

impl Open {
    async fn next(&mut self) -> Option<std::io::Result<Bytes>> {
        if self.over {
            return None;
        }
        loop {
            alive(self.life.as_ref()).await;
            let director = self.server.director.clone();
            let mine = self.life.is_some();
            if mine && director.api_away_until().is_some() {
                self.over = true;
                return Some(Err(std::io::Error::new(
                    std::io::ErrorKind::ConnectionReset,
                    "reset",
                )));
            }
            self.changed.catch_up();
            let lag = if mine {
                director.lag_now().max(self.late)
            } else {
                Duration::ZERO
            };
            if mine && director.hangs(&self.kind) && Instant::now() < self.until {
                tokio::time::sleep(LOOKS).await;
                continue;
            }
            let server = self.server.clone();
            match server.read(|s| self.step(s)) {
                Step::Compacted => {
                    self.over = true;
                    let gone = Refusal::new(410, "Expired", "too old resource version").body();
                    return Some(Ok(line("ERROR", &gone)));
                }
                Step::Event(entry) if director.now() >= entry.at + lag => {
                    self.seen = entry.revision;
                    return Some(Ok(self.event(&entry)));
                }
                Step::Event(_) => {
                    let again = if lag > self.late { LOOKS } else { self.late };
                    tokio::time::sleep(again).await;
                    continue;
                }
                Step::Nothing(revision) => {
                    if self.bookmarks && Instant::now() >= self.next_bookmark {
                        self.next_bookmark = Instant::now() + BOOKMARKS;
                        self.seen = revision;
                        return Some(Ok(self.bookmark()));
                    }
                }
            }
            let bookmark = if self.bookmarks {
                self.next_bookmark
            } else {
                self.until
            };
            tokio::select! {
                biased;
                () = self.changed.news() => {}
                () = tokio::time::sleep_until(self.until) => {
                    self.over = true;
                    return None;
                }
                () = tokio::time::sleep_until(bookmark) => {}
            }
        }
    }

    fn step(&mut self, store: &super::store::Store) -> Step {
        if self.seen < store.compacted {
            return Step::Compacted;
        }
        let mine = |e: &Entry| {
            e.revision > self.seen
                && e.kind == self.kind
                && (self.namespace.is_empty() || e.namespace == self.namespace)
        };
        let news = store.log[self.read..].iter().position(mine);
        self.read = news.map_or(store.log.len(), |at| self.read + at);
        match store.log.get(self.read) {
            Some(entry) => Step::Event(entry.clone()),
            None => Step::Nothing(store.revision()),
        }
    }

    fn event(&self, entry: &Entry) -> Bytes {
        let name = match entry.change {
            Change::Added => "ADDED",
            Change::Modified => "MODIFIED",
            Change::Deleted => "DELETED",
        };
        entry.sent.or(&self.version, self.metadata_only, || {
            let shown = Shown::new(
                &entry.object,
                &self.version,
                &self.kind.0,
                self.metadata_only,
            );
            line(name, &shown)
        })
    }

    fn bookmark(&self) -> Bytes {
        let kind = self.server.read(|s| s.served[&self.kind].kind.clone());
        let object = json!({"kind": kind, "apiVersion": self.version, "metadata": {"resourceVersion": self.seen.to_string()}});
        line("BOOKMARK", &object)
    }
}

enum Step {
    Compacted,
    Event(Entry),
    Nothing(u64),
}

fn line(kind: &str, object: &impl Serialize) -> Bytes {
    #[derive(Serialize)]
    struct Line<'a, T> {
        #[serde(rename = "type")]
        kind: &'a str,
        object: &'a T,
    }
    let mut text = encoded(&Line { kind, object });
    text.push(b'\n');
    Bytes::from(text)
}
