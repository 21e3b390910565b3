//! Calls that vCenter refused, and how long they rest.

use std::time::Duration;

use agent_forge_crds::conditions::Reason;

use super::step::Resting;
use crate::{
    domain::failure::{Class, ErrorSource, ReconcileError},
    ports::{effect::EffectKind, vcenter::Place},
    runtime::backoff,
};

/// A create that vCenter refused, so that nothing was made. If only a changed input helps, the same create is not sent
/// again before something changed or some time passed. In any case the place is resolved again first.
#[derive(Clone, Debug)]
pub struct Refused {
    /// When (monotonic).
    pub at: Duration,
    /// For which generation of the pool.
    pub generation: Option<i64>,
    /// The refusal.
    pub trouble: ReconcileError,
    /// The place that resolving again gave.
    pub placed_again: Option<Place>,
}

impl Refused {
    /// The create is not tried again yet.
    #[must_use]
    pub fn rests(&self, generation: Option<i64>, now: Duration) -> bool {
        self.trouble.class == Class::Blocked
            && self.generation == generation
            && now.saturating_sub(self.at) < backoff::SLOW_PROBE
    }
}

/// A task works on the VM and does not end: ours, or another that blocks ours. vCenter would refuse each try meanwhile.
/// So the actor does not repeat the same call for a while, and only looks at the VM. Another call is tried at once: if
/// the VM waits for an answer to a question, that call may help.
#[derive(Clone, Debug)]
pub struct Busy {
    call: EffectKind,
    /// Why, as one word.
    reason: Reason,
    /// Sentence.
    why: String,
    /// When (monotonic) it was first met.
    since: Duration,
    /// When it was last met.
    at: Duration,
    /// It lasts: the call rests.
    for_long: bool,
}

impl Busy {
    /// How long the call rests.
    const REST: Duration = Duration::from_secs(300);
    /// Most other tasks end sooner than this. Until then the call is retried as after any failure.
    const SHORT: Duration = Duration::from_secs(30);
    /// If the task was not seen for that long, it no longer counts.
    const PAST: Duration = Duration::from_secs(600);

    /// `call` no longer waits for its task, or is not tried again while another task runs.
    #[must_use]
    pub fn for_long(call: EffectKind, reason: Reason, why: String, now: Duration) -> Self {
        Self {
            call,
            reason,
            why,
            since: now,
            at: now,
            for_long: true,
        }
    }

    /// vCenter refuses `call` because another task works on the VM. `before`: what was known of that so far.
    #[must_use]
    pub fn again(before: Option<Self>, call: EffectKind, why: String, now: Duration) -> Self {
        let Some(before) = before else {
            return Self {
                for_long: false,
                ..Self::for_long(call, Reason::VmBusy, why, now)
            };
        };
        let for_long = before.for_long || now.saturating_sub(before.since) >= Self::SHORT;
        // A message about the same call stays as it is.
        let (reason, why) = if before.call == call {
            (before.reason, before.why)
        } else {
            (Reason::VmBusy, why)
        };
        Self {
            call,
            reason,
            why,
            since: before.since,
            at: now,
            for_long,
        }
    }

    /// It lasts: the call rests.
    #[must_use]
    pub fn is_for_long(&self) -> bool {
        self.for_long
    }

    /// The failure that people see, from its begin until it is over.
    #[must_use]
    pub fn trouble(&self) -> ReconcileError {
        ReconcileError::transient(ErrorSource::Vsphere, self.reason.clone(), &self.why)
    }

    /// The call that still rests, and for how long.
    #[must_use]
    pub fn rests(&self, now: Duration) -> Option<Resting<'_>> {
        let left = Self::REST.saturating_sub(now.saturating_sub(self.at));
        (self.for_long && !left.is_zero()).then_some(Resting {
            call: self.call,
            reason: &self.reason,
            why: &self.why,
            left,
        })
    }

    /// The task was not seen for long.
    #[must_use]
    pub fn is_past(&self, now: Duration) -> bool {
        now.saturating_sub(self.at) >= Self::PAST
    }
}
