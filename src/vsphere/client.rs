//! The client of one vCenter and one user: sessions, the single repeat after a lost session, the effect gate, decoding.

use std::sync::{Arc, Weak};

use agent_forge_actors::{
    effect::{Effect, EffectKind, Gate, Settled},
    lease::Need,
    model::names::MoRef,
    ports::{
        cluster::SecretVersion,
        slots::Slots,
        vcenter::{Credentials, Fault, VcError, VcErrorKind, VcResult},
    },
    vcenter::{ledger::Ledger, login::Login},
};
use http::{HeaderMap, HeaderValue, Method, header};
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::{
    automation::RestSession,
    cache::Cache,
    call::Call,
    http::{Http, Reply, Request, segment, unchecked},
    limits::Bounds,
    look::Looks,
    options::{Awaited, Options},
    reply::{decode, judge, release_refused, session_gone},
    session::{Asked, SESSION_HEADER, Session, SessionCell},
    survey::Surveys,
    task::TaskHub,
};
use crate::deadline;

/// The client of one vCenter and one user.
pub(super) struct Client {
    me: Weak<Self>,
    pub(super) http: Http,
    pub(super) credentials: Credentials,
    pub(super) gate: Arc<dyn Gate>,
    pub(super) session: SessionCell,
    pub(super) rest: RestSession,
    /// How refused passwords of this login are remembered.
    pub(super) login: Login,
    pub(super) cache: Cache,
    pub(super) tasks: TaskHub,
    pub(super) looks: Looks,
    pub(super) surveys: Surveys,
    pub(super) slots: Slots,
}

impl Client {
    /// A client that is not logged in yet.
    pub(super) fn new(
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
            surveys: Surveys::default(),
            slots,
        }))
    }

    /// A weak reference, for work that must not keep the client alive.
    pub(super) fn me(&self) -> Weak<Self> {
        Weak::clone(&self.me)
    }

    /// `host[:port]`
    pub(super) fn server(&self) -> &str {
        self.http.server()
    }

    /// Counts a task that only this client awaits, as long as the result lives.
    pub(super) fn awaits(&self, task: &'static str) -> Awaited {
        Awaited::begin(self.http.options(), self.server(), task)
    }

    /// The record of refused passwords.
    pub(super) fn ledger(&self) -> &Ledger {
        &self.http.options().ledger
    }

    /// Whether the server's certificate is not checked.
    pub(super) fn insecure(&self) -> bool {
        unchecked(&self.credentials)
    }

    /// Returns the session. Logs in if there is none.
    pub(super) async fn session(&self, asked: Asked) -> VcResult<Arc<Session>> {
        if let Some(session) = self.session.current() {
            return Ok(session);
        }
        let Some(me) = self.me.upgrade() else {
            return Err(super::session::closed(self.server()));
        };
        // In a task of its own: an opened session must be recorded even if this caller is dropped.
        let work = async move {
            let client = &me;
            let server = client.server();
            let session = client
                .session
                .obtain(asked, server, async || client.login().await)
                .await?;
            if client.session.closed() {
                // The client was logged out in the meantime. No caller owns this session, so it is ended.
                client
                    .end(&session, &client.session_effect(EffectKind::Logout))
                    .await;
                return Err(super::session::closed(server));
            }
            Ok(session)
        };
        match tokio::spawn(work.in_current_span()).await {
            Ok(outcome) => outcome,
            Err(e) => Err(VcError {
                kind: VcErrorKind::NoAnswer,
                operation: "Login",
                subject: self.server().to_owned(),
                message: format!("the login was interrupted: {e}"),
            }),
        }
    }

    /// Calls a method that changes nothing. `None` for a void or unset result.
    pub(super) async fn read<T: DeserializeOwned>(&self, call: Call) -> VcResult<Option<T>> {
        self.invoke(None, call).await
    }

    /// Calls a method that changes something.
    pub(super) async fn mutate<T: DeserializeOwned>(
        &self,
        effect: &Effect,
        call: Call,
    ) -> VcResult<Option<T>> {
        self.invoke(Some(effect), call).await
    }

    async fn invoke<T: DeserializeOwned>(
        &self,
        effect: Option<&Effect>,
        call: Call,
    ) -> VcResult<Option<T>> {
        let session = self.session(Asked::ByCall).await?;
        let mut replied = self.invoke_in(effect, &session, &call).await;
        if let Err(e) = &replied
            && self.begins_anew(&session, e).await
        {
            // vCenter refuses such a call before it looks at it. So repeating it cannot do the work twice.
            let session = self.session(Asked::ByCall).await?;
            replied = self.invoke_in(effect, &session, &call).await;
        }
        let reply = match replied {
            Ok(reply) => reply,
            Err(e) => return Err(self.named(e).await),
        };
        decode(&reply.body).map_err(|message| call.failure(VcErrorKind::Undecodable, message))
    }

    /// Whether this failure means that a new session is needed: the session is gone, or vCenter no longer serves its
    /// API release.
    async fn begins_anew(&self, session: &Session, failure: &VcError) -> bool {
        let gone = session_gone(failure)
            || release_refused(failure) && self.serves_another(&session.endpoint.release).await;
        if gone {
            self.session.lost(session.generation);
        }
        gone
    }

    /// Adds to the failure the name of the object on which a privilege is missing, if the user may see the name. People
    /// grant privileges on names, not on references.
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

    /// Calls a method of a session-scoped object. It is not repeated, because the object is gone with its session.
    pub(super) async fn scoped<T: DeserializeOwned>(
        &self,
        effect: Option<&Effect>,
        session: &Session,
        call: Call,
    ) -> VcResult<Option<T>> {
        let reply = self.invoke_in(effect, session, &call).await?;
        decode(&reply.body).map_err(|message| call.failure(VcErrorKind::Undecodable, message))
    }

    async fn invoke_in(
        &self,
        effect: Option<&Effect>,
        session: &Session,
        call: &Call,
    ) -> VcResult<Reply> {
        let release = &session.endpoint.release;
        let sending = self.post(release, Some(session), call);
        match self
            .gated(effect, call.method, &call.subject, sending)
            .await
        {
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
    pub(super) async fn property<T: DeserializeOwned>(
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
    pub(super) async fn property_in<T: DeserializeOwned>(
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
        decode(&reply.body).map_err(|message| VcError {
            kind: VcErrorKind::Undecodable,
            operation: property,
            subject: target.to_string(),
            message,
        })
    }

    /// Sends a call. Only the login itself has no session.
    pub(super) async fn post(
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
    pub(super) fn request(
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

    /// Sends something through the effect gate. The gate gets the outcome even if the caller is dropped.
    pub(super) async fn gated<T>(
        &self,
        effect: Option<&Effect>,
        operation: &'static str,
        subject: &str,
        sending: impl Future<Output = VcResult<T>>,
    ) -> VcResult<T> {
        let Some(effect) = effect else {
            return sending.await;
        };
        // A request that will not be sent is no effect.
        self.http.worth_a_try(operation, subject)?;
        // The time limit counts from before the gate is asked. So an admitted call ends before the Lease runs out.
        let end = Instant::now() + self.http.call_timeout();
        self.gate.admit(effect).await.map_err(|held| VcError {
            operation,
            subject: subject.to_owned(),
            message: held.to_string(),
            kind: VcErrorKind::Held(held),
        })?;
        let mut settle = Settle {
            gate: &*self.gate,
            effect,
            outcome: Settled::Unknown,
        };
        let outcome = match Need::of(effect.kind) {
            Need::Whole => deadline::until(end, sending).await.unwrap_or_else(|_| {
                Err(VcError {
                    kind: VcErrorKind::NoAnswer,
                    operation,
                    subject: subject.to_owned(),
                    message: format!("{}: no answer in time", self.server()),
                })
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
    pub(super) fn session_effect(&self, kind: EffectKind) -> Effect {
        Effect::new(kind, self.server())
    }

    /// A failure that concerns the server as a whole.
    pub(super) fn server_failure(
        &self,
        operation: &'static str,
        kind: VcErrorKind,
        message: String,
    ) -> VcError {
        VcError {
            kind,
            operation,
            subject: self.server().to_owned(),
            message,
        }
    }
}

/// Reports the outcome of an effect when it is dropped. A dropped call has an unknown outcome.
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
