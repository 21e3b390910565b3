//! The session of one client, and its single login at a time.
//!
//! At most one login runs per client. Callers that come meanwhile share its outcome. A login runs to its end even when its
//! caller stops, so that no session is opened and forgotten. After a refused login the client sends nothing until an actor
//! asks for a new login explicitly: wrong passwords lock accounts.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use agent_forge_actors::{
    domain::names::MoRef,
    ports::vcenter::{Fault, VcError, VcErrorKind, VcResult},
    sessions::login::Instance,
};
use http::HeaderValue;
use tokio::time::Instant;

use super::{locked, wire::session::ServiceContent};

/// Header with the session's id, in requests and replies.
pub(crate) const SESSION_HEADER: &str = "vmware-api-session-id";

/// After a failed login (not a refused one), calls share its failure that long.
pub(crate) const COOL_DOWN: Duration = Duration::from_secs(5);

/// What all sessions with one vCenter have in common.
#[derive(Debug)]
pub(crate) struct Endpoint {
    /// API release in the path of all calls, e.g. `8.0.1.0`.
    pub(crate) release: String,
    /// The singleton objects.
    pub(crate) content: ServiceContent,
    /// Which vCenter it is, by its certificate and its UUID.
    pub(crate) instance: Option<Instance>,
}

/// One session.
#[derive(Debug)]
pub(crate) struct Session {
    /// Number of its login. Objects that live in the session die with it.
    pub(crate) generation: u64,
    /// Endpoint.
    pub(crate) endpoint: Arc<Endpoint>,
    token: Mutex<HeaderValue>,
}

impl Session {
    /// The session's id as a header value.
    pub(crate) fn token(&self) -> HeaderValue {
        locked(&self.token).clone()
    }

    /// Takes a new id: vCenter may send one with any reply.
    pub(crate) fn renew(&self, token: &HeaderValue) {
        let mut held = locked(&self.token);
        if *held != *token {
            *held = sensitive(token);
        }
    }

    /// The property collector.
    pub(crate) fn property_collector(&self) -> MoRef {
        self.endpoint.content.property_collector.clone().into()
    }
}

fn sensitive(token: &HeaderValue) -> HeaderValue {
    let mut token = token.clone();
    token.set_sensitive(true);
    token
}

#[derive(Debug)]
enum Standing {
    Out,
    In(Arc<Session>),
    Failed { error: VcError, at: Instant },
    Refused(VcError),
    Closed,
}

/// Who asks for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// An actor that decided to log in now.
    Explicitly,
    /// A call that needs one.
    ByCall,
}

/// The session of one client, if there is one.
#[derive(Debug)]
pub(crate) struct SessionCell {
    state: Mutex<Standing>,
    endpoint: Mutex<Option<Arc<Endpoint>>>,
    instance: Mutex<Option<String>>,
    flight: tokio::sync::Mutex<()>,
    finished: AtomicU64,
}

impl SessionCell {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(Standing::Out),
            endpoint: Mutex::default(),
            instance: Mutex::default(),
            flight: tokio::sync::Mutex::default(),
            finished: AtomicU64::new(0),
        }
    }

    /// The session if there is one.
    pub(crate) fn current(&self) -> Option<Arc<Session>> {
        match &*self.state() {
            Standing::In(session) => Some(Arc::clone(session)),
            _ => None,
        }
    }

    /// The endpoint, once known.
    pub(crate) fn endpoint(&self) -> Option<Arc<Endpoint>> {
        locked(&self.endpoint).clone()
    }

    /// Remembers the endpoint.
    pub(crate) fn set_endpoint(&self, endpoint: &Arc<Endpoint>) {
        let instance = endpoint.content.about.instance_uuid.clone();
        *locked(&self.instance) = instance;
        *locked(&self.endpoint) = Some(Arc::clone(endpoint));
    }

    /// The vCenter's id at the last login.
    pub(crate) fn instance(&self) -> Option<String> {
        locked(&self.instance).clone()
    }

    /// Forgets the endpoint, so that the next login negotiates again.
    pub(crate) fn forget_endpoint(&self) {
        *locked(&self.endpoint) = None;
    }

    /// Notes that vCenter does not know this session any more.
    pub(crate) fn lost(&self, generation: u64) {
        let mut state = self.state();
        if matches!(&*state, Standing::In(session) if session.generation == generation) {
            *state = Standing::Out;
        }
    }

    /// Closes for good. Returns the last session.
    pub(crate) fn close(&self) -> Option<Arc<Session>> {
        match std::mem::replace(&mut *self.state(), Standing::Closed) {
            Standing::In(session) => Some(session),
            _ => None,
        }
    }

    /// Whether it is closed.
    pub(crate) fn closed(&self) -> bool {
        matches!(&*self.state(), Standing::Closed)
    }

    /// Whether vCenter has refused the login.
    pub(crate) fn refused(&self) -> bool {
        matches!(&*self.state(), Standing::Refused(_))
    }

    /// The session. Calls `login` if there is none; `login` returns the endpoint and the session's id.
    pub(crate) async fn obtain<F>(
        &self,
        asked: Asked,
        server: &str,
        login: F,
    ) -> VcResult<Arc<Session>>
    where
        F: AsyncFnOnce() -> VcResult<(Arc<Endpoint>, HeaderValue)>,
    {
        let seen = self.finished.load(Ordering::Acquire);
        let _flight = self.flight.lock().await;
        let joined = self.finished.load(Ordering::Acquire) != seen;
        match &*self.state() {
            Standing::In(session) => return Ok(Arc::clone(session)),
            Standing::Closed => return Err(closed(server)),
            Standing::Refused(error) if joined || asked == Asked::ByCall => {
                return Err(error.clone());
            }
            Standing::Failed { error, at }
                if joined || (asked == Asked::ByCall && at.elapsed() < COOL_DOWN) =>
            {
                return Err(error.clone());
            }
            Standing::Out | Standing::Refused(_) | Standing::Failed { .. } => {}
        }
        let outcome = login().await;
        let generation = self.finished.fetch_add(1, Ordering::AcqRel) + 1;
        let mut state = self.state();
        match outcome {
            Ok((endpoint, token)) => {
                let session = Arc::new(Session {
                    generation,
                    endpoint,
                    token: Mutex::new(sensitive(&token)),
                });
                // Closed meanwhile: the caller of `obtain` ends this session.
                if !matches!(&*state, Standing::Closed) {
                    *state = Standing::In(Arc::clone(&session));
                }
                Ok(session)
            }
            Err(error) => {
                if !matches!(&*state, Standing::Closed) {
                    *state = if matches!(error.fault(), Some(Fault::InvalidLogin)) {
                        Standing::Refused(error.clone())
                    } else {
                        Standing::Failed {
                            error: error.clone(),
                            at: Instant::now(),
                        }
                    };
                }
                Err(error)
            }
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, Standing> {
        locked(&self.state)
    }
}

/// The failure of calls after a logout.
pub(crate) fn closed(server: &str) -> VcError {
    VcError::new(
        VcErrorKind::Fault(Fault::NotAuthenticated),
        "Login",
        server,
        "this session was ended",
    )
}
