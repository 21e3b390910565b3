//! The session actor: hands out vCenter sessions by credentials Secret.
//!
//! A session that vCenter ends is renewed by its client (`src/vsphere/rpc/client.rs`), which asks nobody here.
//!
//! Guarantees
//! - One login at a time for the same bytes, in any number of Secrets. Callers wait for it. Equal credentials share one
//!   session.
//! - A pool never gets a session that its own Secret could not open.
//! - A Secret is read again at most every [`table::FRESH`], and only while a caller asks.
//! - A session is closed when no Secret holds its bytes any more and no caller works with it. A Secret that cannot be read
//!   closes no session.
//! - Refused bytes rest by the rule in [`refusals`], which the [`ledger`] keeps. This holds after a restart of this actor.
//!   It also holds in the next process, as far as a pool has recorded the refusals (`status.refusedCredentials`).
//!
//! Caveat: if the process ends before a pool records a refusal, the next process tries that login once more.

pub mod credentials;
pub mod ledger;
pub mod login;
pub mod of_vm;
pub mod refusals;
mod rest;
pub mod secret_ref;
pub mod table;
#[cfg(test)]
mod tests;
pub mod users;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use agent_forge_crds::{Time, conditions::Reason, pool::RefusedCredentials};
use async_trait::async_trait;
use futures::FutureExt as _;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use tokio::task::JoinSet;

use self::{
    ledger::Ledger,
    login::{Digest, Login},
    refusals::Rest,
    table::{Answer, Resolved, Table},
};
use crate::{
    domain::{
        failure::{Class, ErrorSource, ReconcileError},
        names::ObjectKey,
        server::ServerRule,
    },
    ports::{
        clock::Clock,
        cluster::{Cluster, SecretVersion, View},
        effect::{Effect, EffectKind, Subject},
        instruments::Instruments,
        sessions::Sessions,
        vcenter::{Connector, Credentials, Fault, VCenter, VcError, VcErrorKind, VcResult},
    },
    runtime::{
        beside::beside,
        mailbox::{Counted, Queued},
        shell::Description,
    },
};

type Session = Arc<dyn VCenter>;
type Reply = RpcReplyPort<Result<Session, ReconcileError>>;

/// Credentials as a Secret holds them.
pub struct Found {
    credentials: Credentials,
    version: SecretVersion,
}

/// A Secret as it was read.
pub struct Seen {
    pools_from: Option<String>,
    held: Result<Found, ReconcileError>,
}

/// The pools that a Secret allowed when it was read last.
struct Look {
    at: Duration,
    pools_from: Option<String>,
}

/// Messages of the session actor.
pub enum SessionMsg {
    /// Get the session of that Secret for a pool of that namespace.
    Get(ObjectKey, String, Reply, Queued),
    /// Get what another process must know of that Secret.
    Refusal(ObjectKey, RpcReplyPort<Option<RefusedCredentials>>, Queued),
    /// That Secret was read (internal).
    Read(ObjectKey, Box<Result<Seen, ReconcileError>>),
    /// The login with these credentials ended (internal).
    LoggedIn(Box<Credentials>, VcResult<Session>),
    /// The process ends: open no more sessions, close every open one, then answer.
    LogOut(RpcReplyPort<()>),
    /// Describe yourself.
    Describe(RpcReplyPort<Description>),
    /// Die in a handler (debug endpoint only).
    Panic,
}

/// What the session actor needs.
#[derive(Clone)]
pub struct SessionArgs {
    /// Reads Secrets.
    pub cluster: Arc<dyn Cluster>,
    /// Shows which refused credentials the pools have on record.
    pub view: Arc<dyn View>,
    /// Logs in.
    pub connector: Arc<dyn Connector>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Counts open sessions.
    pub instruments: Arc<dyn Instruments>,
    /// Which vCenters Secrets may name.
    pub server_rule: ServerRule,
    /// Refused passwords. The connector records them.
    pub ledger: Arc<Ledger>,
}

/// State.
pub struct SessionState {
    args: SessionArgs,
    table: Table<Session>,
    waiting: BTreeMap<ObjectKey, Vec<(String, Reply)>>,
    looks: BTreeMap<ObjectKey, Look>,
    /// Logins under way, and the Secrets that have these bytes.
    logins: BTreeMap<Digest, Vec<(ObjectKey, SecretVersion)>>,
    resolutions: JoinSet<()>,
    /// Logouts under way.
    closing: JoinSet<()>,
    /// The process ends.
    ends: bool,
    /// Callers that wait for the end of all sessions.
    leaving: Vec<RpcReplyPort<()>>,
    about: Description,
}

/// The session actor.
pub struct VCenterSessions;

impl Actor for VCenterSessions {
    type Msg = SessionMsg;
    type State = SessionState;
    type Arguments = SessionArgs;

    async fn pre_start(
        &self,
        _: ActorRef<SessionMsg>,
        args: SessionArgs,
    ) -> Result<SessionState, ActorProcessingErr> {
        let about = Description {
            kind: "sessions".to_owned(),
            ..Description::default()
        };
        Ok(SessionState {
            args,
            table: Table::default(),
            waiting: BTreeMap::new(),
            looks: BTreeMap::new(),
            logins: BTreeMap::new(),
            resolutions: JoinSet::new(),
            closing: JoinSet::new(),
            ends: false,
            leaving: Vec::new(),
            about,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<SessionMsg>,
        message: SessionMsg,
        state: &mut SessionState,
    ) -> Result<(), ActorProcessingErr> {
        let now = state.args.clock.monotonic();
        while state.resolutions.try_join_next().is_some() {}
        while state.closing.try_join_next().is_some() {}
        let ledger = state.args.ledger.clone();
        let useless = |s: &Session| s.login_refused();
        let useless = state
            .table
            .drop_useless(useless, |login| ledger.rest(login), now);
        close(state, useless);
        match message {
            SessionMsg::Get(_, _, reply, _) if state.ends => {
                answer(reply, Err(leaving()));
            }
            SessionMsg::Get(secret, namespace, reply, queued) => {
                drop(queued);
                match answered(state, &secret, &namespace, now) {
                    Answer::Session(session) => answer(reply, Ok(session)),
                    Answer::ReconcileError(trouble) => answer(reply, Err(trouble)),
                    Answer::Resolve => {
                        let waiting = state.waiting.entry(secret.clone()).or_default();
                        waiting.push((namespace, reply));
                        if waiting.len() == 1 {
                            begin(state, myself, secret);
                        }
                    }
                }
            }
            SessionMsg::Refusal(secret, reply, queued) => {
                drop(queued);
                let _ = reply.send(record(state, &secret));
            }
            SessionMsg::Read(secret, seen) => match *seen {
                Ok(seen) => {
                    let look = Look {
                        at: now,
                        pools_from: seen.pools_from,
                    };
                    state.looks.insert(secret.clone(), look);
                    let somebody_waits = !turn_away(state, &secret);
                    match seen.held {
                        _ if !somebody_waits => {}
                        Ok(found) => log_in(state, myself, secret, found, now),
                        Err(trouble) => {
                            resolved(state, &secret, Resolved::Unusable(trouble), now);
                        }
                    }
                }
                Err(trouble) => resolved(state, &secret, Resolved::Unread(trouble), now),
            },
            SessionMsg::LoggedIn(credentials, end) => {
                let digest = credentials::digest(&credentials);
                for (secret, version) in state.logins.remove(&digest).unwrap_or_default() {
                    let login = Login::of(&credentials, version);
                    let end = ended(&state.args.ledger, login, &end);
                    resolved(state, &secret, end, now);
                }
            }
            SessionMsg::LogOut(reply) => {
                state.ends = true;
                state.leaving.push(reply);
            }
            SessionMsg::Describe(reply) => {
                let _ = reply.send(state.about.clone());
            }
            SessionMsg::Panic => return Err("killed by the debug endpoint".into()),
        }
        let outdated = state.table.outdated(|s| Arc::strong_count(s) > 1);
        close(state, outdated);
        leave(state);
        Ok(())
    }
}

/// Ends sessions that the table has dropped, in parallel: a vCenter that does not answer keeps no session of another vCenter
/// open.
fn close(state: &mut SessionState, sessions: Vec<Session>) {
    for session in sessions {
        let mut logout = Box::pin(async move { log_out(&session).await });
        // The first poll is here: from now on a connect with the same bytes gets another session, not this one at its end.
        if logout.as_mut().now_or_never().is_none() {
            state.closing.spawn(logout);
        }
    }
}

/// Ends all sessions. Answers when that is done and no login is under way that could open another one.
fn leave(state: &mut SessionState) {
    if state.leaving.is_empty() {
        return;
    }
    // Also the sessions that an earlier actor opened.
    close(state, state.args.connector.open());
    if !state.logins.is_empty() {
        return;
    }
    let replies = std::mem::take(&mut state.leaving);
    let mut closing = std::mem::take(&mut state.closing);
    tokio::spawn(async move {
        while closing.join_next().await.is_some() {}
        for reply in replies {
            let _ = reply.send(());
        }
    });
}

/// Ends every session in the process, in parallel.
pub async fn log_out_everywhere(connector: &dyn Connector) {
    let all = connector.open();
    futures::future::join_all(all.iter().map(log_out)).await;
}

async fn log_out(session: &Session) {
    let effect = Effect::new(
        EffectKind::Logout,
        Subject::Server(session.server().to_owned()),
    );
    session.logout(&effect).await;
}

fn leaving() -> ReconcileError {
    ReconcileError {
        side: ErrorSource::Vsphere,
        reason: Reason::SessionActorRestarting,
        message: "the process ends, its sessions are being closed".to_owned(),
        class: Class::Transient,
    }
}

/// The answer for a pool of that namespace. What the Secret allows is read again as often as a refused Secret.
fn answered(
    state: &SessionState,
    secret: &ObjectKey,
    namespace: &str,
    now: Duration,
) -> Answer<Session> {
    match (admitted(state, secret, namespace), state.looks.get(secret)) {
        (Ok(()), _) => state.table.answer(secret, now),
        (Err(refused), Some(look)) if now.saturating_sub(look.at) < table::REFUSED_LOOK => {
            Answer::ReconcileError(refused)
        }
        (Err(_), _) => Answer::Resolve,
    }
}

fn admitted(
    state: &SessionState,
    secret: &ObjectKey,
    namespace: &str,
) -> Result<(), ReconcileError> {
    let look = state.looks.get(secret);
    let pools_from = look.and_then(|look| look.pools_from.as_deref());
    secret_ref::admit(secret, pools_from, namespace)
}

/// Refuses the callers that the Secret does not allow. `true`: no caller remains, so no login is needed.
fn turn_away(state: &mut SessionState, secret: &ObjectKey) -> bool {
    let mut left = Vec::new();
    for (namespace, reply) in state.waiting.remove(secret).unwrap_or_default() {
        match admitted(state, secret, &namespace) {
            Ok(()) => left.push((namespace, reply)),
            Err(refused) => answer(reply, Err(refused)),
        }
    }
    let nobody = left.is_empty();
    if !nobody {
        state.waiting.insert(secret.clone(), left);
    }
    nobody
}

fn answer(reply: Reply, result: Result<Session, ReconcileError>) {
    // The caller may have been aborted in the meantime.
    let _ = reply.send(result);
}

fn begin(state: &mut SessionState, myself: ActorRef<SessionMsg>, secret: ObjectKey) {
    let args = state.args.clone();
    let to = myself.clone();
    beside(&mut state.resolutions, &myself, async move {
        let read = read(&args, &secret).await;
        let _ = to.send_message(SessionMsg::Read(secret, Box::new(read)));
    });
}

async fn read(args: &SessionArgs, secret: &ObjectKey) -> Result<Seen, ReconcileError> {
    let Some(found) = args.cluster.secret(secret).await? else {
        let missing = ReconcileError::blocked(
            ErrorSource::Vsphere,
            Reason::SecretNotFound,
            format!(
                "Secret {secret} does not exist; create it with keys server, username and password"
            ),
        );
        return Ok(Seen {
            pools_from: None,
            held: Err(missing),
        });
    };
    let held = match credentials::parse(&found.data, &args.server_rule) {
        Ok(credentials) => Ok(Found {
            credentials,
            version: found.version,
        }),
        Err(e) => {
            let message = format!("Secret {secret}: {e}");
            Err(ReconcileError::blocked(
                ErrorSource::Vsphere,
                e.reason(),
                message,
            ))
        }
    };
    Ok(Seen {
        pools_from: found.pools_from,
        held,
    })
}

/// The same bytes are one login, in any number of Secrets: two refusals would be two steps to a lockout.
fn log_in(
    state: &mut SessionState,
    myself: ActorRef<SessionMsg>,
    secret: ObjectKey,
    found: Found,
    now: Duration,
) {
    let Found {
        credentials,
        version,
    } = found;
    let login = Login::of(&credentials, version);
    if let Some(open) = state.table.open_session(&login.digest) {
        return resolved(state, &secret, Resolved::Session(open, login), now);
    }
    if state.ends {
        return resolved(state, &secret, Resolved::Failed(leaving()), now);
    }
    state.args.ledger.recall(&login, &state.args.view.pools());
    let sharing = state.logins.entry(login.digest).or_default();
    sharing.push((secret, login.version));
    if sharing.len() > 1 {
        return;
    }
    let connector = state.args.connector.clone();
    let to = myself.clone();
    beside(&mut state.resolutions, &myself, async move {
        let end = connector.connect(&credentials).await;
        let _ = to.send_message(SessionMsg::LoggedIn(Box::new(credentials), end));
    });
}

/// What another process must know of that Secret: vCenter refused its content when it was read last.
fn record(state: &SessionState, secret: &ObjectKey) -> Option<RefusedCredentials> {
    let login = state.table.refused(secret)?;
    Some(RefusedCredentials {
        account: Some(login.account.as_str().to_owned()),
        refused_at: Some(Time(state.args.ledger.at(&login.digest)?)),
        secret_resource_version: login.version.resource_version.clone(),
        secret_uid: login.version.uid.clone(),
    })
}

/// What the end of a login means for each Secret with its bytes.
fn ended(ledger: &Ledger, login: Login, end: &VcResult<Session>) -> Resolved<Session> {
    match end {
        Ok(session) => Resolved::Session(session.clone(), login),
        Err(VcError {
            kind: VcErrorKind::Fault(Fault::InvalidLogin),
            ..
        }) => {
            let rest = ledger.rest(&login);
            Resolved::Refused(login, rest)
        }
        Err(VcError {
            kind: VcErrorKind::LoginLimited(again),
            ..
        }) => Resolved::Refused(login, Rest::Limited { again: *again }),
        Err(e) if matches!(e.kind, VcErrorKind::Untrusted | VcErrorKind::NotAllowed) => {
            Resolved::Unusable(e.clone().into())
        }
        Err(e) => Resolved::Failed(e.clone().into()),
    }
}

fn resolved(state: &mut SessionState, secret: &ObjectKey, end: Resolved<Session>, now: Duration) {
    let result = match &end {
        Resolved::Session(session, _) => Ok(session.clone()),
        Resolved::Refused(login, rest) => Err(login.told(secret, *rest)),
        Resolved::Unusable(trouble) | Resolved::Unread(trouble) | Resolved::Failed(trouble) => {
            Err(trouble.clone())
        }
    };
    state.about.failures = result
        .as_ref()
        .err()
        .map_or(0, |_| state.about.failures + 1);
    state.about.passes += 1;
    state.table.resolved(secret, end, now);
    let mut open = BTreeMap::new();
    for session in state.table.sessions() {
        *open.entry(session.server().to_owned()).or_default() += 1;
    }
    state.args.instruments.sessions(&open);
    for (namespace, reply) in state.waiting.remove(secret).into_iter().flatten() {
        let admitted = admitted(state, secret, &namespace);
        answer(reply, admitted.and_then(|()| result.clone()));
    }
}

/// [`Sessions`] over the actor. After a restart it reaches the new actor.
pub struct SessionClient<F>(pub F);

/// How long to wait for the session actor. The adapter's call timeout limits a login.
const ANSWER_WITHIN: Duration = Duration::from_secs(75);

#[async_trait]
impl<F> Sessions for SessionClient<F>
where
    F: Fn() -> Option<Counted<SessionMsg>> + Send + Sync,
{
    async fn session(
        &self,
        secret: &ObjectKey,
        namespace: &str,
    ) -> Result<Session, ReconcileError> {
        let lost = |why: &str| ReconcileError {
            side: ErrorSource::Vsphere,
            reason: Reason::SessionActorRestarting,
            message: format!("the session actor {why}; trying again"),
            class: Class::Transient,
        };
        let desk = (self.0)().ok_or_else(|| lost("is being restarted"))?;
        let (secret, queued) = (secret.clone(), desk.send());
        let namespace = namespace.to_owned();
        let ask = |reply| SessionMsg::Get(secret, namespace, reply, queued);
        let asked = desk.actor.call(ask, Some(ANSWER_WITHIN)).await;
        match asked {
            Ok(ractor::rpc::CallResult::Success(result)) => result,
            Ok(_) => Err(lost("did not answer")),
            Err(_) => Err(lost("died")),
        }
    }

    async fn refusal(&self, secret: &ObjectKey) -> Option<RefusedCredentials> {
        let desk = (self.0)()?;
        let (secret, queued) = (secret.clone(), desk.send());
        let ask = |reply| SessionMsg::Refusal(secret, reply, queued);
        match desk.actor.call(ask, Some(ANSWER_WITHIN)).await {
            Ok(ractor::rpc::CallResult::Success(refusal)) => refusal,
            // The restarted actor will answer.
            _ => None,
        }
    }
}
