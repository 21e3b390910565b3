//! A view that counts the objects it returns.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use agent_forge::cluster::view::Caches;
use agent_forge_actors::{
    domain::{
        index_keys::{IndexKey, IndexKeys},
        names::ObjectKey,
        selector::Labels,
        tally::Tally,
        upstream::MachineFacts,
    },
    ports::cluster::View,
};
use agent_forge_crds::{
    VsphereAgent, VsphereAgentPool,
    external::{agent::Agent, agent_machine::AgentMachine, infra_env::InfraEnv},
};

/// The caches, and the number of objects that were read from them.
pub struct Counting {
    caches: Arc<Caches>,
    looked_at: AtomicUsize,
}

impl Counting {
    /// A view on these caches, with a count of 0.
    pub fn of(caches: Arc<Caches>) -> Self {
        Self {
            caches,
            looked_at: AtomicUsize::new(0),
        }
    }

    /// How many objects were read since the last call.
    pub fn taken(&self) -> usize {
        self.looked_at.swap(0, Ordering::Relaxed)
    }

    fn count(&self, objects: usize) {
        self.looked_at.fetch_add(objects, Ordering::Relaxed);
    }

    fn all<K>(&self, objects: Vec<Arc<K>>) -> Vec<Arc<K>> {
        self.count(objects.len());
        objects
    }

    fn one<K>(&self, object: Option<Arc<K>>) -> Option<Arc<K>> {
        self.count(usize::from(object.is_some()));
        object
    }
}

impl View for Counting {
    fn ready(&self) -> bool {
        self.caches.ready()
    }
    fn cluster_id(&self) -> String {
        "cluster".to_owned()
    }
    fn pools(&self) -> Vec<Arc<VsphereAgentPool>> {
        self.all(self.caches.pools())
    }
    fn pool(&self, key: &ObjectKey) -> Option<Arc<VsphereAgentPool>> {
        self.one(self.caches.pool(key))
    }
    fn children(&self, pool: &ObjectKey) -> Vec<Arc<VsphereAgent>> {
        self.all(self.caches.children(pool))
    }
    fn child(&self, key: &ObjectKey) -> Option<Arc<VsphereAgent>> {
        self.one(self.caches.child(key))
    }
    fn all_children(&self) -> Vec<Arc<VsphereAgent>> {
        self.all(self.caches.all_children())
    }
    fn agent_machines(&self, namespace: &str) -> Vec<Arc<AgentMachine>> {
        self.all(self.caches.agent_machines(namespace))
    }
    fn all_agent_machines(&self) -> Vec<Arc<AgentMachine>> {
        self.all(self.caches.all_agent_machines())
    }
    fn machines(&self, namespace: &str) -> Vec<Arc<MachineFacts>> {
        self.all(self.caches.machines(namespace))
    }
    fn agents(&self, namespace: &str) -> Vec<Arc<Agent>> {
        self.all(self.caches.agents(namespace))
    }
    fn agents_with(&self, namespace: &str, words: &IndexKeys) -> Vec<Arc<Agent>> {
        self.all(self.caches.agents_with(namespace, words))
    }
    fn first_agent(
        &self,
        namespace: &str,
        word: IndexKey,
        wanted: &dyn Fn(&Agent) -> bool,
    ) -> Option<Arc<Agent>> {
        let wanted = |agent: &Agent| {
            self.count(1);
            wanted(agent)
        };
        self.caches.first_agent(namespace, word, &wanted)
    }
    fn count_agents(&self, namespace: &str, labels: &Labels) -> Tally {
        self.caches.count_agents(namespace, labels)
    }
    fn children_asking(&self, words: &IndexKeys) -> Vec<Arc<VsphereAgent>> {
        self.all(self.caches.children_asking(words))
    }
    fn agent_machines_asking(&self, words: &IndexKeys) -> Vec<Arc<AgentMachine>> {
        self.all(self.caches.agent_machines_asking(words))
    }
    fn infra_env(&self, key: &ObjectKey) -> Option<Arc<InfraEnv>> {
        self.one(self.caches.infra_env(key))
    }
    fn namespace_grant(&self, namespace: &str) -> Option<String> {
        self.caches.namespace_grant(namespace)
    }
}
