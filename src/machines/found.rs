//! The objects of one machine.

use std::{fmt, sync::Arc};

use agent_forge_actors::domain::{managed_vm::ManagedVm, upstream::MachineFacts};
use agent_forge_crds::{
    VsphereAgentPool,
    agent::Milestone,
    conditions::Phase,
    external::{agent::Agent, agent_machine::AgentMachine},
};
use serde::Serialize;

/// The kinds of objects of a machine, in the order of its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Kind {
    /// The demand.
    AgentMachine,
    /// Its owner in Cluster API.
    Machine,
    /// The operator's record.
    VsphereAgent,
    /// In vCenter.
    VM,
    /// The host that booted the discovery ISO.
    Agent,
    /// In the hosted cluster.
    Node,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The objects of one machine, as far as they exist.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// AgentMachine.
    pub agent_machine: Option<Arc<AgentMachine>>,
    /// Machine.
    pub machine: Option<Arc<MachineFacts>>,
    /// VsphereAgent, with what it records of its VM.
    pub child: Option<ManagedVm>,
    /// Agent.
    pub agent: Option<Arc<Agent>>,
    /// The pool of the VsphereAgent; without one, the pool that may serve the AgentMachine, or may see it.
    pub pool: Option<Arc<VsphereAgentPool>>,
    /// Why a pool that names the NodePool of the AgentMachine may not see it, if no other one may.
    pub refused: Option<String>,
}

impl Found {
    /// Whether its VM is being removed, or its Machine goes.
    #[must_use]
    pub fn leaves(&self) -> bool {
        let goes = |child: &ManagedVm| {
            let phase = child.vm().and_then(|vm| vm.phase.as_ref());
            child.deleting || child.given_up || phase == Some(&Phase::Released)
        };
        let am = self.agent_machine.as_ref();
        self.child.as_ref().is_some_and(goes)
            || am.is_some_and(|am| am.is_deleting())
            || self.machine.as_ref().is_some_and(|m| m.deleting)
    }

    /// What happened to its VM, and when.
    #[must_use]
    pub fn timeline(&self) -> &[Milestone] {
        let status = self.child.as_ref().and_then(|c| c.object.status.as_ref());
        status.map(|s| s.timeline.as_slice()).unwrap_or_default()
    }
}

/// The name of the host that an Agent is: it becomes the name of the Node.
#[must_use]
pub fn hostname(agent: &Agent) -> Option<&str> {
    let wanted = agent.spec.hostname.as_deref().filter(|h| !h.is_empty());
    wanted.or_else(|| agent.inventory()?.hostname.as_deref())
}
