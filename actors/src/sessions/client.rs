//! The session actor as the other actors see it.

use std::time::Duration;

use agent_forge_crds::{conditions::Reason, pool::RefusedCredentials};
use async_trait::async_trait;

use super::state::{Session, SessionMsg};
use crate::{
    domain::{
        failure::{Class, ErrorSource, ReconcileError},
        names::ObjectKey,
    },
    ports::sessions::Sessions,
    runtime::mailbox::Counted,
};

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
