//! All facts for one decision about a pool. [`super::observe`] reads them once per pass, and they never change afterwards.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use agent_forge_crds::{
    external::{agent::Agent, agent_machine::AgentMachine, infra_env::InfraEnv},
    pool::{ReleaseSpec, VsphereAgentPool},
};
use jiff::Timestamp;
use kube::ResourceExt;

use super::tables::Index;
use crate::{
    demand::{lending::Lender, prepare},
    domain::{
        belonging, holds::Holds, identity::MacAddress, managed_vm::ManagedVm, names::ObjectKey,
        sizes::Sizes, tally::Tally, upstream::MachineFacts,
    },
    iso::{
        infra_env_guards::{self, Guard},
        of_pool::NoSource,
    },
    lifecycle::Policy,
    ports::{cluster::AgentPatch, effect::Hold},
    runtime::holds,
    world::{boundary::Grants, foreign::ForeignHosts},
};

/// What a control plane namespace holds.
#[derive(Clone, Debug, Default)]
pub struct Home {
    /// Its AgentMachines.
    pub agent_machines: Vec<Arc<AgentMachine>>,
    /// Its Machines.
    pub machines: Vec<Arc<MachineFacts>>,
}

/// Writes that the cache does not show yet.
#[derive(Clone, Debug, Default)]
pub struct Pending {
    /// uids of AgentMachines that were pinned.
    pub pinned: BTreeSet<String>,
    /// uids of AgentMachines that got a VsphereAgent.
    pub made: BTreeSet<String>,
    /// As `made`, but longer ago, or nobody knows whether: the same VsphereAgent may be created once more, and no other host is
    /// given.
    pub begun: BTreeSet<String>,
    /// uids of AgentMachines that got a VsphereAgent which was there, and the uid of that.
    pub given: BTreeMap<String, String>,
    /// Names of VsphereAgents for the buffer, with their classes.
    pub made_for_buffer: BTreeMap<String, Option<String>>,
    /// The same, where nobody knows whether they were made.
    pub begun_for_buffer: BTreeMap<String, Option<String>>,
    /// uids of AgentMachines that may have got the host of another pool, and the uid of its VsphereAgent: they get that one, or none.
    pub unsure: BTreeMap<String, String>,
    /// uids of VsphereAgents of other pools that the pool did not get a moment ago.
    pub passed_over: BTreeSet<String>,
}

/// What a pool sees of the other pools of its group, and of hosts that are not its own alone.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// The other pools of its group. While one of its AgentMachines has no host, with the hosts of their buffers.
    pub lenders: Vec<Lender>,
    /// The other pools of its group that give it nothing as they are set up, each with the reason.
    pub refused_by: Vec<String>,
    /// Hosts of other namespaces that name it as their user, while the two namespaces do not admit each other.
    pub refused: Vec<ManagedVm>,
    /// Hosts that it made, and that pools of other namespaces use.
    pub shared: Vec<ManagedVm>,
    /// Its own hosts that another VsphereAgent has on record, by uid: a release before 1.0 was moving them.
    pub half_moved: BTreeMap<String, ObjectKey>,
    /// Names that a VsphereAgent or VM of another pool has in its namespace.
    pub taken_names: BTreeSet<String>,
    /// The other namespaces in which VsphereAgents may be that it uses.
    pub host_namespaces: BTreeSet<String>,
}

/// The facts of one pool at one moment.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The pool.
    pub pool: Arc<VsphereAgentPool>,
    /// Its key.
    pub key: ObjectKey,
    /// The pool as each of its classes sees it.
    pub sizes: Sizes,
    /// Other pools of the same control plane namespace, not being deleted.
    pub other_pools: Vec<Arc<VsphereAgentPool>>,
    /// AgentMachines of the control plane namespace.
    pub agent_machines: Vec<Arc<AgentMachine>>,
    /// AgentMachines of all namespaces: each may choose a freed Agent.
    pub choosers: Vec<Arc<AgentMachine>>,
    /// Machines of the control plane namespace.
    pub machines: Vec<MachineFacts>,
    /// AgentMachines and Machines of other namespaces, if VsphereAgents of the pool have theirs there on record. Only
    /// namespaces that the operator serves.
    pub recorded_homes: BTreeMap<String, Home>,
    /// The pool's VsphereAgents.
    pub children: Vec<ManagedVm>,
    /// VsphereAgents of other pools, by the uid of the AgentMachine that they are for.
    pub made_by_others: BTreeMap<String, ObjectKey>,
    /// Agents that a decision may use ([`crate::world::agents_home::of_pool`]). In namespaces that do not admit the pool, only those
    /// that may run on a recorded VM.
    pub agents: Vec<Arc<Agent>>,
    /// How many Agents carry the pool's labels. In namespaces that do not admit the pool, only those that may run on a
    /// recorded VM count.
    pub matching: Tally,
    /// The hosts of its InfraEnv that are not VMs of agent-forge.
    pub foreign: ForeignHosts,
    /// The key of the InfraEnv, whether or not it exists.
    pub infra_env_key: ObjectKey,
    /// The InfraEnv.
    pub infra_env: Option<Arc<InfraEnv>>,
    /// Which pools are admitted by the namespaces that the pool and its neighbours name.
    pub grants: Grants,
    /// AgentMachine names that exist in more than one control plane namespace. For them the pin must contain the uid.
    pub ambiguous_names: BTreeSet<String>,
    /// Since when (monotonic) each AgentMachine was seen waiting, by uid.
    pub waiting_since: BTreeMap<String, Duration>,
    /// Since when (monotonic) each VsphereAgent's VM is offered to another AgentMachine, by uid.
    pub spare_since: BTreeMap<String, Duration>,
    /// Writes that the cache does not show yet.
    pub pending: Pending,
    /// The only other namespaces from which credentials may be read. Empty: any.
    pub secret_namespaces: Vec<String>,
    /// The held Secrets are to be checked again.
    pub secrets_due: bool,
    /// Monotonic now.
    pub now: Duration,
    /// Wall clock.
    pub wall: Timestamp,
    /// What people have paused or forbidden for the pool.
    pub holds: Holds,
    /// Something stopped all work on the pool in the pass before.
    pub was_stopped: bool,
    /// The other pools of its group, and their hosts.
    pub group: Group,
    /// Which of these objects belong together.
    pub index: Index,
}

impl Observed {
    /// The MAC addresses of its VMs.
    #[must_use]
    pub fn macs(&self) -> BTreeSet<MacAddress> {
        let known = self.children.iter().filter_map(|c| c.identity.as_ref());
        known
            .flat_map(|identity| identity.macs.iter().copied())
            .collect()
    }

    /// Why there is no InfraEnv to fetch from, if no namespace where it may be admits the pool.
    #[must_use]
    pub fn refused_source(&self) -> Option<NoSource> {
        self.grants.lacking_home(&self.pool)?;
        let refused = self.grants.refused_homes(&self.pool);
        Some(NoSource::NotAllowed(refused))
    }

    /// The pool may have lost its InfraEnv because a grant was removed.
    #[must_use]
    pub fn may_have_lost_source(&self) -> bool {
        self.infra_env.is_none() && !self.grants.refused_homes(&self.pool).is_empty()
    }

    /// Hosts that served its control plane, or were to serve it, before a namespace took its grant back. They count by the record,
    /// which only the operator writes.
    pub fn withheld(&self) -> impl Iterator<Item = &ManagedVm> {
        let home = Some(self.pool.control_plane());
        let all = self.group.refused.iter();
        all.filter(move |c| c.identity.is_some() && c.control_plane.as_deref() == home)
    }

    /// How many VsphereAgents there are that it has made or uses.
    #[must_use]
    pub fn hosts_left(&self) -> usize {
        self.children.len() + self.group.shared.len() + self.withheld().count()
    }

    /// A host is there for that AgentMachine, or on its way.
    #[must_use]
    pub fn is_in_flight(&self, am: &AgentMachine) -> bool {
        let uid = am.metadata.uid.as_ref();
        self.child_for(am).is_some()
            || uid.is_some_and(|uid| self.was_served(uid))
            || self.withheld().any(|c| c.is_for(am))
    }

    /// How many hosts of other pools it has got that the cache does not show yet.
    #[must_use]
    pub fn arriving(&self) -> usize {
        let here = |uid: &&String| self.children.iter().any(|c| c.uid == **uid);
        self.pending.given.values().filter(|uid| !here(uid)).count()
    }

    /// The AgentMachine of that uid got a host that the cache does not show yet.
    #[must_use]
    pub fn was_served(&self, uid: &str) -> bool {
        self.pending.made.contains(uid) || self.pending.given.contains_key(uid)
    }

    /// Namespaces with AgentMachines that the pool is to serve, and that do not admit the pool. Also the control
    /// plane's namespace if the operator does not serve it, because it then sees no AgentMachine there.
    #[must_use]
    pub fn refusing(&self) -> Vec<String> {
        let all = self.agent_machines.iter();
        let refused: BTreeSet<String> = all
            .filter(|am| belonging::belongs(&self.pool, am) && !self.grants.shows(&self.pool, am))
            .filter_map(|am| self.grants.lacking(&self.pool, am))
            .chain(self.grants.unserved_control_plane(&self.pool))
            .collect();
        refused.into_iter().collect()
    }

    /// The pool as the class of `child` sees it.
    #[must_use]
    pub fn pool_of(&self, child: &ManagedVm) -> &VsphereAgentPool {
        self.sizes.pool(child.class())
    }

    /// How the VM of `child` is to end.
    #[must_use]
    pub fn policy_of(&self, child: &ManagedVm) -> Policy {
        Policy::of_vm(child, Some(self.pool.spec.cleanup_policy()))
    }

    /// Its VMs serve one Machine after another.
    #[must_use]
    pub fn recycles(&self) -> bool {
        let release = self.pool.spec.release.as_ref();
        release.is_some_and(ReleaseSpec::recycles)
    }

    /// What prevents new VMs from the InfraEnv.
    #[must_use]
    pub fn guard(&self) -> Option<Guard> {
        let infra_env = self.infra_env.as_deref()?;
        let shown = |am: &AgentMachine| self.grants.shows(&self.pool, am);
        infra_env_guards::guard(&self.pool, infra_env, &self.choosers, &shown)
    }

    /// What stops all work on the pool, if something does: a dry run, or a pause.
    #[must_use]
    pub fn stop(&self) -> Option<Hold> {
        holds::stop(&self.holds, self.wall)
    }

    /// What keeps AgentMachines from that Agent. `None`: nothing has to be changed.
    #[must_use]
    pub fn fence(&self, agent: &Agent) -> Option<AgentPatch> {
        let own = belonging::all_labels(&self.pool);
        let approved = infra_env_guards::approves(self.infra_env.as_deref(), agent);
        prepare::fence(&own, &self.choosers, approved, agent)
    }

    /// The Agents in the InfraEnv's namespace: the provider chooses from these.
    pub fn home_agents(&self) -> impl Iterator<Item = &Arc<Agent>> {
        self.agents
            .iter()
            .filter(|a| a.namespace().as_ref() == Some(&self.infra_env_key.namespace))
    }
}
