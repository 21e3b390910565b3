//! The operator's own decision about a pool, on what a command sees now.

use std::{sync::Mutex, time::Duration};

use agent_forge_actors::{
    domain::names::ObjectKey,
    pool::{
        Memory,
        observe::observe,
        observed::Observed,
        plan::{Plan, plan},
    },
    ports::{clock::Clock, cluster::View},
};
use jiff::Timestamp;

/// How long an AgentMachine counts as seen waiting: longer than the operator's debounce, shorter than the time that the
/// provider gets to bind a free Agent.
const SEEN_FOR: Duration = Duration::from_secs(1);

/// A clock that a command sets.
struct SetClock {
    wall: Timestamp,
    monotonic: Mutex<Duration>,
}

impl Clock for SetClock {
    fn wall(&self) -> Timestamp {
        self.wall
    }

    fn monotonic(&self) -> Duration {
        self.monotonic.lock().map(|now| *now).unwrap_or_default()
    }
}

/// What the pool's actor would observe and plan now. `None`: there is no such pool.
#[must_use]
pub fn decide(
    view: &dyn View,
    pool: &ObjectKey,
    secret_namespaces: &[String],
    now: Timestamp,
) -> Option<(Observed, Plan)> {
    let clock = SetClock {
        wall: now,
        monotonic: Mutex::default(),
    };
    let mut memory = Memory::default();
    // The first look starts the clocks of the AgentMachines that wait.
    observe(view, &clock, pool, secret_namespaces, &mut memory)?;
    if let Ok(mut monotonic) = clock.monotonic.lock() {
        *monotonic = SEEN_FOR;
    }
    let observed = observe(view, &clock, pool, secret_namespaces, &mut memory)?;
    let plan = plan(&observed);
    Some((observed, plan))
}
