//! The objects of one machine.

use std::{fmt, sync::Arc};

use agent_forge_actors::domain::{managed_vm::ManagedVm, upstream::MachineFacts};
use agent_forge_crds::{
    VsphereAgentPool, WaitingOn,
    agent::Milestone,
    conditions::{Phase, Reason},
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
    /// The pool of machines. It is in no chain but its own.
    VsphereAgentPool,
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
    /// Whether a pool alone is meant, with all of its machines.
    #[must_use]
    pub fn is_pool(&self) -> bool {
        let machine = (&self.agent_machine, &self.machine, &self.child, &self.agent);
        self.pool.is_some() && matches!(machine, (None, None, None, None))
    }

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

    /// Whether the AgentMachine has the Agent of this VM. The record of the VM says so some seconds later.
    #[must_use]
    pub fn is_reserved(&self) -> bool {
        let (am, agent) = (self.agent_machine.as_deref(), self.agent.as_deref());
        let reference = am.and_then(AgentMachine::agent_ref);
        agent.zip(reference).is_some_and(|(agent, reference)| {
            let namespace = agent.metadata.namespace.as_ref();
            agent.metadata.name.as_ref() == Some(&reference.name)
                && namespace == Some(&reference.namespace)
        })
    }

    /// The rows of statuses about it: its own, then those of its pool.
    pub fn rows(&self) -> impl Iterator<Item = &WaitingOn> {
        let own = self.child.iter().filter_map(|c| c.object.status.as_ref());
        let of_pool = self.pool.iter().filter_map(|p| p.status.as_ref());
        let of_pool = of_pool.flat_map(|s| &s.waiting_on);
        // The line of creates is told once for the pool.
        let made = self.child.as_ref().and_then(|c| c.vm()?.moref.as_ref());
        let queues = self.child.is_some() && made.is_none();
        let in_line = move |row: &WaitingOn| queues && row.reason == Reason::CreateQueued;
        let about = of_pool.filter(move |row| in_line(row) || self.is_named(&row.subject));
        own.flat_map(|s| &s.waiting_on).chain(about)
    }

    /// Whether the subject of a row names it. Each row of a pool is about the pool.
    #[must_use]
    pub fn is_named(&self, subject: &str) -> bool {
        if self.is_pool() {
            return true;
        }
        let am = self.agent_machine.as_deref();
        let am = am.and_then(|am| am.metadata.name.as_deref());
        let child = self.child.as_ref().map(|c| c.key.name.as_str());
        let ends = |name: &str| {
            let before = subject.strip_suffix(name);
            before.is_some_and(|before| before.is_empty() || before.ends_with('/'))
        };
        am.is_some_and(ends) || child.is_some_and(ends)
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
