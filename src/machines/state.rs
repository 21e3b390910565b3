//! The state of a machine. It gives the colour; the reason gives the text. Pure.

use agent_forge_actors::domain::managed_vm::ManagedVm;
use agent_forge_crds::{
    conditions::{Phase, Reason, Who},
    external::agent_machine::AgentMachine,
};
use kube::ResourceExt as _;
use serde::Serialize;

use super::{
    found::Found,
    waits::{self, Wait},
};

/// The state of a machine. The order is that of the page: what needs a look comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// Red: it does not go on before a person acts.
    Stuck,
    /// Amber: it waits for something that comes without help, or for the end of a pause.
    Waiting,
    /// Blue: it is being made, or its Node is not ready yet.
    Coming,
    /// Teal: it waits in the buffer of its pool, and an AgentMachine could have it at once.
    Ready,
    /// Violet: it is being removed.
    Leaving,
    /// Green: its Node is ready.
    Serving,
    /// Grey: a host that is not a VM of agent-forge serves the AgentMachine.
    Foreign,
}

/// A state, and why.
#[derive(Clone, Debug)]
pub struct Judged {
    /// Gives the colour.
    pub state: State,
    /// One word.
    pub reason: String,
    /// A sentence; empty if there is none.
    pub message: String,
    /// What it waits for, and who can end that. A machine that is stuck or waits has one.
    pub wait: Option<Wait>,
}

impl Judged {
    fn new(state: State, reason: impl ToString, message: impl Into<String>) -> Self {
        Self {
            state,
            reason: reason.to_string(),
            message: message.into(),
            wait: None,
        }
    }

    fn waits(state: State, wait: Wait) -> Self {
        Self {
            wait: Some(wait.clone()),
            ..Self::new(state, wait.reason, wait.message)
        }
    }
}

/// The state of a machine that waits for this reason. It is stuck if a person has to act.
#[must_use]
pub fn held(reason: &Reason) -> State {
    match (reason, reason.about().who) {
        // In most cases the provider frees the Agent a moment later.
        (Reason::AgentBound, _) | (_, Who::Nobody | Who::Holder) => State::Waiting,
        _ => State::Stuck,
    }
}

/// The first row that a person has to act on, else the first row.
fn worst(found: &Found) -> Option<Judged> {
    let rows = found.rows().map(|row| (held(&row.reason), row));
    let (state, row) = rows.min_by_key(|(state, _)| *state)?;
    Some(Judged::waits(state, Wait::recorded(row)))
}

/// The state of a machine that has a VsphereAgent.
#[must_use]
pub fn of_child(found: &Found, child: &ManagedVm) -> Judged {
    let worst = worst(found);
    if let Some(stuck) = worst.as_ref().filter(|w| w.state == State::Stuck) {
        return stuck.clone();
    }
    if let Some(gone) = waits::gone_pool(found) {
        return Judged::waits(State::Stuck, gone);
    }
    let vm = child.vm();
    let phase = vm.and_then(|vm| vm.phase.clone());
    let reason = vm.and_then(|vm| vm.reason.clone());
    let reason = reason.unwrap_or(Reason::CreateRequested);
    if phase == Some(Phase::Orphaned) {
        // Nothing needs it, and a person has to decide.
        let told = waits::not_ready(found).map(|w| (w.message, w.since));
        let (message, since) = told.unwrap_or_default();
        let subject = format!("VsphereAgent/{}", child.key.name);
        return Judged::waits(State::Stuck, Wait::of(subject, &reason, message, since));
    }
    if child.deleting || phase == Some(Phase::Released) {
        let leaves = worst.unwrap_or_else(|| Judged::new(State::Leaving, reason, ""));
        return Judged {
            state: State::Leaving,
            ..leaves
        };
    }
    if let Some(waits) = worst {
        return waits;
    }
    if phase == Some(Phase::Bound) || found.is_reserved() {
        let is_ready = found.agent_machine.as_ref().is_some_and(|am| am.is_ready());
        let state = if is_ready {
            State::Serving
        } else {
            State::Coming
        };
        return Judged::new(state, Reason::AgentBound, "");
    }
    if child.in_buffer && phase == Some(Phase::Available) {
        return Judged::new(State::Ready, reason, "it waits in the buffer of its pool");
    }
    Judged::new(State::Coming, reason, "")
}

/// The state of an AgentMachine that has no VsphereAgent.
#[must_use]
pub fn of_demand(found: &Found, am: &AgentMachine) -> Judged {
    if am.agent_ref().is_some() {
        let message = "a host that is not a VM of agent-forge serves this AgentMachine";
        let state = found.agent.as_deref().map(|a| a.state());
        let state = state.filter(|s| !s.is_empty());
        return Judged::new(State::Foreign, state.unwrap_or("?"), message);
    }
    if am.is_deleting() {
        return Judged::new(State::Leaving, Reason::Deleting, "");
    }
    worst(found).unwrap_or_else(|| Judged::waits(State::Waiting, unreserved(am)))
}

/// Why the provider has no Agent for it.
fn unreserved(am: &AgentMachine) -> Wait {
    let condition = am.reserved_condition();
    let reason = condition.and_then(|c| c.reason.as_deref());
    let reason = reason.map_or(Reason::ConditionsMissing, Reason::from);
    let message = condition.and_then(|c| c.message.clone());
    let since = condition.and_then(|c| c.last_transition_time.as_ref());
    let subject = format!("AgentMachine/{}", am.name_any());
    Wait::of(
        subject,
        &reason,
        message.unwrap_or_default(),
        since.map(|t| t.0),
    )
}
