//! An Agent that serves no Machine and cannot be claimed: what it waits for, and when its VM is replaced. Pure.
//!
//! Facts:
//! - The Assisted Service calls a host disconnected after three minutes of silence.
//! - The provider claims an Agent only while its conditions `Connected` and `Validated` are True.
//! - No other controller ends either state by itself.
//! - A guest whose Agent was deleted registers again only after its next boot.
//!
//! Guarantees: only an Agent that the identity rule does not contradict counts, and only if it is the only one. A VM
//! that has served is never lost in this sense: the status reports what is missing, and the VM is left alone.

use std::{sync::Arc, time::Duration};

use agent_forge_crds::{
    agent::VmStatus,
    conditions::{Phase, Reason},
    external::agent::{Agent, CONNECTED, VALIDATED},
};
use jiff::{SignedDuration, Timestamp};

use crate::domain::{
    identity::{AgentMatch, agent_runs_on},
    managed_vm::ManagedVm,
    text,
};

/// How long validations may fail before the status reports it. After registering and after binding they fail for a
/// moment.
pub const FAILING: SignedDuration = SignedDuration::from_mins(5);
/// How long a host of the buffer may be silent before its VM is replaced.
pub const SILENT_IN_BUFFER: Duration = Duration::from_secs(600);
/// How long binding may take before the status reports it. A guest that runs asks the service once a minute.
pub const BINDING: SignedDuration = SignedDuration::from_mins(1);
/// How many characters of a foreign message are repeated.
const LONGEST: usize = 300;

/// Why no Agent of the VM can be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The guest no longer answers the service.
    Disconnected,
    /// The Agent was registered, and is gone.
    Gone,
    /// A host of the buffer fails its validations, so that nobody can claim it.
    Insufficient,
}

impl Lost {
    /// In one word, for `status.lastFailure.class`.
    #[must_use]
    pub const fn class(self) -> &'static str {
        match self {
            Self::Disconnected => "AgentDisconnected",
            Self::Gone => "AgentGone",
            Self::Insufficient => "AgentInsufficient",
        }
    }

    /// What happened, as a sentence for people.
    #[must_use]
    pub const fn explain(self) -> &'static str {
        match self {
            Self::Disconnected => "its Agent registered and does not answer any more",
            Self::Gone => "its Agent registered and was deleted before it served",
            Self::Insufficient => "its Agent registered and fails its validations",
        }
    }
}

/// The service no longer hears from that guest.
#[must_use]
pub fn is_silent(agent: &Agent) -> bool {
    let state = agent.state();
    state == "disconnected"
        || state == "disconnected-unbound"
        || agent.condition(CONNECTED).is_some_and(|c| c.is_false())
}

/// Since when the service has not heard from that guest, if it says so.
#[must_use]
pub fn silent_since(agent: &Agent) -> Option<Timestamp> {
    let connected = agent.condition(CONNECTED).filter(|c| c.is_false())?;
    connected.last_transition_time.as_ref().map(|t| t.0)
}

/// The Agent is silent, serves no Machine and is not being deleted: its removal loses nothing.
#[must_use]
pub fn is_abandoned(agent: &Agent) -> bool {
    is_silent(agent) && !agent.is_claimed_or_bound() && !agent.is_deleting()
}

/// The Agent has sent no inventory, serves no Machine and is not being deleted: no Machine can claim it.
#[must_use]
pub fn has_no_inventory(agent: &Agent) -> bool {
    agent.inventory().is_none() && !agent.is_claimed_or_bound() && !agent.is_deleting()
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
    let missing = vm.reason == Some(Reason::AgentMissing);
    match &vm.phase {
        Some(Phase::Bound | Phase::Released) => true,
        Some(Phase::Orphaned) => missing,
        _ => false,
    }
}

/// The Agent serves no Machine, and its validations have failed for [`FAILING`].
#[must_use]
pub fn is_insufficient(agent: &Agent, now: Timestamp) -> bool {
    !agent.is_claimed_or_bound() && !agent.is_deleting() && failing(agent, now).is_ok()
}

/// Whether the Agent of a VM is lost. `possible`: all Agents that may run there. `served`: one of them served once, as
/// far as is known.
#[must_use]
pub fn lost(
    child: &ManagedVm,
    possible: &[Arc<Agent>],
    served: bool,
    now: Timestamp,
) -> Option<Lost> {
    let status = child.object.status.as_ref()?;
    let vm = status.vm.as_ref().filter(|vm| vm.bios_uuid.is_some())?;
    if served || was_bound(vm) || child.adopted || vm.attempt.is_none() {
        return None;
    }
    if possible.is_empty() {
        return vm.agent_ref.as_ref().map(|_| Lost::Gone);
    }
    let agent = candidate(child, possible)?;
    if is_abandoned(agent) {
        return Some(Lost::Disconnected);
    }
    // A person may still mend what an AgentMachine waits for.
    (child.in_buffer && is_insufficient(agent, now)).then_some(Lost::Insufficient)
}

/// The time left until a VM whose Agent was lost at `since` is replaced.
#[must_use]
pub fn left(since: Timestamp, patience: Duration, now: Timestamp) -> Duration {
    let gone_by = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    patience.saturating_sub(gone_by)
}

/// What the Agent's failing validations say, once they have failed for [`FAILING`].
///
/// # Errors
/// How long until it is to be reported. `None`: they do not fail.
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
    Ok(first_line(condition.message.as_deref().unwrap_or_default()))
}

/// The first line of a foreign message, not too long.
#[must_use]
pub fn first_line(message: &str) -> String {
    let first = message.lines().next().unwrap_or_default();
    text::plain(&first.chars().take(LONGEST).collect::<String>())
}

#[cfg(test)]
mod tests;
