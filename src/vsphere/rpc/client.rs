//! The client of one vCenter and one user: sessions, the one repeat after a lost session, the effect gate, decoding.

use std::sync::{Arc, Weak};

use agent_forge_actors::{
    domain::names::MoRef,
    ports::{
        cluster::SecretVersion,
        effect::{Effect, EffectKind, Gate, Settled, Subject},
        permit::Ask,
        slots::Slots,
        vcenter::{CallStage, Credentials, Fault, VcError, VcErrorKind, VcResult},
    },
    runtime::lease::Need,
    sessions::{ledger::Ledger, login::Login},
};
use http::{HeaderMap, HeaderValue, Method, header};
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::{
    automation::RestSession,
    call::Call,
    http::{Http, Reply, Request, segment},
    limits::Bounds,
    options::{Awaited, Options},
    reply::{decode, judge, release_refused, session_gone},
    session::{Asked, SESSION_HEADER, Session, SessionCell},
};
use crate::{
    deadline,
    vsphere::{
        inventory::{
            cache::Cache,
            look::Looks,
            survey::{GATHER, Surveys},
        },
        tasks::TaskHub,
    },
};

/// The client of one vCenter and one user.
pub(crate) struct Client {
    me: Weak<Self>,
    pub(crate) http: Http,
    pub(crate) credentials: Credentials,
    pub(crate) gate: Arc<dyn Gate>,
    pub(crate) session: SessionCell,
    pub(crate) rest: RestSession,
    /// What the ledger may remember of the credentials.
    pub(crate) login: Login,
    pub(crate) cache: Cache,
    pub(crate) tasks: TaskHub,
    pub(crate) looks: Looks,
    pub(crate) surveys: Surveys,
    pub(crate) slots: Slots,
}

impl Client {
    /// A client that is not logged in yet.
    pub(crate) fn new(
        credentials: Credentials,
        gate: Arc<dyn Gate>,
        options: Arc<Options>,
        bounds: Bounds,
    ) -> VcResult<Arc<Self>> {
        let Bounds { slots, reach } = bounds;
        let http = Http::new(&credentials, options, reach)?;
        Ok(Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            http,
            rest: RestSession::new(),
            login: Login::of(&credentials, SecretVersion::default()),
            credentials,
            gate,
            session: SessionCell::new(),
            cache: Cache::default(),
            tasks: TaskHub::new(Weak::clone(me)),
            looks: Looks::default(),
            surveys: Surveys::gathering(GATHER),
            slots,
        }))
    }

    /// A weak reference, for work that must not keep the client alive.
    pub(crate) fn me(&self) -> Weak<Self> {
        Weak::clone(&self.me)
    }

    /// `host[:port]`
    pub(crate) fn server(&self) -> &str {
        self.http.server()
    }

    /// Counts a task that only this client awaits, until the returned value is dropped.
    pub(crate) fn awaits(&self, task: &'static str) -> Awaited {
        Awaited::begin(self.http.options(), self.server(), task)
    }

    /// Remembers refused passwords.
    pub(crate) fn ledger(&self) -> &Ledger {
        &self.http.options().ledger
    }

    /// The session. Logs in if there is none.
    pub(crate) async fn session(&self, asked: Asked) -> VcResult<Arc<Session>> {
        if let Some(session) = self.session.current() {
            return Ok(session);
        }
        let Some(me) = self.me.upgrade() else {
            return Err(super::session::closed(self.server()));
        };
        // In a task of its own: the client must know an opened session even if this caller stops.
        let work = async move {
            let client = &me;
            let server = client.server();
            let session = client
                .session
                .obtain(asked, server, async || {
                    let failed = |e| client.http.public(e, CallStage::Login);
                    client.login().await.map_err(failed)
                })
                .await?;
            if client.session.closed() {
                // The client was logged out meanwhile: end this session.
                client
                    .end(&session, &client.session_effect(EffectKind::Logout))
                    .await;
                return Err(super::session::closed(server));
            }
            Ok(session)
        };
        match tokio::spawn(work.in_current_span()).await {
            Ok(outcome) => outcome,
            Err(e) => Err(VcError::new(
                VcErrorKind::NoAnswer,
                "Login",
                self.server(),
                format!("the login was interrupted: {e}"),
            )),
        }
    }

    /// Calls a method that changes nothing. `None` for a void or unset result.
    pub(crate) async fn read<T: DeserializeOwned>(&self, call: Call) -> VcResult<Option<T>> {
        self.invoke(None, call).await
    }

    /// Calls a method that changes something.
    pub(crate) async fn mutate<'a, T: DeserializeOwned>(
        &self,
        asks: impl Into<Ask<'a>>,
        call: Call,
    ) -> VcResult<Option<T>> {
        self.invoke(Some(asks.into()), call).await
    }

    async fn invoke<T: DeserializeOwned>(
        &self,
        asks: Option<Ask<'_>>,
        call: Call,
    ) -> VcResult<Option<T>> {
        let session = self.session(Asked::ByCall).await?;
        let mut replied = self.invoke_in(asks, &session, &call).await;
        if let Err(e) = &replied
            && self.begins_anew(&session, e).await
        {
            // vCenter refuses such a call before it does anything, so a repeat cannot do it twice.
            let session = self.session(Asked::ByCall).await?;
            replied = self.invoke_in(asks, &session, &call).await;
        }
        let reply = match replied {
            Ok(reply) => reply,
            Err(e) => return Err(self.named(e).await),
        };
        decode(&reply.body).map_err(|message| call.failure(VcErrorKind::Undecodable, message))
    }

    /// Whether this failure calls for a new session: the session is gone, or vCenter does not serve its API release any
    /// more.
    async fn begins_anew(&self, session: &Session, failure: &VcError) -> bool {
        let gone = session_gone(failure)
            || release_refused(failure) && self.serves_another(&session.endpoint.release).await;
        if gone {
            self.session.lost(session.generation);
        }
        gone
    }

    /// Adds the name of the object to a missing privilege, if the user can see it. People grant privileges to a name,
    /// not to a reference.
    async fn named(&self, mut e: VcError) -> VcError {
        let Some(Fault::NoPermission {
            object: Some(object),
            ..
        }) = e.fault()
        else {
            return e;
        };
        let object = object.clone();
        if let Ok(Some(name)) = self.property::<String>(&object, "name").await {
            e.message = format!("{} ({name:?})", e.message);
        }
        e
    }

    /// Calls a method of an object that lives in a session. It is not repeated in another session, because the object
    /// dies with its session.
    pub(crate) async fn scoped<T: DeserializeOwned>(
        &self,
        effect: Option<&Effect>,
        session: &Session,
        call: Call,
    ) -> VcResult<Option<T>> {
        let asks = effect.map(Ask::from);
        let reply = self.invoke_in(asks, session, &call).await?;
        decode(&reply.body).map_err(|message| call.failure(VcErrorKind::Undecodable, message))
    }

    async fn invoke_in(
        &self,
        asks: Option<Ask<'_>>,
        session: &Session,
        call: &Call,
    ) -> VcResult<Reply> {
        let release = &session.endpoint.release;
        let sending = self.post(release, Some(session), call);
        match self.gated(asks, call.method, &call.subject, sending).await {
            Ok(reply) => {
                if let Some(token) = reply.headers.get(SESSION_HEADER) {
                    session.renew(token);
                }
                Ok(reply)
            }
            Err(e) => {
                if session_gone(&e) {
                    self.session.lost(session.generation);
                }
                if matches!(e.fault(), Some(Fault::ManagedObjectNotFound(_))) {
                    self.cache.clear();
                }
                Err(e)
            }
        }
    }

    /// Reads one top-level property.
    pub(crate) async fn property<T: DeserializeOwned>(
        &self,
        target: &MoRef,
        property: &'static str,
    ) -> VcResult<Option<T>> {
        let session = self.session(Asked::ByCall).await?;
        match self.property_in(&session, target, property).await {
            Err(e) if self.begins_anew(&session, &e).await => {
                let session = self.session(Asked::ByCall).await?;
                self.property_in(&session, target, property).await
            }
            other => other,
        }
    }

    /// Reads one top-level property in this session.
    pub(crate) async fn property_in<T: DeserializeOwned>(
        &self,
        session: &Session,
        target: &MoRef,
        property: &'static str,
    ) -> VcResult<Option<T>> {
        let release = segment(&session.endpoint.release);
        let path = format!(
            "/sdk/vim25/{release}/{}/{}/{property}",
            segment(&target.kind),
            segment(&target.id)
        );
        let mut request = self.request(Method::GET, path, property, target.to_string());
        request.headers.insert(SESSION_HEADER, session.token());
        let reply = self.http.send(request, judge).await?;
        decode(&reply.body).map_err(|message| {
            VcError::new(
                VcErrorKind::Undecodable,
                property,
                target.to_string(),
                message,
            )
        })
    }

    /// Sends a call; without a session for the login itself.
    pub(crate) async fn post(
        &self,
        release: &str,
        session: Option<&Session>,
        call: &Call,
    ) -> VcResult<Reply> {
        let path = format!(
            "/sdk/vim25/{}/{}/{}/{}",
            segment(release),
            segment(&call.target.kind),
            segment(&call.target.id),
            call.method
        );
        let mut request = self.request(Method::POST, path, call.method, call.subject.clone());
        if let Some(session) = session {
            request.headers.insert(SESSION_HEADER, session.token());
        }
        if let Some(timeout) = call.timeout {
            request.timeout = timeout;
        }
        request.body = call.body.clone()?.into();
        self.http.send(request, judge).await
    }

    /// An empty JSON request.
    pub(crate) fn request(
        &self,
        method: Method,
        path: String,
        operation: &'static str,
        subject: String,
    ) -> Request {
        let mut headers = HeaderMap::new();
        if method == Method::POST {
            headers.insert(
                header::CONTENT_TYPE,
                HeaderValue::from_static("application/json"),
            );
        }
        Request {
            method,
            path,
            query: None,
            headers,
            body: reqwest::Body::default(),
            timeout: self.http.call_timeout(),
            operation,
            subject,
        }
    }

    /// Sends a request through the effect gate. The gate learns the outcome even when the caller stops.
    pub(crate) async fn gated<T>(
        &self,
        asks: Option<Ask<'_>>,
        operation: &'static str,
        subject: &str,
        sending: impl Future<Output = VcResult<T>>,
    ) -> VcResult<T> {
        let Some(asks) = asks else {
            return sending.await;
        };
        let effect = asks.effect;
        // A request that would not leave is no effect.
        self.http.worth_a_try(operation, subject)?;
        // The limit starts before the gate is asked, so an admitted effect ends within the lease.
        let end = Instant::now() + self.http.call_timeout();
        // A permit may have become too old, by a new login.
        let admitted = match asks.check() {
            Ok(()) => self.gate.admit(effect).await,
            outdated => outdated,
        };
        admitted.map_err(|hold| VcError {
            operation,
            subject: subject.to_owned(),
            message: effect.held_back(&hold),
            kind: VcErrorKind::Held(Box::new(hold)),
            concealed: false,
        })?;
        let mut settle = Settle {
            gate: &*self.gate,
            effect,
            outcome: Settled::Unknown,
        };
        let outcome = match Need::of(effect.kind) {
            Need::Whole => deadline::until(end, sending).await.unwrap_or_else(|_| {
                Err(VcError::new(
                    VcErrorKind::NoAnswer,
                    operation,
                    subject,
                    format!("{}: no answer in time", self.server()),
                ))
            }),
            Need::Begin | Need::Nothing => sending.await,
        };
        settle.outcome = match &outcome {
            Ok(_) => Settled::Done,
            Err(e) if e.outcome_unknown() => Settled::Unknown,
            Err(_) => Settled::Refused,
        };
        outcome
    }

    /// An effect on the session itself.
    pub(crate) fn session_effect(&self, kind: EffectKind) -> Effect {
        Effect::new(kind, Subject::Server(self.server().to_owned()))
    }

    /// A failure that concerns the server itself.
    pub(crate) fn server_failure(
        &self,
        operation: &'static str,
        kind: VcErrorKind,
        message: String,
    ) -> VcError {
        VcError::new(kind, operation, self.server(), message)
    }
}

/// Reports the end of an effect on drop. A dropped call has an unknown outcome.
struct Settle<'a> {
    gate: &'a dyn Gate,
    effect: &'a Effect,
    outcome: Settled,
}

impl Drop for Settle<'_> {
    fn drop(&mut self) {
        self.gate.settled(self.effect, self.outcome);
    }
}
