//! The end of a pass: how it went, and when the status that says so is written.

use std::time::Duration;

use agent_forge_crds::{
    agent::VsphereAgentStatus,
    conditions::{Phase, Reason},
};

use super::{
    concern, decision,
    known::{self, Obstacle},
    memory::{Memory, subject},
    moments,
    observed::{Observed, STUCK_GRACE},
    status,
    step::MISSING_PROBE,
    traced,
};
use crate::{
    context::Context,
    domain::{
        failure::{Class, ErrorSource, ReconcileError},
        names::ObjectKey,
    },
    report::vm as report,
    runtime::{shell::Verdict, status_writer::Publish},
};

/// How long a change of phase, reason and references waits for the next change before it is written.
const QUIET_WRITES: Duration = Duration::from_secs(2);
/// The same between the registration of an Agent and its binding. Its preparation and its binding follow soon, and are
/// written together. Even a slow watch needs less time than this.
const UNTIL_BOUND: Duration = Duration::from_secs(30);

/// How a pass went.
#[derive(Default)]
pub(super) struct PassEnd {
    /// It ended with a hold, which is the obstacle.
    pub(super) held: bool,
    /// What blocks the VM.
    pub(super) obstacle: Option<Obstacle>,
    pub(super) failure: Option<Class>,
    pub(super) again: Option<Duration>,
}

impl PassEnd {
    pub(super) fn hold(
        &mut self,
        key: &ObjectKey,
        reason: Reason,
        message: String,
        again: Option<Duration>,
    ) {
        self.again = again;
        self.obstacle = Some(decision::obstacle(key, reason, message));
    }

    pub(super) fn fail(&mut self, key: &ObjectKey, trouble: &ReconcileError) {
        // A write conflict is not worth a condition: the next pass follows at once. The first failure counts.
        if trouble.class != Class::Conflict && self.failure.is_none() {
            self.say(key, trouble);
        }
        self.failure = self.failure.or(Some(trouble.class));
    }

    pub(super) fn say(&mut self, key: &ObjectKey, trouble: &ReconcileError) {
        let subject = if trouble.side == ErrorSource::Vsphere {
            report::VSPHERE.to_owned()
        } else {
            subject(key)
        };
        self.obstacle = Some(Obstacle {
            subject,
            reason: trouble.reason.clone(),
            message: trouble.message.clone(),
        });
    }

    pub(super) fn verdict(self) -> Verdict {
        let waiting_on = self
            .obstacle
            .map(|o| (o.reason, o.message))
            .into_iter()
            .collect();
        Verdict {
            again: self.again,
            failure: self.failure,
            waiting_on,
        }
    }
}

/// Renders the status, and writes it if it is due. Returns it.
pub(super) async fn publish(
    context: &Context,
    observed: &Observed,
    memory: &mut Memory,
    outcome: &mut PassEnd,
) -> VsphereAgentStatus {
    let recorded = observed.child.object.status.as_ref();
    moments::note(context, observed, memory);
    let clock = context.clock.as_ref();
    let stuck = memory
        .stuck_since
        .and_then(|since| until_stuck(since, clock.monotonic()));
    let deadline = observed
        .vm()
        .and_then(|v| v.discovery_deadline.as_ref())
        .filter(|_| observed.host.agent.is_none());
    let deadline = deadline
        .and_then(|d| {
            Duration::try_from(d.0.duration_since(known::discovery_time(observed, memory, clock)))
                .ok()
        })
        .filter(|d| !d.is_zero());
    let known = known::known(context, observed, outcome.obstacle.as_ref(), memory);
    let rendered = status::render(&observed.record(), &known);
    let wakes = rendered
        .vm
        .as_ref()
        .and_then(|vm| concern::wakes(&known, vm));
    let pause_ends = observed.holds.left(clock.wall());
    // Nothing but a look shows that an administrator of vCenter has ended a pause.
    let paused = observed.child.marks().paused.then_some(MISSING_PROBE);
    let holds = [pause_ends, paused];
    outcome.again = [outcome.again, stuck, deadline, wakes]
        .into_iter()
        .chain(holds)
        .flatten()
        .min();
    if observed.holds.is_silent() {
        return rendered;
    }
    let changed = recorded != Some(&rendered);
    let window = || {
        let waits = can_wait(recorded, &rendered);
        waits.then(|| patience(observed, &rendered))
    };
    let failed = match memory.status.next(changed, clock.monotonic(), window) {
        Publish::Unchanged => None,
        Publish::Failed(class) => Some(class),
        Publish::Later(left) => {
            outcome.again = Some(outcome.again.map_or(left, |a| a.min(left)));
            None
        }
        Publish::Now => {
            let written = traced::publish(context, observed, rendered.clone(), memory).await;
            written.err().map(|e| e.class())
        }
    };
    outcome.failure = outcome.failure.or(failed);
    rendered
}

/// Whether the change is one of several that follow each other closely: the Agent appears, is prepared, is bound. A
/// failure and its end are written at once.
fn can_wait(old: Option<&VsphereAgentStatus>, new: &VsphereAgentStatus) -> bool {
    // What cannot be seen again after it is over.
    let passing = |status: &VsphereAgentStatus| {
        let vm = status.vm.as_ref();
        vm.map(|vm| {
            let paused = [vm.agent_machine_paused, vm.machine_vanished_paused];
            (paused, vm.guest_may_be_node)
        })
    };
    old.is_some_and(|old| {
        passing(old) == passing(new)
            && old.waiting_on == new.waiting_on
            && old.observed_generation == new.observed_generation
            && old.conditions == new.conditions
    })
}

/// How long such a change waits, counted from the first one. A binding that comes late is written at once, with all
/// earlier changes.
fn patience(observed: &Observed, new: &VsphereAgentStatus) -> Duration {
    let old = observed.child.object.status.as_ref();
    let arrives = old.is_some_and(|old| is_of_arrival(old, new));
    let bound = observed
        .host
        .agent
        .as_ref()
        .is_none_or(|a| a.is_claimed_or_bound());
    let wanted = observed.host.machine.wants_host() && !observed.child.deleting;
    if arrives && wanted && !bound {
        UNTIL_BOUND
    } else {
        QUIET_WRITES
    }
}

/// Whether the status changes only in the progress of a VM whose Agent has never served.
fn is_of_arrival(old: &VsphereAgentStatus, new: &VsphereAgentStatus) -> bool {
    let bare = |status: &VsphereAgentStatus| {
        let mut status = status.clone();
        status.timeline.clear();
        if let Some(vm) = &mut status.vm {
            vm.phase = None;
            vm.reason = None;
            vm.last_transition_time = None;
            vm.agent_ref = None;
        }
        status
    };
    let phase = old.vm.as_ref().and_then(|vm| vm.phase.as_ref());
    matches!(phase, Some(Phase::Provisioning | Phase::Available)) && bare(old) == bare(new)
}

/// How long until the wait for a guest counts as stuck. `None` once it does: then the steps and their own backoff
/// decide when to look again.
fn until_stuck(since: Duration, now: Duration) -> Option<Duration> {
    let left = STUCK_GRACE.saturating_sub(now.saturating_sub(since));
    (!left.is_zero()).then_some(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_grace_wakes_once() {
        let since = Duration::from_secs(10);
        assert_eq!(until_stuck(since, since), Some(STUCK_GRACE));
        let nearly = since + STUCK_GRACE - Duration::from_millis(1);
        assert_eq!(until_stuck(since, nearly), Some(Duration::from_millis(1)));
        assert_eq!(until_stuck(since, since + STUCK_GRACE), None);
        assert_eq!(until_stuck(since, since + STUCK_GRACE * 100), None);
    }
}
