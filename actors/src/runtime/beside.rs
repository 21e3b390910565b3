//! Work beside an actor. A message reports its end to the actor.

use std::panic::AssertUnwindSafe;

use futures::FutureExt as _;
use ractor::{ActorRef, Message};
use tokio::task::JoinSet;
use tracing::Instrument as _;

/// Runs `work` in `set`. If `work` panics, no message would report its end, and the actor would wait for ever. So a panic
/// stops the actor, and the supervisor starts another one.
pub fn beside<M: Message>(
    set: &mut JoinSet<()>,
    actor: &ActorRef<M>,
    work: impl Future<Output = ()> + Send + 'static,
) {
    let actor = actor.clone();
    let work = async move {
        if AssertUnwindSafe(work).catch_unwind().await.is_err() {
            actor.stop(Some("work beside it panicked".to_owned()));
        }
    };
    set.spawn(work.in_current_span());
}
