//! Work beside an actor, whose end the actor is told by a message.

use std::panic::AssertUnwindSafe;

use futures::FutureExt as _;
use ractor::{ActorRef, Message};
use tokio::task::JoinSet;
use tracing::Instrument as _;

/// Runs `work` in `set`. A panic there would be an end that nobody hears of, and leave its actor waiting for ever: so it stops
/// the actor, and the supervisor starts another.
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
