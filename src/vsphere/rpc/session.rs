//! The session: release negotiation, login, single flight.
//!
//! Guarantees: at most one login is under way per client; who comes meanwhile shares its end. A login runs to its end
//! even when its caller gives up, so that no session is opened and forgotten. After a refusal nothing is sent any more
//! until somebody asks for a new login explicitly: wrong passwords lock accounts.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use agent_forge_actors::{
    domain::names::MoRef,
    ports::vcenter::{Fault, VcError, VcErrorKind, VcResult},
};
use http::HeaderValue;
use tokio::time::Instant;

use super::wire::session::ServiceContent;

/// Header that carries the session's id, both ways.
pub(crate) const SESSION_HEADER: &str = "vmware-api-session-id";

/// After a failed (not refused) login, calls share its failure that long instead of trying again each.
pub(crate) const COOL_DOWN: Duration = Duration::from_secs(5);

/// What is the same for every session with one vCenter.
#[derive(Debug)]
pub(crate) struct Endpoint {
    /// API release that all calls name, e.g. `8.0.1.0`.
    pub(crate) release: String,
    /// Where the singletons are.
    pub(crate) content: ServiceContent,
}

/// One login's fruit.
#[derive(Debug)]
pub(crate) struct Session {
    /// Which login this is of; session-scoped objects die with it.
    pub(crate) generation: u64,
    /// Endpoint.
    pub(crate) endpoint: Arc<Endpoint>,
    token: Mutex<HeaderValue>,
}

impl Session {
    /// The session's id, as header value.
    pub(crate) fn token(&self) -> HeaderValue {
        self.token
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// vCenter may renew the id with any reply.
    pub(crate) fn renew(&self, token: &HeaderValue) {
        let mut held = self.token.lock().unwrap_or_else(PoisonError::into_inner);
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
enum State {
    Out,
    In(Arc<Session>),
    Failed { error: VcError, at: Instant },
    Refused(VcError),
    Closed,
}

/// Who asks for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Somebody who decided that now is the time for a login.
    Explicitly,
    /// A call that needs one.
    ByCall,
}

/// Holds the session of one client.
#[derive(Debug)]
pub(crate) struct SessionCell {
    state: Mutex<State>,
    endpoint: Mutex<Option<Arc<Endpoint>>>,
    instance: Mutex<Option<String>>,
    flight: tokio::sync::Mutex<()>,
    finished: AtomicU64,
}

impl SessionCell {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(State::Out),
            endpoint: Mutex::default(),
            instance: Mutex::default(),
            flight: tokio::sync::Mutex::default(),
            finished: AtomicU64::new(0),
        }
    }

    /// The session if there is one.
    pub(crate) fn current(&self) -> Option<Arc<Session>> {
        match &*self.state() {
            State::In(session) => Some(Arc::clone(session)),
            _ => None,
        }
    }

    /// The endpoint, once known.
    pub(crate) fn endpoint(&self) -> Option<Arc<Endpoint>> {
        self.endpoint
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Remembers the endpoint.
    pub(crate) fn set_endpoint(&self, endpoint: &Arc<Endpoint>) {
        let instance = endpoint.content.about.instance_uuid.clone();
        *self.instance.lock().unwrap_or_else(PoisonError::into_inner) = instance;
        *self.endpoint.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(endpoint));
    }

    /// What the vCenter called itself at the last login.
    pub(crate) fn instance(&self) -> Option<String> {
        self.instance
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Forgets the endpoint: the next login negotiates anew.
    pub(crate) fn forget_endpoint(&self) {
        *self.endpoint.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// vCenter says that this session is gone.
    pub(crate) fn lost(&self, generation: u64) {
        let mut state = self.state();
        if matches!(&*state, State::In(session) if session.generation == generation) {
            *state = State::Out;
        }
    }

    /// No session any more, ever. Returns the last one.
    pub(crate) fn close(&self) -> Option<Arc<Session>> {
        match std::mem::replace(&mut *self.state(), State::Closed) {
            State::In(session) => Some(session),
            _ => None,
        }
    }

    /// Was it closed?
    pub(crate) fn closed(&self) -> bool {
        matches!(&*self.state(), State::Closed)
    }

    /// Has a login been refused for good?
    pub(crate) fn refused(&self) -> bool {
        matches!(&*self.state(), State::Refused(_))
    }

    /// The session, by `login` if there is none. `login` gives the endpoint and the session's id.
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
                // Closed meanwhile: the caller of `obtain` sees to the end of this session.
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
pub(crate) fn closed(server: &str) -> VcError {
    VcError {
        kind: VcErrorKind::Fault(Fault::NotAuthenticated),
        operation: "Login",
        subject: server.to_owned(),
        message: "this session was ended".to_owned(),
    }
}
