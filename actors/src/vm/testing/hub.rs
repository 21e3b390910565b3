//! A management cluster in memory: each write shows at once.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use agent_forge_crds::{
    agent::{VsphereAgent, VsphereAgentStatus},
    conditions::event,
    external::{
        agent::Agent, agent_machine::AgentMachine, infra_env::InfraEnv,
        nmstate_config::NMStateConfig,
    },
    pool::{VsphereAgentPool, VsphereAgentPoolStatus},
};
use async_trait::async_trait;
use kube::ResourceExt;

use crate::{
    domain::{
        holds::Mode,
        names::ObjectKey,
        upstream::{MachineFacts, Pausable, PausableKind},
    },
    ports::{
        cluster::{
            AgentFilter, AgentMachineFilter, AgentPatch, Cluster, ClusterError, ClusterErrorKind,
            ClusterResult, NetworkReader, Notice, OwnPatch, Precondition, SecretRead, View,
        },
        effect::{Effect, EffectKind},
        permit::Permit,
    },
    testing::CLUSTER_ID,
};

/// What the cluster holds.
#[derive(Default)]
pub struct Objects {
    /// Not all watches have delivered their first list.
    pub unready: bool,
    /// How the operator runs.
    pub mode: Mode,
    /// The caches may mix two histories.
    pub in_doubt: bool,
    /// How often the caches were in doubt.
    pub history: u64,
    /// Namespaces of which the caches do not keep all.
    pub over_bound: Vec<String>,
    pub pool: Option<VsphereAgentPool>,
    /// Further pools.
    pub other_pools: Vec<VsphereAgentPool>,
    pub child: Option<VsphereAgent>,
    /// Further VsphereAgents in the view.
    pub others: Vec<VsphereAgent>,
    pub agents: Vec<Agent>,
    /// Agents that the API server has and the cache does not show yet.
    pub unseen_agents: Vec<Agent>,
    /// What the API server has instead of Agents of those names.
    pub live_instead: Vec<Agent>,
    pub agent_machines: Vec<AgentMachine>,
    pub machines: Vec<MachineFacts>,
    /// The namespace of both. `None`: they are in any namespace.
    pub machines_at: Option<String>,
    /// AgentMachines that the API server has and the cache does not show yet.
    pub unseen_agent_machines: Vec<AgentMachine>,
    /// Machines that the API server has and the cache does not show any more.
    pub unseen_machines: Vec<MachineFacts>,
    /// Whether the hosted cluster exists. `None`: no list of HostedClusters comes.
    pub hosted_cluster: Option<bool>,
    /// How often somebody asked for it.
    pub hosted_cluster_looks: usize,
    /// Namespaces that the operator does not serve.
    pub unserved: Vec<String>,
    /// How often all Machines were listed at the API server.
    pub machine_lists: usize,
    pub infra_env_is_gone: bool,
    /// Clusters, NodePools and HostedClusters.
    pub pausables: Vec<(PausableKind, Pausable)>,
    /// Annotations `allow-pools-from`, by Namespace.
    pub grants: BTreeMap<String, String>,
    /// An InfraEnv that the API server has instead of the one in the cache.
    pub unseen_infra_env: Option<InfraEnv>,
    /// NMStateConfigs.
    pub network_configs: Vec<NMStateConfig>,
    /// How often the API server was asked for it.
    pub infra_env_reads: usize,
    /// A VsphereAgent that the API server has instead of the one in the cache.
    pub unseen_child: Option<VsphereAgent>,
    /// A pool that the API server has instead of the one in the cache.
    pub unseen_pool: Option<VsphereAgentPool>,
    /// Clusters, NodePools and HostedClusters that the API server has instead of those in the cache.
    pub unseen_pausables: Vec<(PausableKind, Pausable)>,
    /// What can pause the pool cannot be listed.
    pub pausables_away: bool,
    /// All live reads, by what was read.
    pub reads: Vec<&'static str>,
    /// The content of every credentials Secret.
    pub secret: Option<SecretRead>,
    /// No Secret can be read.
    pub secrets_away: bool,
    pub effects: Vec<EffectKind>,
    pub notices: Vec<Notice>,
    /// The next write of that kind fails with that error.
    pub fails: BTreeMap<EffectKind, ClusterErrorKind>,
    pub version: u64,
}

/// The cluster.
#[derive(Default)]
pub struct Hub(pub Mutex<Objects>);

impl Hub {
    pub fn with<T>(&self, f: impl FnOnce(&mut Objects) -> T) -> T {
        f(&mut self.0.lock().expect("lock"))
    }

    fn note(&self, read: &'static str) {
        self.with(|o| o.reads.push(read));
    }

    fn agents_there(&self, home: &str, wanted: AgentFilter) -> Vec<Agent> {
        self.with(|o| {
            let all = o.agents.iter().chain(&o.unseen_agents);
            let at_home = all.filter(|a| a.namespace().as_deref() == Some(home));
            let instead = |a: &Agent| {
                let mut others = o.live_instead.iter();
                let other = others.find(|other| other.name_any() == a.name_any());
                other.unwrap_or(a).clone()
            };
            at_home.map(instead).filter(|a| wanted(a)).collect()
        })
    }

    fn has_machines(&self, namespace: &str) -> bool {
        self.with(|o| o.machines_at.as_deref().is_none_or(|at| at == namespace))
    }

    fn write<T>(
        &self,
        effect: &Effect,
        f: impl FnOnce(&mut Objects) -> ClusterResult<T>,
    ) -> ClusterResult<T> {
        self.with(|o| {
            if let Some(kind) = o.fails.remove(&effect.kind) {
                return Err(error(kind));
            }
            o.version += 1;
            o.effects.push(effect.kind);
            f(o)
        })
    }
}

fn error(kind: ClusterErrorKind) -> ClusterError {
    ClusterError {
        kind,
        operation: "update",
        subject: "it".to_owned(),
        message: "as told".to_owned(),
    }
}

fn child<'a>(o: &'a mut Objects, at: &Precondition) -> ClusterResult<&'a mut VsphereAgent> {
    let version = o.version;
    let child = o
        .child
        .as_mut()
        .filter(|c| c.name_any() == at.key.name)
        .ok_or_else(|| error(ClusterErrorKind::NotFound))?;
    let same = child.uid().as_deref() == Some(&at.uid)
        && child.resource_version().as_deref() == Some(&at.resource_version);
    if !same {
        return Err(error(ClusterErrorKind::Conflict));
    }
    child.metadata.resource_version = Some((version + 100).to_string());
    Ok(child)
}

impl View for Hub {
    fn ready(&self) -> bool {
        self.with(|o| !o.unready)
    }
    fn mode(&self) -> Mode {
        self.with(|o| o.mode)
    }
    fn history(&self) -> u64 {
        self.with(|o| o.history)
    }
    fn is_in_doubt(&self) -> bool {
        self.with(|o| o.in_doubt)
    }
    fn over_bound(&self, namespace: &str) -> Option<String> {
        self.with(|o| {
            let mut over = o.over_bound.iter();
            over.any(|name| name == namespace)
                .then(|| format!("namespace {namespace} is too large"))
        })
    }
    fn all_over_bound(&self) -> Vec<String> {
        self.with(|o| o.over_bound.clone())
    }
    fn cluster_id(&self) -> String {
        CLUSTER_ID.to_owned()
    }
    fn pools(&self) -> Vec<Arc<VsphereAgentPool>> {
        self.with(|o| {
            let all = o.pool.iter().chain(&o.other_pools);
            all.cloned().map(Arc::new).collect()
        })
    }
    fn pool(&self, key: &ObjectKey) -> Option<Arc<VsphereAgentPool>> {
        let mut pools = self.pools().into_iter();
        pools.find(|p| ObjectKey::of(p.as_ref()) == *key)
    }
    fn children(&self, _: &ObjectKey) -> Vec<Arc<VsphereAgent>> {
        self.all_children()
    }
    fn child(&self, key: &ObjectKey) -> Option<Arc<VsphereAgent>> {
        let mut children = self.all_children().into_iter();
        children.find(|c| ObjectKey::of(c.as_ref()) == *key)
    }
    fn all_children(&self) -> Vec<Arc<VsphereAgent>> {
        self.with(|o| {
            let all = o.child.iter().chain(&o.others);
            all.cloned().map(Arc::new).collect()
        })
    }
    fn agent_machines(&self, namespace: &str) -> Vec<Arc<AgentMachine>> {
        let there = self.has_machines(namespace);
        let mut all = self.all_agent_machines();
        all.retain(|_| there);
        all
    }
    fn all_agent_machines(&self) -> Vec<Arc<AgentMachine>> {
        self.with(|o| o.agent_machines.iter().cloned().map(Arc::new).collect())
    }
    fn machines(&self, namespace: &str) -> Vec<Arc<MachineFacts>> {
        let there = self.has_machines(namespace);
        let all = self.with(|o| o.machines.clone()).into_iter();
        all.filter(|_| there).map(Arc::new).collect()
    }
    fn pausables(&self, kind: PausableKind, namespace: &str) -> Vec<Arc<Pausable>> {
        let all = self.with(|o| o.pausables.clone()).into_iter();
        let there = all.filter(|(k, p)| *k == kind && p.key.namespace == namespace);
        there.map(|(_, p)| Arc::new(p)).collect()
    }
    fn serves(&self, namespace: &str) -> bool {
        self.with(|o| !o.unserved.iter().any(|n| n == namespace))
    }
    fn agents(&self, namespace: &str) -> Vec<Arc<Agent>> {
        let mut all = self.with(|o| o.agents.clone());
        all.retain(|a| a.namespace().as_deref() == Some(namespace));
        all.into_iter().map(Arc::new).collect()
    }
    fn infra_env(&self, _: &ObjectKey) -> Option<Arc<InfraEnv>> {
        let gone = self.with(|o| o.infra_env_is_gone);
        (!gone).then(|| Arc::new(crate::testing::infra_env()))
    }
    fn namespace_grant(&self, namespace: &str) -> Option<String> {
        self.with(|o| o.grants.get(namespace).cloned())
    }
}

#[async_trait]
impl Cluster for Hub {
    async fn live_child(&self, key: &ObjectKey) -> ClusterResult<Option<VsphereAgent>> {
        self.note("VsphereAgent");
        let unseen = self.with(|o| o.unseen_child.clone());
        Ok(unseen.or_else(|| self.child(key).map(|c| c.as_ref().clone())))
    }
    async fn live_pool(&self, key: &ObjectKey) -> ClusterResult<Option<VsphereAgentPool>> {
        self.note("pool");
        let unseen = self.with(|o| o.unseen_pool.clone());
        let unseen = unseen.filter(|pool| ObjectKey::of(pool) == *key);
        Ok(unseen.or_else(|| self.pool(key).map(|pool| pool.as_ref().clone())))
    }
    async fn live_pausables(
        &self,
        kind: PausableKind,
        namespace: &str,
        name: Option<&str>,
    ) -> ClusterResult<Vec<Pausable>> {
        self.note(kind.as_str());
        if self.with(|o| o.pausables_away) {
            return Err(error(ClusterErrorKind::Unavailable));
        }
        let all = self.with(|o| match o.unseen_pausables.is_empty() {
            true => o.pausables.clone(),
            false => o.unseen_pausables.clone(),
        });
        let wanted = |(k, p): &(PausableKind, Pausable)| {
            let named = name.is_none_or(|name| p.key.name == name);
            *k == kind && p.key.namespace == namespace && named
        };
        Ok(all.into_iter().filter(wanted).map(|(_, p)| p).collect())
    }
    async fn live_children(
        &self,
        _: &ObjectKey,
        _: &BTreeSet<String>,
    ) -> ClusterResult<Vec<VsphereAgent>> {
        self.note("VsphereAgents");
        Ok(self.with(|o| o.child.iter().cloned().collect()))
    }
    async fn live_agent(&self, key: &ObjectKey) -> ClusterResult<Option<Agent>> {
        self.note("Agent");
        let name = key.name.clone();
        let wanted = Arc::new(move |a: &Agent| a.name_any() == name);
        Ok(self.agents_there(&key.namespace, wanted).pop())
    }
    async fn live_agents(&self, home: &str, wanted: AgentFilter) -> ClusterResult<Vec<Agent>> {
        self.note("Agents");
        Ok(self.agents_there(home, wanted))
    }
    async fn live_agent_machine(&self, key: &ObjectKey) -> ClusterResult<Option<AgentMachine>> {
        self.note("AgentMachine");
        let all = self.agent_machines(&key.namespace);
        let found = all.iter().find(|am| am.name_any() == key.name);
        Ok(found.map(|am| am.as_ref().clone()))
    }
    async fn live_agent_machines(
        &self,
        wanted: AgentMachineFilter,
    ) -> ClusterResult<Vec<AgentMachine>> {
        self.note("AgentMachines");
        Ok(self.with(|o| {
            let all = o.agent_machines.iter().chain(&o.unseen_agent_machines);
            all.filter(|am| wanted(am)).cloned().collect()
        }))
    }
    async fn live_infra_env(&self, key: &ObjectKey) -> ClusterResult<Option<InfraEnv>> {
        let unseen = self.with(|o| {
            o.infra_env_reads += 1;
            o.unseen_infra_env.clone()
        });
        Ok(unseen.or_else(|| self.infra_env(key).map(|env| env.as_ref().clone())))
    }
    async fn live_network_configs(
        &self,
        _: &str,
        _: usize,
        read: NetworkReader<'_>,
    ) -> ClusterResult<BTreeMap<String, String>> {
        Ok(self.with(|o| o.network_configs.iter().flat_map(read).collect()))
    }
    async fn live_hosted_cluster(&self, _: &ObjectKey) -> ClusterResult<bool> {
        self.with(|o| {
            o.hosted_cluster_looks += 1;
            o.hosted_cluster
                .ok_or_else(|| error(ClusterErrorKind::NotFound))
        })
    }
    async fn live_machines(&self, namespace: &str) -> ClusterResult<Vec<MachineFacts>> {
        self.note("Machines");
        self.with(|o| o.machine_lists += 1);
        let all = self.machines(namespace);
        let unseen = self.with(|o| o.unseen_machines.clone());
        let shown = all.iter().map(|m| m.as_ref().clone());
        Ok(shown.chain(unseen).collect())
    }
    async fn secret(&self, _: &ObjectKey) -> ClusterResult<Option<SecretRead>> {
        self.with(|o| match o.secrets_away {
            true => Err(error(ClusterErrorKind::Unavailable)),
            false => Ok(o.secret.clone()),
        })
    }
    async fn config_map(&self, _: &ObjectKey) -> ClusterResult<Option<BTreeMap<String, String>>> {
        Ok(None)
    }
    async fn hold_secret(&self, effect: &Effect, _: &ObjectKey, _: &str) -> ClusterResult<bool> {
        self.write(effect, |_| Ok(true))
    }
    async fn release_secret(&self, effect: &Effect, _: &ObjectKey, _: &str) -> ClusterResult<()> {
        self.write(effect, |_| Ok(()))
    }
    async fn create_child(
        &self,
        effect: &Effect,
        child: &VsphereAgent,
    ) -> ClusterResult<VsphereAgent> {
        self.write(effect, |_| Ok(child.clone()))
    }
    async fn patch_child(
        &self,
        permit: &Permit<Precondition>,
        patch: &OwnPatch,
    ) -> ClusterResult<()> {
        self.write(permit.effect(), |o| {
            let child = child(o, permit.of())?;
            crate::testing::patch(child, patch);
            if let Some(finalizers) = &patch.finalizers {
                child.metadata.finalizers = Some(finalizers.clone());
                if finalizers.is_empty() && child.metadata.deletion_timestamp.is_some() {
                    o.child = None;
                }
            }
            Ok(())
        })
    }
    async fn delete_child(&self, permit: &Permit<Precondition>) -> ClusterResult<()> {
        self.write(permit.effect(), |o| {
            child(o, permit.of()).map(crate::testing::delete)
        })
    }
    async fn child_status(
        &self,
        effect: &Effect,
        at: &Precondition,
        status: &VsphereAgentStatus,
    ) -> ClusterResult<String> {
        self.write(effect, |o| {
            let child = child(o, at)?;
            child.status = Some(status.clone());
            Ok(child.resource_version().unwrap_or_default())
        })
    }
    async fn patch_pool(
        &self,
        effect: &Effect,
        _: &Precondition,
        _: &OwnPatch,
    ) -> ClusterResult<()> {
        self.write(effect, |_| Ok(()))
    }
    async fn pool_status(
        &self,
        effect: &Effect,
        _: &Precondition,
        status: &VsphereAgentPoolStatus,
    ) -> ClusterResult<String> {
        self.write(effect, |o| {
            let version = o.version.to_string();
            if let Some(pool) = &mut o.pool {
                pool.status = Some(status.clone());
                pool.metadata.resource_version = Some(version.clone());
            }
            Ok(version)
        })
    }
    async fn pin(&self, effect: &Effect, _: &Precondition, _: &str, _: &str) -> ClusterResult<()> {
        self.write(effect, |_| Ok(()))
    }
    async fn patch_agent(&self, permit: &Permit<AgentPatch>) -> ClusterResult<()> {
        let patch = permit.of();
        self.write(permit.effect(), |o| {
            let mut agents = o.agents.iter_mut();
            let agent = agents
                .find(|a| a.name_any() == patch.key.name)
                .ok_or_else(|| error(ClusterErrorKind::NotFound))?;
            crate::testing::patch_agent(agent, patch);
            Ok(())
        })
    }
    async fn delete_agent(&self, permit: &Permit<Precondition>) -> ClusterResult<()> {
        let at = permit.of();
        self.write(permit.effect(), |o| {
            let mut there = o.live_instead.iter().chain(&o.agents);
            let there = there.find(|a| a.name_any() == at.key.name);
            if there
                .is_some_and(|a| a.resource_version().unwrap_or_default() != at.resource_version)
            {
                return Err(error(ClusterErrorKind::Conflict));
            }
            o.agents.retain(|a| a.name_any() != at.key.name);
            o.unseen_agents.retain(|a| a.name_any() != at.key.name);
            Ok(())
        })
    }
    fn notify(&self, notice: Notice) {
        assert!(event::ALL.contains(&notice.reason), "{notice:?}");
        // An Event about a machine has the machine's trace. Any other Event has none.
        let of_machine = ["VsphereAgent", "AgentMachine"].contains(&notice.regarding.kind.as_str());
        let of_machine = of_machine && !notice.reason.starts_with("OrphanVM");
        assert!(!of_machine || notice.note.contains("(trace "), "{notice:?}");
        self.with(|o| o.notices.push(notice));
    }
}
