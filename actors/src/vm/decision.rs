//! The next step, and what people hold it back with.

use std::time::Duration;

use agent_forge_crds::conditions::{Policy, Reason};

use super::{
    known::Obstacle,
    memory::{Memory, subject},
    observed::Observed,
    step::{self, Step},
};
use crate::{context::Context, domain::names::ObjectKey, runtime::holds};

/// How soon the pass looks again whether the caches are still in doubt.
const DOUBTED: Duration = Duration::from_secs(2);

/// The step, or what people hold it back with. The gate asks the same again before the effect. What the caches had no room for
/// is unknown, so no hold says that it does not exist.
pub(super) fn held_back(context: &Context, observed: &Observed, step: Step) -> Step {
    let now = context.clock.wall();
    let held = match &step {
        Step::Hold { reason, .. } if reason.has(Policy::Absent) => {
            holds::by_bound(&observed.holds).map(|hold| (hold.reason, hold.why))
        }
        _ => step.effect().and_then(|kind| {
            let hold = holds::who_holds(kind, &observed.holds, now)?;
            Some((hold.reason, format!("{} waits: {}", kind.name(), hold.why)))
        }),
    };
    let Some((reason, message)) = held else {
        return step;
    };
    Step::Hold {
        reason,
        message,
        // Nothing else wakes the actor when the doubt is over.
        again: if observed.holds.is_unclear() {
            Some(DOUBTED)
        } else {
            observed.holds.left(now)
        },
    }
}

/// What is said of a wait.
pub(super) fn obstacle(key: &ObjectKey, reason: Reason, message: String) -> Obstacle {
    Obstacle {
        subject: subject(key),
        reason,
        message,
    }
}

/// What comes next is to wait: for this.
pub(super) fn wait(context: &Context, observed: &Observed, memory: &Memory) -> Option<Obstacle> {
    let next = step::next(&observed.facts(context, memory));
    match held_back(context, observed, next) {
        Step::Hold {
            reason, message, ..
        } => Some(obstacle(&observed.child.key, reason, message)),
        _ => None,
    }
}
