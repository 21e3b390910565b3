//! The way out of the tree, past whatever is queued: a burst of changes must not outlast the time that a process has to end.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use ractor::{ActorRef, RpcReplyPort, rpc::CallResult};

use super::SupervisorMsg;

/// Where the wish to stop lies until the supervisor looks; it looks before each message.
#[derive(Default)]
pub struct Exit(Mutex<Option<RpcReplyPort<()>>>);

impl Exit {
    /// Has all actors stopped and all sessions closed, before anything else that is queued; whether that was done in time.
    pub async fn leave(&self, supervisor: &ActorRef<SupervisorMsg>, within: Duration) -> bool {
        let ask = |reply| {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(reply);
            // Where nothing is queued, somebody has to knock.
            SupervisorMsg::Shutdown
        };
        let asked = supervisor.call(ask, Some(within)).await;
        matches!(asked, Ok(CallResult::Success(())))
    }

    /// The wish, once.
    pub(super) fn asked(&self) -> Option<RpcReplyPort<()>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
