//! The web page: what exists, in which state, and why. Read-only, from the caches, without anything from other servers.
//!
//! | Path | Answer |
//! |---|---|
//! | `/` | the page; it has no data |
//! | `/topology.json` | [`topology::Topology`] |
//! | `/events` | an event for each change |
//! | `/machine/NAMESPACE/NAME` | a VsphereAgent as `agent-forge explain` shows it; with `?kind=AgentMachine`, an AgentMachine |
//! | `/actors` | the actors |

pub mod access;
pub mod events;
mod page;
#[cfg(test)]
mod tests;
pub mod topology;

use std::{collections::BTreeSet, io::Write as _, time::Duration};

use agent_forge_actors::{
    domain::{holds::Mode, names::ObjectKey},
    ports::cluster::View as _,
    runtime::lease::Leadership,
    supervisor::{Described, SupervisorMsg},
};
use agent_forge_crds::docs;
use flate2::{Compression, write::GzEncoder};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
    header::{
        ACCEPT_ENCODING, ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, ETAG,
        IF_NONE_MATCH, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
    },
};
use jiff::Timestamp;
use ractor::{ActorRef, rpc::CallResult};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use std::sync::Arc;
use tokio::sync::watch;

use self::{
    access::{Access, Reach, Viewer},
    events::Followers,
};
use crate::{
    cluster::view::Caches,
    machines::{explain, found::Kind},
    standby,
    telemetry::{
        http::{Answer, Asked, answer, text},
        places::Places,
    },
};

/// How long the supervisor may take to describe its actors.
const WITHIN: Option<Duration> = Some(Duration::from_secs(5));
const JSON: &str = "application/json";
/// Shorter answers are not compressed.
const WORTH_PACKING: usize = 1024;

/// The most requests that are answered at the same time, and the most of one viewer. A browser asks six at a time.
const ANSWERS: (usize, usize) = (64, 16);
/// The most connections, and the most of one address. There may be a proxy in front, so one address may be many viewers.
const CONNECTIONS: (usize, usize) = (256, 160);

/// Places for requests that are being answered.
#[must_use]
pub fn answers() -> Places {
    Places::new(ANSWERS.0, ANSWERS.1)
}

/// Places for the connections of the page's server.
#[must_use]
pub fn connections() -> Places {
    Places::new(CONNECTIONS.0, CONNECTIONS.1)
}

/// What the page shows, and to whom.
#[derive(Clone)]
pub struct Web {
    /// Who may see what.
    pub access: Access,
    /// What the watches show.
    pub caches: Arc<Caches>,
    /// Whether this process acts.
    pub standing: watch::Receiver<Leadership>,
    /// Describes the actors.
    pub supervisor: ActorRef<SupervisorMsg>,
    /// Namespaces whose Secrets pools of other namespaces may use; empty: any.
    pub secret_namespaces: Vec<String>,
    /// The clients that follow.
    pub followers: Followers,
    /// The requests that are being answered.
    pub answers: Places,
}

impl Web {
    /// Answers a request. Only GET is allowed.
    pub async fn handle(&self, asked: Asked) -> Answer {
        let mut answer = if asked.method == Method::GET {
            self.get(&asked).await
        } else {
            let mut refused = text(
                StatusCode::METHOD_NOT_ALLOWED,
                "only GET: this page changes nothing\n",
            );
            let allow = HeaderValue::from_static("GET");
            refused.headers_mut().insert(ALLOW, allow);
            refused
        };
        protect(answer.headers_mut());
        answer
    }

    async fn get(&self, asked: &Asked) -> Answer {
        // The page has no data. Who has a token gives it to the page, so it must load without one.
        let open = matches!(self.access, Access::Reviewed(_)) && asked.path == "/";
        let viewer = if open {
            Viewer::at(asked, Reach::Namespaces(BTreeSet::new()))
        } else {
            match self.access.viewer(asked, &self.namespaces()).await {
                Ok(viewer) => viewer,
                Err(refused) => return refused.answer(),
            }
        };
        if asked.path == "/events" && self.caches.is_warm() {
            let caches = self.caches.clone();
            let version = move || caches.version() << 1 | u64::from(caches.leads());
            let followed = self.followers.follow(&viewer.name, version);
            return followed.unwrap_or_else(|full| full.answer("pages that follow", &viewer.name));
        }
        match self.answers.take(&viewer.name) {
            Ok(place) => place.until_sent(self.shown(asked, &viewer.reach).await),
            Err(full) => full.answer("requests under way", &viewer.name),
        }
    }

    async fn shown(&self, asked: &Asked, reach: &Reach) -> Answer {
        match asked.path.as_str() {
            "/" => packed(asked, "text/html; charset=utf-8", page::PAGE.as_bytes()),
            "/actors" => self.actors(asked, reach).await,
            _ if !self.caches.is_warm() => text(
                StatusCode::SERVICE_UNAVAILABLE,
                "waiting for the first complete lists; see the log\n",
            ),
            "/topology.json" => {
                let shown = topology::topology(&self.caches, reach, self.notes(), Timestamp::now());
                json(asked, &shown)
            }
            path => match path.strip_prefix("/machine/") {
                Some(name) => self.machine(asked, reach, name),
                None => text(StatusCode::NOT_FOUND, "there is no such page\n"),
            },
        }
    }

    /// The namespaces that have pools.
    fn namespaces(&self) -> BTreeSet<String> {
        let pools = self.caches.pools().into_iter();
        pools.filter_map(|p| p.metadata.namespace.clone()).collect()
    }

    /// Sentences about the operator itself.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.caches.leads() {
            notes.push(standby::sentence(&self.standing.borrow()));
        }
        if self.caches.mode() != Mode::Earnest {
            notes.push(
                "This is a dry run: the operator changes nothing. The status of each pool lists what it would do."
                    .to_owned(),
            );
        }
        notes
    }

    fn machine(&self, asked: &Asked, reach: &Reach, name: &str) -> Answer {
        let absent = || text(StatusCode::NOT_FOUND, "there is no such machine\n");
        let Some((namespace, name)) = name.split_once('/') else {
            return absent();
        };
        let kind = match asked.query.as_str() {
            "kind=AgentMachine" => Kind::AgentMachine,
            _ => Kind::VsphereAgent,
        };
        let key = ObjectKey::new(namespace, name);
        let bound = &self.secret_namespaces;
        let explained = explain::of_object(&self.caches, kind, &key, bound, Timestamp::now());
        let Some(explained) = explained else {
            return absent();
        };
        // A VsphereAgent is in its pool's namespace. An AgentMachine is not.
        let of_pool = explained.pool.as_ref().and_then(|p| p.split_once('/'));
        let home = match (kind, of_pool) {
            (Kind::AgentMachine, Some((home, _))) => home,
            _ => namespace,
        };
        if !reach.covers(home) {
            return absent();
        }
        match serde_json::to_string(&explained) {
            Ok(body) => packed(asked, JSON, docs::linked(&body).as_bytes()),
            Err(e) => text(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()),
        }
    }

    async fn actors(&self, asked: &Asked, reach: &Reach) -> Answer {
        match self.supervisor.call(SupervisorMsg::Describe, WITHIN).await {
            Ok(CallResult::Success(mut all)) => {
                all.retain(|actor| is_visible(actor, reach));
                json(asked, &all)
            }
            _ => text(
                StatusCode::SERVICE_UNAVAILABLE,
                "the supervisor does not answer\n",
            ),
        }
    }
}

/// Whether the viewer may see the actor. Actors of a pool or a VM are named `kind/namespace/name`; the others serve
/// pools of several namespaces.
fn is_visible(actor: &Described, reach: &Reach) -> bool {
    let mut parts = actor.name.split('/');
    match (reach, parts.next(), parts.next()) {
        (Reach::All, ..) => true,
        (_, Some("pool" | "vm"), Some(namespace)) => reach.covers(namespace),
        _ => false,
    }
}

/// Headers of each answer. The page runs its own script and style, connects to its own server, and is shown in no frame.
fn protect(headers: &mut HeaderMap) {
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, page::POLICY.as_str()),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
        (CACHE_CONTROL, "no-cache"),
    ] {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    }
}

fn json(asked: &Asked, value: &impl Serialize) -> Answer {
    match serde_json::to_vec(value) {
        Ok(body) => packed(asked, JSON, &body),
        Err(e) => text(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()),
    }
}

/// The body, compressed if the client can read that; status 304 without it if the client has it already.
fn packed(asked: &Asked, content_type: &'static str, body: &[u8]) -> Answer {
    let header = |name| asked.headers.get(name).and_then(|v| v.to_str().ok());
    let tag = format!("W/\"{}\"", hex::encode(&Sha256::digest(body)[..12]));
    let has_it = header(IF_NONE_MATCH).is_some_and(|known| known == tag);
    let mut answer = if has_it {
        let mut answer = answer(StatusCode::NOT_MODIFIED, content_type, "");
        answer.headers_mut().remove(http::header::CONTENT_TYPE);
        answer
    } else {
        let reads_gzip = header(ACCEPT_ENCODING).is_some_and(|all| all.contains("gzip"));
        match Some(body)
            .filter(|b| reads_gzip && b.len() >= WORTH_PACKING)
            .and_then(gzip)
        {
            Some(small) => {
                let mut answer = answer(StatusCode::OK, content_type, small);
                let gzip = HeaderValue::from_static("gzip");
                answer.headers_mut().insert(CONTENT_ENCODING, gzip);
                answer
            }
            None => answer(StatusCode::OK, content_type, body.to_vec()),
        }
    };
    let headers = answer.headers_mut();
    headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(ETAG, tag);
    }
    answer
}

fn gzip(body: &[u8]) -> Option<Vec<u8>> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(body).ok()?;
    packer.finish().ok()
}
