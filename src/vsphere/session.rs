//! The session of a client: at most one login at a time.
//!
//! Guarantees: at most one login is under way per client. Callers that come during a login share its result. A login
//! runs to its end even if its caller gives up, so that no session is opened and then forgotten. After a refused login
//! nothing is sent until a caller explicitly asks for a new login, because wrong passwords lock accounts.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use agent_forge_actors::{
    model::names::MoRef,
    ports::vcenter::{Fault, VcError, VcErrorKind, VcResult},
};
use http::HeaderValue;
use tokio::time::Instant;

use super::wire::session::ServiceContent;

/// Header with the session's id, in requests and replies.
pub(super) const SESSION_HEADER: &str = "vmware-api-session-id";

/// After a failed login that was not refused, calls share the failure for this long and do not try again.
pub(super) const COOL_DOWN: Duration = Duration::from_secs(5);

/// What is the same for every session with one vCenter.
#[derive(Debug)]
pub(super) struct Endpoint {
    /// The API release that all calls name, e.g. `8.0.1.0`.
    pub(super) release: String,
    /// References of the singletons.
    pub(super) content: ServiceContent,
}

/// The result of one login.
#[derive(Debug)]
pub(super) struct Session {
    /// The number of the login. Session-scoped objects are gone with it.
    pub(super) generation: u64,
    /// Endpoint.
    pub(super) endpoint: Arc<Endpoint>,
    token: Mutex<HeaderValue>,
}

impl Session {
    /// The session's id, as header value.
    pub(super) fn token(&self) -> HeaderValue {
        self.token
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Replaces the id. vCenter may renew it with any reply.
    pub(super) fn renew(&self, token: &HeaderValue) {
        let mut held = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        if *held != *token {
            *held = sensitive(token);
        }
    }

    /// The property collector.
    pub(super) fn property_collector(&self) -> MoRef {
        self.endpoint.content.property_collector.clone().into()
    }
}

fn sensitive(token: &HeaderValue) -> HeaderValue {
    let mut token = token.clone();
    token.set_sensitive(true);
    token
}

#[derive(Debug)]
enum State {
    Out,
    In(Arc<Session>),
    Failed { error: VcError, at: Instant },
    Refused(VcError),
    Closed,
}

/// Who asks for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// A caller that has decided to log in now.
    Explicitly,
    /// A call that needs a session.
    ByCall,
}

/// Holds the session of one client.
#[derive(Debug)]
pub(super) struct SessionCell {
    state: Mutex<State>,
    endpoint: Mutex<Option<Arc<Endpoint>>>,
    instance: Mutex<Option<String>>,
    flight: tokio::sync::Mutex<()>,
    finished: AtomicU64,
}

impl SessionCell {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::new(State::Out),
            endpoint: Mutex::default(),
            instance: Mutex::default(),
            flight: tokio::sync::Mutex::default(),
            finished: AtomicU64::new(0),
        }
    }

    /// The session, if there is one.
    pub(super) fn current(&self) -> Option<Arc<Session>> {
        match &*self.state() {
            State::In(session) => Some(Arc::clone(session)),
            _ => None,
        }
    }

    /// The endpoint, once known.
    pub(super) fn endpoint(&self) -> Option<Arc<Endpoint>> {
        self.endpoint
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Remembers the endpoint.
    pub(super) fn set_endpoint(&self, endpoint: &Arc<Endpoint>) {
        let instance = endpoint.content.about.instance_uuid.clone();
        *self.instance.lock().unwrap_or_else(PoisonError::into_inner) = instance;
        *self.endpoint.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(endpoint));
    }

    /// The `instanceUuid` of the vCenter at the last login.
    pub(super) fn instance(&self) -> Option<String> {
        self.instance
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Forgets the endpoint. The next login negotiates again.
    pub(super) fn forget_endpoint(&self) {
        *self.endpoint.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Notes that vCenter reported this session as gone.
    pub(super) fn lost(&self, generation: u64) {
        let mut state = self.state();
        if matches!(&*state, State::In(session) if session.generation == generation) {
            *state = State::Out;
        }
    }

    /// Closes the cell for good. Returns the last session.
    pub(super) fn close(&self) -> Option<Arc<Session>> {
        match std::mem::replace(&mut *self.state(), State::Closed) {
            State::In(session) => Some(session),
            _ => None,
        }
    }

    /// Whether it was closed.
    pub(super) fn closed(&self) -> bool {
        matches!(&*self.state(), State::Closed)
    }

    /// Whether a login has been refused.
    pub(super) fn refused(&self) -> bool {
        matches!(&*self.state(), State::Refused(_))
    }

    /// The session. Without one, calls `login`, which returns the endpoint and the session's id.
    pub(super) async fn obtain<F>(
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
            State::In(session) => return Ok(Arc::clone(session)),
            State::Closed => return Err(closed(server)),
            State::Refused(error) if joined || asked == Asked::ByCall => return Err(error.clone()),
            State::Failed { error, at }
                if joined || (asked == Asked::ByCall && at.elapsed() < COOL_DOWN) =>
            {
                return Err(error.clone());
            }
            State::Out | State::Refused(_) | State::Failed { .. } => {}
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
                // The cell was closed in the meantime. The caller of `obtain` ends this session.
                if !matches!(&*state, State::Closed) {
                    *state = State::In(Arc::clone(&session));
                }
                Ok(session)
            }
            Err(error) => {
                if !matches!(&*state, State::Closed) {
                    *state = if matches!(error.fault(), Some(Fault::InvalidLogin)) {
                        State::Refused(error.clone())
                    } else {
                        State::Failed {
                            error: error.clone(),
                            at: Instant::now(),
                        }
                    };
                }
                Err(error)
            }
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The failure of calls after a logout.
pub(super) fn closed(server: &str) -> VcError {
    VcError {
        kind: VcErrorKind::Fault(Fault::NotAuthenticated),
        operation: "Login",
        subject: server.to_owned(),
        message: "this session was ended".to_owned(),
    }
}
