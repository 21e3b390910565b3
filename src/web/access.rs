//! Who may see what.
//!
//! - On a loopback address: everything, for each client of this host. The header `Host` must be a loopback name, so that a
//!   page of another site whose DNS name leads here (DNS rebinding) gets nothing.
//! - On any other address: each request needs a Bearer token. The API server says whose it is, and in which namespaces
//!   that user may list VsphereAgentPools. The viewer sees the pools of these namespaces. The unknown tokens of one address
//!   are limited ([`attempts`]).

pub mod attempts;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::{
    HeaderValue, StatusCode,
    header::{AUTHORIZATION, RETRY_AFTER, WWW_AUTHENTICATE},
};
use k8s_openapi::api::authentication::v1::UserInfo;
use sha2::{Digest as _, Sha256};
use tokio::{sync::Semaphore, time::Instant};

use self::attempts::Attempts;
use crate::{
    cluster::reviews::{Reviews, Right},
    telemetry::http::{Answer, Asked, text},
};

/// How long an answer of the API server is used again. A right that is taken away ends within this time.
pub const KEPT: Duration = Duration::from_secs(30);
/// How long a token that was accepted counts as known: it is reviewed again whatever others at its address send.
const ACCEPTED: Duration = Duration::from_secs(3600);
/// The most tokens whose answers are kept.
const MOST_TOKENS: usize = 1024;
/// The most requests to the API server at the same time. Others wait.
const AT_ONCE: usize = 8;
/// The longest token that is passed on, in bytes.
const LONGEST: usize = 16 * 1024;

/// The namespaces whose pools a viewer may see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// All, and the actors that belong to no namespace.
    All,
    /// These.
    Namespaces(BTreeSet<String>),
}

impl Reach {
    /// Whether it covers that namespace.
    #[must_use]
    pub fn covers(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Namespaces(all) => all.contains(namespace),
        }
    }
}

/// Who asks, and what is shown there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Viewer {
    /// `user NAME`, or `the address ADDRESS`. Places are counted by it.
    pub name: String,
    /// What it may see.
    pub reach: Reach,
}

impl Viewer {
    /// A viewer that is known by its address only.
    #[must_use]
    pub fn at(asked: &Asked, reach: Reach) -> Self {
        let name = format!("the address {}", asked.peer);
        Self { name, reach }
    }
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The header `Host` does not name this host.
    Host,
    /// There is no Bearer token.
    NoToken,
    /// The API server does not accept the token.
    BadToken,
    /// This user may list pools in no namespace that has one.
    Forbidden(String),
    /// This user may not `get` that path.
    ForbiddenPath(String, &'static str),
    /// This address has sent too many unknown tokens, and has to wait so long.
    TooMany(IpAddr, Duration),
    /// The API server could not be asked.
    NoAnswer,
}

impl Refused {
    /// The answer, with a sentence that says what to do.
    #[must_use]
    pub fn answer(&self) -> Answer {
        let (status, why) = match self {
            Self::Host => (
                StatusCode::FORBIDDEN,
                "ask by localhost or a loopback address (header Host)\n".to_owned(),
            ),
            Self::NoToken => (
                StatusCode::UNAUTHORIZED,
                "send a token of this cluster (header Authorization: Bearer TOKEN)\n".to_owned(),
            ),
            Self::BadToken => (
                StatusCode::UNAUTHORIZED,
                "the API server does not accept this token: it may have expired\n".to_owned(),
            ),
            Self::Forbidden(user) => (
                StatusCode::FORBIDDEN,
                format!(
                    "{user} may list vsphereagentpools.agent-forge.containeroo.ch in no namespace that has one: ask \
                     for the ClusterRole agent-forge-view in the pool's namespace\n"
                ),
            ),
            Self::ForbiddenPath(user, path) => (
                StatusCode::FORBIDDEN,
                format!(
                    "{user} may not get {path}: ask for the ClusterRole agent-forge-metrics-reader\n"
                ),
            ),
            Self::TooMany(peer, wait) => (
                StatusCode::TOO_MANY_REQUESTS,
                format!(
                    "too many unknown tokens come from the address {peer}: try again in {} s\n",
                    whole_seconds(*wait)
                ),
            ),
            Self::NoAnswer => (
                StatusCode::SERVICE_UNAVAILABLE,
                "the API server could not be asked who you are; the log of agent-forge says why\n"
                    .to_owned(),
            ),
        };
        let mut answer = text(status, why);
        if status == StatusCode::UNAUTHORIZED {
            let bearer = HeaderValue::from_static("Bearer realm=\"agent-forge\"");
            answer.headers_mut().insert(WWW_AUTHENTICATE, bearer);
        }
        if let Self::TooMany(_, wait) = self {
            let wait = HeaderValue::from(whole_seconds(*wait));
            answer.headers_mut().insert(RETRY_AFTER, wait);
        }
        answer
    }
}

/// Rounded up.
fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

/// How a server decides who may see what.
#[derive(Clone)]
pub enum Access {
    /// Clients of this host see everything.
    Loopback,
    /// The API server decides.
    Reviewed(Arc<Reviewer>),
}

impl Access {
    /// Who asks, and what it may see of pools in these namespaces.
    ///
    /// # Errors
    /// Why it may see nothing.
    pub async fn viewer(
        &self,
        asked: &Asked,
        namespaces: &BTreeSet<String>,
    ) -> Result<Viewer, Refused> {
        match self {
            Self::Loopback if asked.of_loopback() => Ok(Viewer::at(asked, Reach::All)),
            Self::Loopback => Err(Refused::Host),
            Self::Reviewed(reviewer) => {
                reviewer
                    .viewer((token_of(asked)?, asked.peer), namespaces)
                    .await
            }
        }
    }
}

fn token_of(asked: &Asked) -> Result<&str, Refused> {
    let header = asked.headers.get(AUTHORIZATION);
    let token = header.and_then(|h| h.to_str().ok()).and_then(bearer);
    token.filter(|t| !t.is_empty()).ok_or(Refused::NoToken)
}

/// The token of a header `Authorization`. The name of the scheme has no case.
fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Digest of a token. The token itself is not kept.
type Fingerprint = [u8; 32];

/// What the API server said about a token.
#[derive(Clone)]
struct Review {
    /// `None`: it does not accept the token.
    user: Option<UserInfo>,
    rights: BTreeMap<Right, bool>,
    until: Instant,
}

/// Asks the API server, and keeps its answers for [`KEPT`].
pub struct Reviewer {
    reviews: Arc<dyn Reviews>,
    known: Mutex<BTreeMap<Fingerprint, Review>>,
    /// Tokens that were accepted, and when that is forgotten.
    accepted: Mutex<BTreeMap<Fingerprint, Instant>>,
    attempts: Attempts,
    turns: Semaphore,
}

impl Reviewer {
    /// Asks by `reviews`.
    #[must_use]
    pub fn new(reviews: Arc<dyn Reviews>) -> Self {
        Self {
            reviews,
            known: Mutex::default(),
            accepted: Mutex::default(),
            attempts: Attempts::default(),
            turns: Semaphore::new(AT_ONCE),
        }
    }

    /// Whether the sender may `get` that path.
    ///
    /// # Errors
    /// Why it may not.
    pub async fn may_get(&self, asked: &Asked, path: &'static str) -> Result<(), Refused> {
        let (fingerprint, mut known) = self.review(token_of(asked)?, asked.peer).await?;
        let user = known.user.clone().ok_or(Refused::BadToken);
        let may = match &user {
            Ok(user) => self.may(&mut known, user, Right::Get(path)).await,
            Err(_) => Ok(false),
        };
        self.remember(fingerprint, known);
        let user = user?;
        may?.then_some(()).ok_or_else(|| {
            let name = user.username.unwrap_or_else(|| "this user".to_owned());
            Refused::ForbiddenPath(name, path)
        })
    }

    /// What is known about a token: whose it is, at least.
    async fn review(&self, token: &str, peer: IpAddr) -> Result<(Fingerprint, Review), Refused> {
        if token.len() > LONGEST {
            return Err(Refused::BadToken);
        }
        let fingerprint: Fingerprint = Sha256::digest(token).into();
        let known = match self.recall(&fingerprint) {
            Some(known) => known,
            None => self.ask_user(&fingerprint, token, peer).await?,
        };
        Ok((fingerprint, known))
    }

    async fn viewer(
        &self,
        (token, peer): (&str, IpAddr),
        namespaces: &BTreeSet<String>,
    ) -> Result<Viewer, Refused> {
        let (fingerprint, mut known) = self.review(token, peer).await?;
        let reach = self.reach_of(&mut known, namespaces).await;
        let name = known.user.as_ref().and_then(|user| user.username.clone());
        self.remember(fingerprint, known);
        Ok(Viewer {
            name: name.map_or_else(|| "this user".to_owned(), |name| format!("user {name}")),
            reach: reach?,
        })
    }

    async fn ask_user(
        &self,
        fingerprint: &Fingerprint,
        token: &str,
        peer: IpAddr,
    ) -> Result<Review, Refused> {
        let attempt = match self.was_accepted(fingerprint) {
            true => None,
            false => Some(self.attempts.begin(peer)),
        };
        let attempt = attempt.transpose();
        let attempt = attempt.map_err(|wait| Refused::TooMany(peer, wait))?;
        let until = Instant::now() + KEPT;
        let _turn = self.turns.acquire().await;
        let user = match self.reviews.user(token).await {
            Ok(user) => user,
            Err(e) => {
                // While nobody can say whose tokens are, unknown ones do not load the API server without end.
                if let Some(attempt) = attempt {
                    attempt.refused();
                }
                return Err(no_answer(e));
            }
        };
        match (&user, attempt) {
            (Some(_), _) => self.accept(*fingerprint),
            (None, Some(attempt)) => attempt.refused(),
            (None, None) => {
                self.accepted().remove(fingerprint);
            }
        }
        Ok(Review {
            user,
            rights: BTreeMap::new(),
            until,
        })
    }

    async fn reach_of(
        &self,
        known: &mut Review,
        namespaces: &BTreeSet<String>,
    ) -> Result<Reach, Refused> {
        let user = known.user.clone().ok_or(Refused::BadToken)?;
        if self.may(known, &user, Right::ListPools(None)).await? {
            return Ok(Reach::All);
        }
        let mut covered = BTreeSet::new();
        for namespace in namespaces {
            let right = Right::ListPools(Some(namespace.clone()));
            if self.may(known, &user, right).await? {
                covered.insert(namespace.clone());
            }
        }
        if covered.is_empty() {
            let name = user.username.unwrap_or_else(|| "this user".to_owned());
            return Err(Refused::Forbidden(name));
        }
        Ok(Reach::Namespaces(covered))
    }

    async fn may(
        &self,
        known: &mut Review,
        user: &UserInfo,
        right: Right,
    ) -> Result<bool, Refused> {
        if let Some(may) = known.rights.get(&right) {
            return Ok(*may);
        }
        let _turn = self.turns.acquire().await;
        let may = self.reviews.may(user, &right).await.map_err(no_answer)?;
        known.rights.insert(right, may);
        Ok(may)
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<Fingerprint, Review>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accepted(&self) -> MutexGuard<'_, BTreeMap<Fingerprint, Instant>> {
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn was_accepted(&self, fingerprint: &Fingerprint) -> bool {
        let until = self.accepted().get(fingerprint).copied();
        until.is_some_and(|until| until > Instant::now())
    }

    fn accept(&self, fingerprint: Fingerprint) {
        let now = Instant::now();
        let mut all = self.accepted();
        all.retain(|_, until| *until > now);
        if all.len() >= MOST_TOKENS {
            all.clear();
        }
        all.insert(fingerprint, now + ACCEPTED);
    }

    fn recall(&self, fingerprint: &Fingerprint) -> Option<Review> {
        let known = self.known().get(fingerprint).cloned();
        known.filter(|k| k.until > Instant::now())
    }

    fn remember(&self, fingerprint: Fingerprint, known: Review) {
        let mut all = self.known();
        let now = Instant::now();
        all.retain(|_, k| k.until > now);
        if all.len() >= MOST_TOKENS {
            all.clear();
        }
        all.insert(fingerprint, known);
    }
}

fn no_answer(why: anyhow::Error) -> Refused {
    tracing::warn!(
        "who sends a token could not be asked: {why:#}; nothing is shown without that. The ClusterRole \
         agent-forge-metrics-auth has the rights (create tokenreviews and subjectaccessreviews)"
    );
    Refused::NoAnswer
}
