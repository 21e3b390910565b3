//! A host: the VM of a VsphereAgent, with the Agents that may run there and the Machine that it is for. Pure.
//!
//! The pool actor, the VM actor and lending read the same value, so that none of them forgets an Agent.

use std::sync::Arc;

use agent_forge_crds::external::agent::Agent;
use jiff::Timestamp;

use crate::domain::{
    identity::{
        Misfit, agent_runs_on,
        lineup::{Doubt, Lineup},
    },
    machine_state::MachineState,
    managed_vm::ManagedVm,
    names::ObjectKey,
    recycle::Stage,
};

/// What the caches show around one VM.
#[derive(Clone, Debug)]
pub struct Host {
    /// Agents that may run there, because they name the VM. That is enough to hold an action back, and never enough to act.
    pub possible: Vec<Arc<Agent>>,
    /// The Agent that runs there, by the identity rule.
    pub own: Option<Arc<Agent>>,
    /// The same, unless it is being deleted.
    pub agent: Option<Arc<Agent>>,
    /// The Agent that may be prepared and approved: its own, if no other one may be.
    pub approvable: Option<Arc<Agent>>,
    /// Why none of them is approved.
    pub doubt: Option<Doubt>,
    /// Those that match only in part, each with what is different.
    pub doubtful: Vec<(Arc<Agent>, Misfit)>,
    /// The first that serves a Machine, or is about to.
    pub serving: Option<Arc<Agent>>,
    /// The state of its Machine.
    pub machine: MachineState,
}

impl Host {
    /// A host of which nothing is known. Nothing is done with it.
    #[must_use]
    pub const fn unknown(why: String) -> Self {
        Self {
            possible: Vec::new(),
            own: None,
            agent: None,
            approvable: None,
            doubt: None,
            doubtful: Vec::new(),
            serving: None,
            machine: MachineState::Unknown(why),
        }
    }

    /// Reads it. `naming`: at least the Agents that name the VM. `is_reserved`: whether an AgentMachine has chosen that Agent and
    /// is about to claim it.
    #[must_use]
    pub fn read(
        record: &ManagedVm,
        naming: &[Arc<Agent>],
        machine: MachineState,
        is_reserved: &dyn Fn(&Agent) -> bool,
    ) -> Self {
        let identity = record.identity.as_ref();
        let may_run_there =
            |a: &&Arc<Agent>| identity.is_some_and(|vm| agent_runs_on(a, vm).may_run_there());
        let possible: Vec<Arc<Agent>> = naming.iter().filter(may_run_there).cloned().collect();
        let lineup = Lineup::of(record, &possible);
        let own = lineup.own.cloned();
        let doubtful = lineup.doubtful.iter();
        Self {
            agent: own.clone().filter(|a| !a.is_deleting()),
            own,
            approvable: lineup.approvable().cloned(),
            doubt: lineup.doubt(),
            doubtful: doubtful
                .map(|(a, misfit)| ((*a).clone(), *misfit))
                .collect(),
            serving: possible
                .iter()
                .find(|a| a.is_claimed_or_bound() || is_reserved(a))
                .cloned(),
            possible,
            machine,
        }
    }

    /// An Agent that may run there serves a Machine, or is about to.
    #[must_use]
    pub const fn serves(&self) -> bool {
        self.serving.is_some()
    }

    /// What is different about that Agent, if it matches the VM only in part.
    #[must_use]
    pub fn misfit(&self, agent: &Agent) -> Option<Misfit> {
        let mut all = self.doubtful.iter();
        let found = all.find(|(other, _)| other.metadata.uid == agent.metadata.uid);
        found.map(|(_, misfit)| *misfit)
    }

    /// The first Agent that serves, if each that serves matches the VM only in part: which one, and what is different.
    #[must_use]
    pub fn unproven(&self) -> Option<String> {
        let mut serving = self.possible.iter().filter(|a| a.is_claimed_or_bound());
        let words = |a: &Arc<Agent>| {
            let misfit = self.misfit(a)?;
            Some(format!("{} ({misfit})", ObjectKey::of(a.as_ref())))
        };
        let first = words(serving.next()?)?;
        serving.all(|a| words(a).is_some()).then_some(first)
    }

    /// Nothing shows that the VM was a host before, and its Agent is there or may still come. A guest whose Agent is gone, or has
    /// not registered in time, registers no other one. A hub that was restored from before that Agent knows no more than this
    /// about a VM that was a node.
    #[must_use]
    pub fn is_in_the_making(&self, record: &ManagedVm, now: Timestamp) -> bool {
        let Some(vm) = record.vm().filter(|_| record.identity.is_some()) else {
            return true;
        };
        if record.is_outdated() {
            return false;
        }
        let comes = if self.possible.is_empty() {
            let overdue = vm.discovery_deadline.as_ref();
            vm.agent_ref.is_none() && overdue.is_none_or(|at| at.0 > now)
        } else {
            let mut all = self.possible.iter();
            all.all(|a| !a.is_deleting() && !a.is_installed())
        };
        // Until its next life has begun, what its record and its Agent show is of the life before.
        let new = matches!(record.recycling(), Stage::No | Stage::Begun);
        comes && new && !record.given_up && !record.has_served(&[])
    }

    /// The AgentMachine of another control plane than `home` that has claimed its Agent.
    #[must_use]
    pub fn serves_elsewhere(&self, home: &str) -> Option<ObjectKey> {
        let agent = self.own.as_ref()?;
        let namespace = agent.claimed_by_namespace().filter(|n| *n != home)?;
        Some(ObjectKey::new(namespace, agent.claimed_by()?))
    }
}
