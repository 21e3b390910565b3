//! From a Secret to a session: who may have it, what the Secret holds, and the login with that.

use std::{collections::BTreeMap, time::Duration};

use agent_forge_crds::{Time, conditions::Reason, pool::RefusedCredentials};
use ractor::ActorRef;

use super::{
    credentials,
    ledger::Ledger,
    login::Login,
    refusals::Rest,
    secret_ref,
    state::{Admits, Found, ReadSecret, Reply, Session, SessionArgs, SessionMsg, SessionState},
    table::{self, Answer, Resolved},
};
use crate::{
    domain::{
        failure::{Class, ErrorSource, ReconcileError},
        names::ObjectKey,
    },
    ports::vcenter::{Credentials, Fault, VcError, VcErrorKind, VcResult},
    runtime::beside::beside,
};

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
    secret_ref::admit(secret_ref::CREDENTIALS, secret, pools_from, namespace)
}

/// Somebody asks for the session of that Secret.
pub(super) fn get(
    state: &mut SessionState,
    myself: ActorRef<SessionMsg>,
    secret: ObjectKey,
    (namespace, reply): (String, Reply),
    now: Duration,
) {
    if state.ends {
        return answer(reply, Err(leaving()));
    }
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

/// That Secret was read.
pub(super) fn was_read(
    state: &mut SessionState,
    myself: ActorRef<SessionMsg>,
    secret: ObjectKey,
    seen: ReadSecret,
    now: Duration,
) {
    let look = Admits {
        at: now,
        pools_from: seen.pools_from,
    };
    state.looks.insert(secret.clone(), look);
    if turn_away(state, &secret) {
        return;
    }
    match seen.held {
        Ok(found) => log_in(state, myself, secret, found, now),
        Err(trouble) => resolved(state, &secret, Resolved::Unusable(trouble), now),
    }
}

/// The login with these credentials ended.
pub(super) fn logged_in(
    state: &mut SessionState,
    credentials: &Credentials,
    end: &VcResult<Session>,
    now: Duration,
) {
    let digest = credentials::digest(credentials);
    for (secret, version) in state.logins.remove(&digest).unwrap_or_default() {
        let login = Login::of(credentials, version);
        let end = ended(&state.args.ledger, login, end);
        resolved(state, &secret, end, now);
    }
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
        let _ = to.send_message(SessionMsg::Read(secret, read.map(Box::new)));
    });
}

async fn read(args: &SessionArgs, secret: &ObjectKey) -> Result<ReadSecret, ReconcileError> {
    let Some(found) = args.cluster.secret(secret).await? else {
        let missing = ReconcileError::blocked(
            ErrorSource::Vsphere,
            Reason::SecretNotFound,
            format!(
                "Secret {secret} does not exist; create it with keys server, username and password"
            ),
        );
        return Ok(ReadSecret {
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
    Ok(ReadSecret {
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
pub(super) fn record(state: &SessionState, secret: &ObjectKey) -> Option<RefusedCredentials> {
    let login = state.table.refused(secret)?;
    Some(RefusedCredentials {
        account: Some(login.account.as_str().to_owned()),
        earlier_at: state.args.ledger.earlier(login).map(Time),
        vcenter: state.args.ledger.instance(login).map(|i| i.to_string()),
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

pub(super) fn resolved(
    state: &mut SessionState,
    secret: &ObjectKey,
    end: Resolved<Session>,
    now: Duration,
) {
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
