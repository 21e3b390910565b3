//! Reads live what can hold a pool and its VMs. A watch may hang for minutes after the API server accepted a pause.

use std::sync::Arc;

use agent_forge_crds::{
    agent::VsphereAgent,
    external::{agent::Agent, agent_machine::AgentMachine, infra_env::InfraEnv},
    pool::VsphereAgentPool,
};
use futures::future::try_join_all;

use super::home_of_hosted_cluster;
use crate::{
    domain::{
        holds::Mode,
        index_keys::{IndexKey, IndexKeys},
        names::ObjectKey,
        selector::Labels,
        tally::Tally,
        upstream::{MachineFacts, Pausable, PausableKind},
    },
    ports::cluster::{Cluster, ClusterResult, View},
};

/// The pool, and the Clusters, NodePools and HostedClusters that can pause it, as the API server has them.
#[derive(Clone, Debug)]
pub struct Pausing {
    key: ObjectKey,
    pool: Option<Arc<VsphereAgentPool>>,
    /// Which lists were read, and what they showed.
    lists: Vec<(PausableKind, String, Vec<Arc<Pausable>>)>,
}

impl Pausing {
    /// Reads all of it: the pool, its Cluster, its NodePool and its HostedCluster, so four reads. `home`: the control plane of
    /// a VM, whose Cluster counts as well. It may differ from the pool's. Nothing is read in namespaces that are not served:
    /// no cache shows what is there either.
    ///
    /// # Errors
    /// One of the reads failed: nobody knows what holds the pool.
    pub async fn read(
        view: &dyn View,
        cluster: &dyn Cluster,
        key: &ObjectKey,
        home: Option<&str>,
    ) -> ClusterResult<Self> {
        let mut read = Self::read_pool(cluster, key).await?;
        let mut wanted: Vec<(PausableKind, String, Option<&str>)> = Vec::new();
        if let Some(pool) = &read.pool {
            let spec = &pool.spec;
            wanted.push((
                PausableKind::Cluster,
                spec.control_plane_namespace.clone(),
                None,
            ));
            if let Some(above) = home_of_hosted_cluster(pool) {
                let name = spec.node_pool_ref.name.as_str();
                wanted.push((PausableKind::NodePool, above.clone(), Some(name)));
                let name = spec.hosted_cluster_ref.name.as_str();
                wanted.push((PausableKind::HostedCluster, above, Some(name)));
            }
        }
        let is_listed = |home: &str| wanted.iter().any(|(_, namespace, _)| namespace == home);
        if let Some(home) = home.filter(|home| !is_listed(home)) {
            wanted.push((PausableKind::Cluster, home.to_owned(), None));
        }
        wanted.retain(|(_, namespace, _)| view.serves(namespace));
        let lists = wanted.into_iter().map(async |(kind, namespace, name)| {
            let found = cluster.live_pausables(kind, &namespace, name).await?;
            Ok((kind, namespace, found.into_iter().map(Arc::new).collect()))
        });
        read.lists = try_join_all(lists).await?;
        Ok(read)
    }

    /// Reads the pool alone. A forced deletion asks nothing else: no pause holds it.
    ///
    /// # Errors
    /// The read failed.
    pub async fn read_pool(cluster: &dyn Cluster, key: &ObjectKey) -> ClusterResult<Self> {
        Ok(Self {
            key: key.clone(),
            pool: cluster.live_pool(key).await?.map(Arc::new),
            lists: Vec::new(),
        })
    }

    /// `cached`, with this instead of what the caches show.
    #[must_use]
    pub fn over(self, cached: Arc<dyn View>) -> Arc<dyn View> {
        Arc::new(Over { cached, live: self })
    }
}

struct Over {
    cached: Arc<dyn View>,
    live: Pausing,
}

impl View for Over {
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
        all.retain(|pool| ObjectKey::of(pool.as_ref()) != self.live.key);
        all.extend(self.live.pool.clone());
        all
    }
    fn pool(&self, key: &ObjectKey) -> Option<Arc<VsphereAgentPool>> {
        if *key == self.live.key {
            return self.live.pool.clone();
        }
        self.cached.pool(key)
    }
    fn children(&self, pool: &ObjectKey) -> Vec<Arc<VsphereAgent>> {
        self.cached.children(pool)
    }
    fn child(&self, key: &ObjectKey) -> Option<Arc<VsphereAgent>> {
        self.cached.child(key)
    }
    fn all_children(&self) -> Vec<Arc<VsphereAgent>> {
        self.cached.all_children()
    }
    fn agent_machines(&self, namespace: &str) -> Vec<Arc<AgentMachine>> {
        self.cached.agent_machines(namespace)
    }
    fn all_agent_machines(&self) -> Vec<Arc<AgentMachine>> {
        self.cached.all_agent_machines()
    }
    fn agent_machine(&self, key: &ObjectKey) -> Option<Arc<AgentMachine>> {
        self.cached.agent_machine(key)
    }
    fn machines(&self, namespace: &str) -> Vec<Arc<MachineFacts>> {
        self.cached.machines(namespace)
    }
    fn machine(&self, key: &ObjectKey) -> Option<Arc<MachineFacts>> {
        self.cached.machine(key)
    }
    fn pausables(&self, kind: PausableKind, namespace: &str) -> Vec<Arc<Pausable>> {
        let mut lists = self.live.lists.iter();
        let read = lists.find(|(of, at, _)| *of == kind && at == namespace);
        match read {
            Some((_, _, found)) => found.clone(),
            None => self.cached.pausables(kind, namespace),
        }
    }
    fn agents(&self, namespace: &str) -> Vec<Arc<Agent>> {
        self.cached.agents(namespace)
    }
    fn agents_with(&self, namespace: &str, keys: &IndexKeys) -> Vec<Arc<Agent>> {
        self.cached.agents_with(namespace, keys)
    }
    fn first_agent(
        &self,
        namespace: &str,
        word: IndexKey,
        wanted: &dyn Fn(&Agent) -> bool,
    ) -> Option<Arc<Agent>> {
        self.cached.first_agent(namespace, word, wanted)
    }
    fn count_agents(&self, namespace: &str, labels: &Labels) -> Tally {
        self.cached.count_agents(namespace, labels)
    }
    fn children_asking(&self, keys: &IndexKeys) -> Vec<Arc<VsphereAgent>> {
        self.cached.children_asking(keys)
    }
    fn agent_machines_asking(&self, keys: &IndexKeys) -> Vec<Arc<AgentMachine>> {
        self.cached.agent_machines_asking(keys)
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
