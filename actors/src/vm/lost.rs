//! An Agent that serves nobody and cannot be claimed: what it waits for, and when its VM is replaced. Pure.
//!
//! Facts (upstream): the service calls a host disconnected after three minutes of silence; the provider claims an Agent
//! only while its conditions `Connected` and `Validated` are True; nothing upstream ever ends either state by itself. A
//! guest whose Agent was deleted does not register again before it boots again.
//!
//! Guarantees: only an Agent that THE rule does not contradict counts, and only where it is the only one. A VM that has
//! served is never lost in this sense: what is missing there is said and left alone.

use std::{sync::Arc, time::Duration};

use agent_forge_crds::{
    agent::VmStatus,
    conditions::{Phase, vm_reason},
    external::agent::{Agent, CONNECTED, VALIDATED},
};
use jiff::{SignedDuration, Timestamp};

use crate::domain::{
    identity::{AgentMatch, agent_runs_on},
    managed_vm::ManagedVm,
};

/// How long validations may fail before that is said: they do for a moment after registering and after binding.
pub const FAILING: SignedDuration = SignedDuration::from_mins(5);
/// How long binding may take before that is said: the guest is asked once a minute.
pub const BINDING: SignedDuration = SignedDuration::from_mins(10);
/// Longest part of a foreign sentence that is repeated.
const LONGEST: usize = 300;

/// Why no Agent of the VM can be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The guest does not answer the service any more.
    Disconnected,
    /// The Agent was registered, and is gone.
    Gone,
}

impl Lost {
    /// In one word, for `status.lastFailure.class`.
    #[must_use]
    pub const fn class(self) -> &'static str {
        match self {
            Self::Disconnected => "AgentDisconnected",
            Self::Gone => "AgentGone",
        }
    }

    /// What happened, for people.
    #[must_use]
    pub const fn explain(self) -> &'static str {
        match self {
            Self::Disconnected => "its Agent registered and does not answer any more",
            Self::Gone => "its Agent registered and was deleted before it served",
        }
    }
}

/// The service does not hear from that guest any more.
#[must_use]
pub fn is_silent(agent: &Agent) -> bool {
    let state = agent.state();
    state == "disconnected"
        || state == "disconnected-unbound"
        || agent.condition(CONNECTED).is_some_and(|c| c.is_false())
}

/// It is silent, serves nobody and is not on its way out: nothing is lost with it.
#[must_use]
pub fn is_abandoned(agent: &Agent) -> bool {
    is_silent(agent) && !agent.is_claimed_or_bound() && !agent.is_deleting()
}

/// The only Agent that may be the VM's own, whether or not its inventory is there yet.
#[must_use]
pub fn candidate<'a>(child: &ManagedVm, possible: &'a [Arc<Agent>]) -> Option<&'a Arc<Agent>> {
    let identity = child.identity.as_ref()?;
    let fits = |a: &&Arc<Agent>| {
        let word = agent_runs_on(a, identity);
        matches!(word, AgentMatch::Same | AgentMatch::NotYet) || child.was_bound_to(a)
    };
    let mut all = possible.iter().filter(fits);
    all.next().filter(|_| all.next().is_none())
}

/// The record says, in one way or another, that the VM's Agent was bound once.
#[must_use]
pub fn was_bound(vm: &VmStatus) -> bool {
    let missing = vm.reason.as_deref() == Some(vm_reason::AGENT_MISSING);
    match &vm.phase {
        Some(Phase::Bound | Phase::Released) => true,
        Some(Phase::Orphaned) => missing,
        _ => false,
    }
}

/// Whether the Agent of a VM is lost. `possible`: all that may run there. `served`: one of it served once, by whatever
/// is known.
#[must_use]
pub fn lost(child: &ManagedVm, possible: &[Arc<Agent>], served: bool) -> Option<Lost> {
    let status = child.object.status.as_ref()?;
    let vm = status.vm.as_ref().filter(|vm| vm.bios_uuid.is_some())?;
    if served || was_bound(vm) || child.adopted || vm.attempt.is_none() {
        return None;
    }
    if possible.is_empty() {
        return vm.agent_ref.as_ref().map(|_| Lost::Gone);
    }
    candidate(child, possible)
        .is_some_and(|a| is_abandoned(a))
        .then_some(Lost::Disconnected)
}

/// What is left until a VM whose Agent was lost at `since` is replaced.
#[must_use]
pub fn left(since: Timestamp, patience: Duration, now: Timestamp) -> Duration {
    let gone_by = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    patience.saturating_sub(gone_by)
}

/// What the Agent's validations say that fail, once they have failed for [`FAILING`]; else when that will be so.
///
/// # Errors
/// How long until it is to be said; `None`: they do not fail.
pub fn failing(agent: &Agent, now: Timestamp) -> Result<String, Option<SignedDuration>> {
    let state = agent.state();
    let failed = agent.condition(VALIDATED).filter(|c| c.is_false());
    let bare = matches!(state, "insufficient" | "insufficient-unbound");
    let Some(condition) = failed else {
        return if bare { Ok(String::new()) } else { Err(None) };
    };
    let since = condition.last_transition_time.as_ref().map(|t| t.0);
    let lasted = since.map_or(FAILING, |t| now.duration_since(t));
    if lasted < FAILING {
        return Err(Some(FAILING - lasted));
    }
    let message = condition.message.as_deref().unwrap_or_default();
    let first = message.lines().next().unwrap_or_default();
    Ok(first.chars().take(LONGEST).collect())
}

#[cfg(test)]
mod tests;
