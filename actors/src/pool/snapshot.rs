//! All that one pool decision is made from, gathered once: nothing is read again while deciding.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use agent_forge_crds::{
    external::{agent::Agent, agent_machine::AgentMachine, infra_env::InfraEnv},
    pool::VsphereAgentPool,
};
use jiff::Timestamp;
use kube::ResourceExt;

use super::{agents_home, index::Index};
use crate::{
    model::{child::Child, names::ObjectKey},
    ports::{
        clock::Clock,
        cluster::{MachineFacts, View},
    },
};

/// The facts of one pool at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The pool.
    pub pool: Arc<VsphereAgentPool>,
    /// Its key.
    pub key: ObjectKey,
    /// Other pools of the same control plane namespace, not being deleted.
    pub other_pools: Vec<Arc<VsphereAgentPool>>,
    /// AgentMachines of the control plane namespace.
    pub agent_machines: Vec<Arc<AgentMachine>>,
    /// AgentMachines of all namespaces: whoever may choose a freed Agent.
    pub choosers: Vec<Arc<AgentMachine>>,
    /// Machines of the control plane namespace.
    pub machines: Vec<MachineFacts>,
    /// The pool's VsphereAgents.
    pub children: Vec<Child>,
    /// Agents that may run on the pool's VMs ([`agents_home::agents`]).
    pub agents: Vec<Arc<Agent>>,
    /// Where the InfraEnv is or is looked for.
    pub infra_env_key: ObjectKey,
    /// The InfraEnv.
    pub infra_env: Option<Arc<InfraEnv>>,
    /// AgentMachine names that exist in more than one control plane namespace (the pin needs the uid then).
    pub ambiguous_names: BTreeSet<String>,
    /// Since when (monotonic) each AgentMachine was seen waiting, by uid.
    pub waiting_since: BTreeMap<String, Duration>,
    /// Since when (monotonic) each VsphereAgent's VM is offered to another AgentMachine, by uid.
    pub spare_since: BTreeMap<String, Duration>,
    /// uids of AgentMachines that were pinned, which is not in sight yet.
    pub pinned: BTreeSet<String>,
    /// uids of AgentMachines whose VsphereAgent was made and is not in sight yet.
    pub made: BTreeSet<String>,
    /// Monotonic now.
    pub now: Duration,
    /// Wall clock.
    pub wall: Timestamp,
    /// Who belongs to whom.
    pub index: Index,
}

impl Snapshot {
    /// The Agents of the InfraEnv's namespace: those that the provider chooses from.
    pub fn home_agents(&self) -> impl Iterator<Item = &Arc<Agent>> {
        self.agents
            .iter()
            .filter(|a| a.namespace().as_ref() == Some(&self.infra_env_key.namespace))
    }
}

/// Gathers the facts from the cached view; `None` when the pool is gone.
#[must_use]
pub fn gather(
    view: &dyn View,
    clock: &dyn Clock,
    key: &ObjectKey,
    waiting_since: &BTreeMap<String, Duration>,
    spare_since: &BTreeMap<String, Duration>,
) -> Option<Snapshot> {
    let pool = view.pool(key)?;
    let namespace = &pool.spec.control_plane_namespace;
    let pools = view.pools();
    let is_other = |p: &&Arc<VsphereAgentPool>| {
        ObjectKey::of(p.as_ref()) != *key
            && p.spec.control_plane_namespace == *namespace
            && p.metadata.deletion_timestamp.is_none()
    };
    let agent_machines = view.agent_machines(namespace);
    let names: BTreeSet<String> = agent_machines.iter().map(|am| am.name_any()).collect();
    let elsewhere: BTreeSet<&String> = pools
        .iter()
        .map(|p| &p.spec.control_plane_namespace)
        .filter(|n| *n != namespace)
        .collect();
    let ambiguous_names = elsewhere
        .into_iter()
        .flat_map(|n| view.agent_machines(n))
        .map(|am| am.name_any())
        .filter(|n| names.contains(n))
        .collect();
    let children: Vec<Child> = view.children(key).into_iter().map(Child::read).collect();
    let (infra_env_key, infra_env) = agents_home::find(view, &pool);
    Some(Snapshot {
        other_pools: pools.iter().filter(is_other).cloned().collect(),
        machines: view
            .machines(namespace)
            .iter()
            .map(|m| m.as_ref().clone())
            .collect(),
        choosers: view.all_agent_machines(),
        agents: agents_home::agents(view, Some(&pool), &children),
        children,
        infra_env_key,
        infra_env,
        ambiguous_names,
        waiting_since: waiting_since.clone(),
        spare_since: spare_since.clone(),
        pinned: BTreeSet::new(),
        made: BTreeSet::new(),
        now: clock.monotonic(),
        wall: clock.wall(),
        index: Index::default(),
        agent_machines,
        key: key.clone(),
        pool,
    })
}
