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

pub mod client;
pub mod credentials;
pub mod ledger;
pub mod login;
pub mod of_vm;
pub mod refusals;
mod resolve;
mod rest;
pub mod secret_ref;
mod state;
pub mod table;
#[cfg(test)]
mod tests;
pub mod users;

use std::{collections::BTreeMap, sync::Arc};

use futures::FutureExt as _;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::task::JoinSet;

pub use self::state::{SessionArgs, SessionMsg, SessionState};
use self::{
    resolve::{get, logged_in, record, resolved, was_read},
    state::Session,
    table::{Resolved, Table},
};
use crate::{
    ports::{
        effect::{Effect, EffectKind, Subject},
        vcenter::Connector,
    },
    runtime::shell::Description,
};

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
            SessionMsg::Get(secret, namespace, reply, queued) => {
                drop(queued);
                get(state, myself, secret, (namespace, reply), now);
            }
            SessionMsg::Refusal(secret, reply, queued) => {
                drop(queued);
                let _ = reply.send(record(state, &secret));
            }
            SessionMsg::Read(secret, Ok(seen)) => was_read(state, myself, secret, *seen, now),
            SessionMsg::Read(secret, Err(trouble)) => {
                resolved(state, &secret, Resolved::Unread(trouble), now);
            }
            SessionMsg::LoggedIn(credentials, end) => logged_in(state, &credentials, &end, now),
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
