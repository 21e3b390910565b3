//! The state of a machine. It gives the colour; the reason gives the text. Pure.

use agent_forge_actors::domain::managed_vm::ManagedVm;
use agent_forge_crds::{
    VsphereAgentPool, WaitingOn,
    conditions::{Phase, READY, Reason, Who, find_condition},
    external::agent_machine::AgentMachine,
};
use kube::ResourceExt as _;
use serde::Serialize;

use super::found::Found;

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
pub struct Judged {
    /// Gives the colour.
    pub state: State,
    /// One word.
    pub reason: String,
    /// A sentence; empty if there is none.
    pub message: String,
}

impl Judged {
    fn new(state: State, reason: impl ToString, message: impl Into<String>) -> Self {
        Self {
            state,
            reason: reason.to_string(),
            message: message.into(),
        }
    }

    /// A machine that waits for this reason. It is stuck if a person has to act.
    fn waits(reason: &Reason, message: &str) -> Self {
        let state = match (reason, reason.about().who) {
            // In most cases the provider frees the Agent a moment later.
            (Reason::AgentBound, _) | (_, Who::Nobody | Who::Holder) => State::Waiting,
            _ => State::Stuck,
        };
        Self::new(state, reason, message)
    }
}

/// The first row that a person has to act on, else the first row.
fn worst<'r>(rows: impl Iterator<Item = &'r WaitingOn>) -> Option<Judged> {
    let judged = rows.map(|row| Judged::waits(&row.reason, &row.message));
    judged.min_by_key(|judged| judged.state)
}

/// The rows of the pool's status about the machine with that name.
fn about<'p>(pool: &'p VsphereAgentPool, name: &str) -> impl Iterator<Item = &'p WaitingOn> {
    let rows = pool.status.iter().flat_map(|s| &s.waiting_on);
    rows.filter(move |row| {
        let before = row.subject.strip_suffix(name);
        before.is_some_and(|before| before.is_empty() || before.ends_with('/'))
    })
}

/// The state of a machine that has a VsphereAgent.
#[must_use]
pub fn of_child(found: &Found, child: &ManagedVm) -> Judged {
    let status = child.object.status.as_ref();
    let own = status.iter().flat_map(|s| &s.waiting_on);
    let of_pool = found.pool.as_deref().into_iter();
    let waits = worst(own.chain(of_pool.flat_map(|p| about(p, &child.key.name))));
    // It has a VM to come: it waits in the line of creates, which moves by itself.
    let waits = waits.map(
        |waits| match waits.reason == Reason::CreateCapReached.as_str() {
            true => Judged::new(State::Waiting, waits.reason, waits.message),
            false => waits,
        },
    );
    if let Some(stuck) = waits.as_ref().filter(|w| w.state == State::Stuck) {
        return Judged::new(State::Stuck, &stuck.reason, &stuck.message);
    }
    if found.pool.is_none() {
        let message = "its VsphereAgentPool does not exist";
        return Judged::new(State::Stuck, Reason::PoolNotFound, message);
    }
    let vm = child.vm();
    let phase = vm.and_then(|vm| vm.phase.clone());
    let reason = vm.and_then(|vm| vm.reason.clone());
    let reason = reason.unwrap_or(Reason::CreateRequested);
    if phase == Some(Phase::Orphaned) {
        let conditions = status.map(|s| s.conditions.as_slice()).unwrap_or_default();
        let message = find_condition(conditions, READY).map(|c| c.message.clone());
        return Judged::new(State::Stuck, reason, message.unwrap_or_default());
    }
    if child.deleting || phase == Some(Phase::Released) {
        return match waits {
            Some(waits) => Judged::new(State::Leaving, waits.reason, waits.message),
            None => Judged::new(State::Leaving, reason, ""),
        };
    }
    if let Some(waits) = waits {
        return waits;
    }
    if phase == Some(Phase::Bound) || serves(found) {
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

/// Whether the AgentMachine has the Agent of this VM. The record of the VM says so some seconds later.
fn serves(found: &Found) -> bool {
    let agent = found.agent.as_deref();
    let am = found.agent_machine.as_deref();
    let reference = am.and_then(AgentMachine::agent_ref);
    agent.zip(reference).is_some_and(|(agent, reference)| {
        reference.name == agent.name_any()
            && Some(&reference.namespace) == agent.namespace().as_ref()
    })
}

/// The state of an AgentMachine that has no VsphereAgent.
#[must_use]
pub fn of_demand(pool: &VsphereAgentPool, found: &Found, am: &AgentMachine) -> Judged {
    if am.agent_ref().is_some() {
        let message = "a host that is not a VM of agent-forge serves this AgentMachine";
        let agent = found.agent.as_deref();
        let state = agent
            .map(|a| a.state().to_owned())
            .filter(|s| !s.is_empty());
        return Judged::new(State::Foreign, state.unwrap_or("?".to_owned()), message);
    }
    if am.is_deleting() {
        return Judged::new(State::Leaving, Reason::Deleting, "");
    }
    if let Some(waits) = worst(about(pool, &am.name_any())) {
        return waits;
    }
    let condition = am.reserved_condition();
    let reason = condition.and_then(|c| c.reason.clone());
    let message = condition.and_then(|c| c.message.clone());
    Judged::new(
        State::Waiting,
        reason.unwrap_or_else(|| Reason::ConditionsMissing.to_string()),
        message.unwrap_or_default(),
    )
}
