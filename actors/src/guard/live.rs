//! What the API server has of all that decides about a VM, and the view that shows it instead of the caches.

use std::{collections::BTreeSet, sync::Arc};

use agent_forge_crds::{
    agent::VsphereAgent,
    external::{agent::Agent, agent_machine::AgentMachine, infra_env::InfraEnv},
    pool::VsphereAgentPool,
};
use kube::ResourceExt;

use super::{case::Case, pausing::Pausing};
use crate::{
    domain::{
        failure::ReconcileError,
        holds::Mode,
        identity::agent_runs_on,
        index_keys::{self, IndexKeys},
        machine_state::{MachineState, machine_state},
        managed_vm::ManagedVm,
        names::ObjectKey,
        selector,
        upstream::{MachineFacts, Pausable, PausableKind},
    },
    ports::cluster::{AgentMachineFilter, View},
    world::agents_home,
};

/// What was read.
#[derive(Default)]
pub(super) struct Live {
    /// Namespaces whose Agents were listed.
    homes: BTreeSet<String>,
    /// Agents that may run on the VM, or were named as doing so.
    pub(super) agents: Vec<Arc<Agent>>,
    /// Where AgentMachine and Machine are.
    control_plane: Option<String>,
    /// The AgentMachine on record, those that name one of the Agents, and those whose selector one of them matches.
    agent_machines: Vec<Arc<AgentMachine>>,
    machines: Vec<Arc<MachineFacts>>,
}

impl Live {
    /// Reads it.
    pub(super) async fn read(case: &Case<'_>) -> Result<Self, ReconcileError> {
        let (child, cluster) = (case.child, &case.context.cluster);
        let control_plane = case.control_plane.map(str::to_owned);
        let mut own = None;
        if let (Some(home), Some(record)) = (&control_plane, &child.agent_machine) {
            let key = ObjectKey::new(home, &record.name);
            own = cluster.live_agent_machine(&key).await?;
        }
        let chosen = own.as_ref().and_then(AgentMachine::agent_ref);
        let chosen = chosen.map(|r| ObjectKey::new(&r.namespace, &r.name));
        let mut homes = agents_home::namespaces(case.pool, [child]);
        homes.extend(chosen.iter().map(|key| key.namespace.clone()));
        let shown = case.possible.iter().map(|a| ObjectKey::of(a.as_ref()));
        let named: BTreeSet<ObjectKey> = agents_home::names(case.pool, child)
            .into_iter()
            .chain(child.agent.clone())
            .chain(chosen)
            .chain(shown)
            .collect();
        let mut agents = Vec::new();
        for home in &homes {
            let (identity, named) = (child.identity.clone(), named.clone());
            let wanted = move |a: &Agent| {
                let runs = |vm| agent_runs_on(a, vm).may_run_there();
                named.contains(&ObjectKey::of(a)) || identity.as_ref().is_some_and(runs)
            };
            let found = cluster.live_agents(home, Arc::new(wanted)).await?;
            agents.extend(found.into_iter().map(Arc::new));
        }
        let all = cluster
            .live_agent_machines(wanted_agent_machines(child, &agents))
            .await?;
        let mut agent_machines: Vec<_> = all.into_iter().map(Arc::new).collect();
        let listed = |am: &AgentMachine| agent_machines.iter().any(|a| a.uid() == am.uid());
        if let Some(own) = own.filter(|own| !listed(own)) {
            agent_machines.push(Arc::new(own));
        }
        let machines = match &control_plane {
            Some(home) => cluster.live_machines(home).await?,
            None => Vec::new(),
        };
        Ok(Self {
            homes,
            agents,
            control_plane,
            agent_machines,
            machines: machines.into_iter().map(Arc::new).collect(),
        })
    }

    /// The AgentMachine that the VM is for, if neither it nor its Machine is being deleted. The provider deletes the
    /// AgentMachine only after the Machine is gone. Until then it may still name an Agent that it has already unbound.
    pub(super) fn living_agent_machine(&self, child: &ManagedVm) -> Option<&AgentMachine> {
        let record = child.agent_machine.as_ref()?;
        let home = self.control_plane.as_deref()?;
        if machine_state(child, home, &self.machines, &self.agent_machines) == MachineState::Leaving
        {
            return None;
        }
        let mut all = self.agent_machines.iter().map(AsRef::as_ref);
        all.find(|am| {
            am.name_any() == record.name
                && am.metadata.namespace.as_deref() == Some(home)
                && !am.is_deleting()
        })
    }
}

/// The AgentMachines that matter for an Agent that may run on the VM.
fn wanted_agent_machines(child: &ManagedVm, agents: &[Arc<Agent>]) -> AgentMachineFilter {
    let record = child.agent_machine.as_ref().map(|r| r.name.clone());
    let agents = agents.to_vec();
    Arc::new(move |am: &AgentMachine| {
        let chosen = am.agent_ref();
        let concerns = |a: &Arc<Agent>| {
            chosen.is_some_and(|r| r.name == a.name_any())
                || selector::matches(am.spec.agent_label_selector.as_ref(), a.labels())
        };
        am.metadata.name == record || agents.iter().any(concerns)
    })
}

/// What was read, over the caches.
pub(super) struct LiveView {
    pub(super) cached: Arc<dyn View>,
    pub(super) pausing: Pausing,
    pub(super) live: Live,
    /// The VsphereAgent, if it was read.
    pub(super) child: Option<Arc<VsphereAgent>>,
}

impl Pausing {
    /// `cached`, with this instead of what the caches show.
    #[must_use]
    pub fn over(self, cached: Arc<dyn View>) -> Arc<dyn View> {
        Arc::new(LiveView {
            cached,
            pausing: self,
            live: Live::default(),
            child: None,
        })
    }
}

impl LiveView {
    fn is_control_plane(&self, namespace: &str) -> bool {
        self.live.control_plane.as_deref() == Some(namespace)
    }

    /// The VsphereAgents of the caches, with the one that was read.
    fn shown(&self, mut cached: Vec<Arc<VsphereAgent>>) -> Vec<Arc<VsphereAgent>> {
        for shown in &mut cached {
            let live = self.child.as_ref();
            let live = live.filter(|c| ObjectKey::of(c.as_ref()) == ObjectKey::of(shown.as_ref()));
            *shown = live.unwrap_or(shown).clone();
        }
        cached
    }
}

impl View for LiveView {
    fn ready(&self) -> bool {
        self.cached.ready()
    }
    fn mode(&self) -> Mode {
        self.cached.mode()
    }
    fn cluster_id(&self) -> String {
        self.cached.cluster_id()
    }
    fn pools(&self) -> Vec<Arc<VsphereAgentPool>> {
        let mut all = self.cached.pools();
        all.retain(|pool| self.pausing.pool(&ObjectKey::of(pool.as_ref())).is_none());
        all.extend(self.pausing.pools().cloned());
        all
    }
    fn pool(&self, key: &ObjectKey) -> Option<Arc<VsphereAgentPool>> {
        match self.pausing.pool(key) {
            Some(live) => live.cloned(),
            None => self.cached.pool(key),
        }
    }
    fn children(&self, pool: &ObjectKey) -> Vec<Arc<VsphereAgent>> {
        self.shown(self.cached.children(pool))
    }
    fn child(&self, key: &ObjectKey) -> Option<Arc<VsphereAgent>> {
        let live = self.child.as_ref();
        let live = live.filter(|c| ObjectKey::of(c.as_ref()) == *key);
        live.cloned().or_else(|| self.cached.child(key))
    }
    fn all_children(&self) -> Vec<Arc<VsphereAgent>> {
        self.shown(self.cached.all_children())
    }
    fn children_asking(&self, keys: &IndexKeys) -> Vec<Arc<VsphereAgent>> {
        self.shown(self.cached.children_asking(keys))
    }
    fn agent_machines(&self, namespace: &str) -> Vec<Arc<AgentMachine>> {
        if !self.is_control_plane(namespace) {
            return self.cached.agent_machines(namespace);
        }
        let all = self.live.agent_machines.iter();
        let there = all.filter(|am| am.metadata.namespace.as_deref() == Some(namespace));
        there.cloned().collect()
    }
    fn all_agent_machines(&self) -> Vec<Arc<AgentMachine>> {
        let mut all = self.live.agent_machines.clone();
        let is_live = |am: &AgentMachine| {
            let mut live = self.live.agent_machines.iter();
            live.any(|l| l.metadata.uid == am.metadata.uid)
        };
        let cached = self.cached.all_agent_machines().into_iter();
        all.extend(cached.filter(|am| !is_live(am)));
        all
    }
    fn agent_machine(&self, key: &ObjectKey) -> Option<Arc<AgentMachine>> {
        if !self.is_control_plane(&key.namespace) {
            return self.cached.agent_machine(key);
        }
        let mut all = self.agent_machines(&key.namespace).into_iter();
        all.find(|am| ObjectKey::of(am.as_ref()) == *key)
    }
    fn machines(&self, namespace: &str) -> Vec<Arc<MachineFacts>> {
        if self.is_control_plane(namespace) {
            self.live.machines.clone()
        } else {
            self.cached.machines(namespace)
        }
    }
    fn machine(&self, key: &ObjectKey) -> Option<Arc<MachineFacts>> {
        if !self.is_control_plane(&key.namespace) {
            return self.cached.machine(key);
        }
        let mut all = self.live.machines.iter();
        all.find(|m| m.key == *key).cloned()
    }
    fn pausables(&self, kind: PausableKind, namespace: &str) -> Vec<Arc<Pausable>> {
        match self.pausing.list(kind, namespace) {
            Some(live) => live.to_vec(),
            None => self.cached.pausables(kind, namespace),
        }
    }
    fn agents(&self, namespace: &str) -> Vec<Arc<Agent>> {
        if !self.live.homes.contains(namespace) {
            return self.cached.agents(namespace);
        }
        let all = self.live.agents.iter();
        let there = all.filter(|a| a.metadata.namespace.as_deref() == Some(namespace));
        there.cloned().collect()
    }
    fn agents_with(&self, namespace: &str, keys: &IndexKeys) -> Vec<Arc<Agent>> {
        if !self.live.homes.contains(namespace) {
            return self.cached.agents_with(namespace, keys);
        }
        let mut there = self.agents(namespace);
        there.retain(|agent| !index_keys::of_agent(agent).is_disjoint(keys));
        there
    }
    fn infra_env(&self, key: &ObjectKey) -> Option<Arc<InfraEnv>> {
        self.cached.infra_env(key)
    }
    fn history(&self) -> u64 {
        self.cached.history()
    }
    fn is_in_doubt(&self) -> bool {
        self.cached.is_in_doubt()
    }
    fn over_bound(&self, namespace: &str) -> Option<String> {
        self.cached.over_bound(namespace)
    }
    fn all_over_bound(&self) -> Vec<String> {
        self.cached.all_over_bound()
    }
    fn serves(&self, namespace: &str) -> bool {
        self.cached.serves(namespace)
    }
    fn namespace_grant(&self, namespace: &str) -> Option<String> {
        self.cached.namespace_grant(namespace)
    }
}
