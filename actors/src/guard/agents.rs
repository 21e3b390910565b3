//! What live Agents prove of a VM: that none serves, and that none can be chosen.

use agent_forge_crds::{
    conditions::Reason,
    external::{agent::Agent, agent_machine::AgentMachine},
    names::FORCE_DELETE_ANNOTATION,
};
use kube::ResourceExt as _;

use super::{case::Case, live::Live};
use crate::domain::{
    failure::{ErrorSource, ReconcileError},
    identity::{AgentMatch, agent_runs_on},
    names::ObjectKey,
};

fn held(reason: Reason, message: String) -> ReconcileError {
    ReconcileError::transient(ErrorSource::Upstream, reason, message)
}

/// That Agent is claimed, or this AgentMachine chose it and is about to claim it.
#[must_use]
pub fn serves(agent: &Agent, agent_machine: Option<&AgentMachine>) -> bool {
    let chosen = agent_machine.and_then(AgentMachine::agent_ref);
    agent.is_claimed_or_bound() || chosen.is_some_and(|r| r.name == agent.name_any())
}

impl Case<'_> {
    /// Proves that no Agent of this VM serves a Machine: none that may run there, and not the one that was last seen
    /// there. That is enough before the Agent alone is deleted: a claim from then on makes the precondition of the deletion fail.
    pub(super) fn serves_nobody(&self, live: &Live) -> Result<(), ReconcileError> {
        let agent_machine = live.living_agent_machine(self.child);
        let serving = self.agents_there(live).find(|a| serves(a, agent_machine));
        serving.map_or(Ok(()), |a| Err(self.bound(&ObjectKey::of(a), a)))
    }

    /// Proves that no AgentMachine that is made from now on can choose an Agent of this VM.
    pub(super) fn is_chosen_by_nobody(&self, live: &Live) -> Result<(), ReconcileError> {
        let ours = self.own.map(ObjectKey::of);
        for agent in self.agents_there(live) {
            let key = ObjectKey::of(agent);
            // An Agent that matches only in part is not ours to fence, and it serves no Machine.
            let doubtful = matches!(self.says(agent), AgentMatch::Partly(_));
            let late = self.child.given_up && agent.spec.approved && !doubtful;
            let may_be_claimed = late || ours.as_ref() == Some(&key);
            if may_be_claimed && (self.can_be_chosen)(agent) {
                let message = format!("Agent {key} can be claimed again; it is fenced first");
                return Err(held(Reason::AgentNotFenced, message));
            }
        }
        Ok(())
    }

    /// Those Agents that may run on this VM, and the one that was last seen there.
    fn agents_there<'b>(&'b self, live: &'b Live) -> impl Iterator<Item = &'b Agent> {
        let last = self.child.agent.as_ref();
        let all = live.agents.iter().map(AsRef::as_ref);
        all.filter(move |a| self.says(a).may_run_there() || last == Some(&ObjectKey::of(*a)))
    }

    /// What the identity rule says about that Agent.
    fn says(&self, agent: &Agent) -> AgentMatch {
        let identity = self.child.identity.as_ref();
        identity.map_or(AgentMatch::Other, |vm| agent_runs_on(agent, vm))
    }

    /// The reason that the VM stays: that Agent serves.
    fn bound(&self, key: &ObjectKey, agent: &Agent) -> ReconcileError {
        match self.says(agent) {
            AgentMatch::Partly(misfit) if !self.child.was_bound_to(agent) => held(
                Reason::AgentUnproven,
                format!(
                    "Agent {key} names this VM and is bound, and {misfit}: nothing is powered off or destroyed. If it is \
                     another host, delete that Agent, or set the annotation {FORCE_DELETE_ANNOTATION}=true on the VsphereAgent"
                ),
            ),
            _ => held(
                Reason::AgentBound,
                format!("Agent {key} is bound; nothing is powered off or destroyed"),
            ),
        }
    }
}
