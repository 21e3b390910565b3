//! Chaos: kills one random actor after the other, in the same way as the debug endpoint does.
//!
//! The seed fixes the random choices. It does not fix which actors exist at a given time, so two runs with one seed are
//! similar but not equal. As always, more than 25 deaths of one infrastructure actor within a minute end the process.

use std::time::Duration;

use agent_forge_actors::supervisor::SupervisorMsg;
use ractor::{ActorRef, rpc::CallResult};
use tokio::time::{MissedTickBehavior, interval};

const WITHIN: Option<Duration> = Some(Duration::from_secs(5));

/// Kills actors until the future is dropped.
pub async fn run(supervisor: ActorRef<SupervisorMsg>, every: Duration, seed: u64) {
    tracing::warn!(?every, seed, "chaos: actors are killed on purpose");
    let mut choices = fastrand::Rng::with_seed(seed);
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Ok(CallResult::Success(actors)) =
            supervisor.call(SupervisorMsg::Describe, WITHIN).await
        else {
            continue;
        };
        let Some(victim) = choices.choice(&actors) else {
            continue;
        };
        let (which, panic) = (victim.name.clone(), choices.bool());
        tracing::warn!(actor = which, panic, "chaos");
        let kill = |reply| SupervisorMsg::Kill {
            which,
            panic,
            reply,
        };
        let _ = supervisor.call(kill, WITHIN).await;
    }
}
