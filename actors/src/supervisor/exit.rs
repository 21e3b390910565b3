//! Ends the tree ahead of all queued messages: a process has limited time to end, and a burst of changes must not use it up.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use ractor::{ActorRef, RpcReplyPort, rpc::CallResult};

use super::msg::SupervisorMsg;

/// Holds the request to stop until the supervisor looks. The supervisor looks before each message.
#[derive(Default)]
pub struct Exit(Mutex<Option<RpcReplyPort<()>>>);

impl Exit {
    /// Stops all actors and closes all sessions, ahead of all queued messages. Returns whether that was done in time.
    pub async fn leave(&self, supervisor: &ActorRef<SupervisorMsg>, within: Duration) -> bool {
        let ask = |reply| {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(reply);
            // If nothing is queued, this message makes the supervisor look.
            SupervisorMsg::Shutdown
        };
        let asked = supervisor.call(ask, Some(within)).await;
        matches!(asked, Ok(CallResult::Success(())))
    }

    /// The request, once.
    pub(super) fn asked(&self) -> Option<RpcReplyPort<()>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
