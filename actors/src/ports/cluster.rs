//! The management cluster, as the actors need it: cached reads ([`View`]), live reads and writes ([`Cluster`]).
//!
//! A [`View`] may be stale: an actor may wake and plan from it, but it never proves absence. Before an actor destroys or
//! releases something, it asks [`Cluster`]. Every write carries its precondition (uid, resourceVersion) and its [`Effect`].

mod failure;
mod patch;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use agent_forge_crds::{
    agent::{VsphereAgent, VsphereAgentStatus},
    external::{
        agent::Agent, agent_machine::AgentMachine, infra_env::InfraEnv,
        nmstate_config::NMStateConfig,
    },
    pool::{VsphereAgentPool, VsphereAgentPoolStatus},
};
use async_trait::async_trait;
use secrecy::SecretString;

use crate::{
    domain::{
        failure::{ErrorSource, ReconcileError},
        holds::Mode,
        index_keys::{self, IndexKey, IndexKeys},
        names::ObjectKey,
        selector::Labels,
        tally::Tally,
        upstream::{MachineFacts, Pausable, PausableKind},
    },
    ports::{effect::Effect, permit::Permit},
};

pub use self::{
    failure::{ClusterError, ClusterErrorKind, ClusterResult},
    patch::{AgentPatch, OwnPatch, Precondition},
};

/// Cached reads. Cheap, synchronous, stale.
pub trait View: Send + Sync {
    /// All watches have delivered their first list, and this process is the leader. Before that, no actor may decide
    /// anything.
    fn ready(&self) -> bool;
    /// How the operator runs: in earnest, or as a dry run.
    fn mode(&self) -> Mode {
        Mode::Earnest
    }
    /// Identity of the management cluster, which is part of markers and uuids.
    fn cluster_id(&self) -> String;
    /// All pools.
    fn pools(&self) -> Vec<Arc<VsphereAgentPool>>;
    /// One pool.
    fn pool(&self, key: &ObjectKey) -> Option<Arc<VsphereAgentPool>>;
    /// VsphereAgents that the pool uses ([`crate::domain::goal::user`]), by namespace and name. Those of other namespaces only
    /// while both namespaces admit that.
    fn children(&self, pool: &ObjectKey) -> Vec<Arc<VsphereAgent>>;
    /// One VsphereAgent.
    fn child(&self, key: &ObjectKey) -> Option<Arc<VsphereAgent>>;
    /// All VsphereAgents.
    fn all_children(&self) -> Vec<Arc<VsphereAgent>>;
    /// AgentMachines of a namespace, in name order.
    fn agent_machines(&self, namespace: &str) -> Vec<Arc<AgentMachine>>;
    /// AgentMachines of all namespaces: hosted clusters may choose from the same Agents.
    fn all_agent_machines(&self) -> Vec<Arc<AgentMachine>>;
    /// One AgentMachine.
    fn agent_machine(&self, key: &ObjectKey) -> Option<Arc<AgentMachine>> {
        let mut all = self.agent_machines(&key.namespace).into_iter();
        all.find(|am| ObjectKey::of(am.as_ref()) == *key)
    }
    /// Machines of a namespace, in name order.
    fn machines(&self, namespace: &str) -> Vec<Arc<MachineFacts>>;
    /// One Machine.
    fn machine(&self, key: &ObjectKey) -> Option<Arc<MachineFacts>> {
        let mut all = self.machines(&key.namespace).into_iter();
        all.find(|m| m.key == *key)
    }
    /// Objects of a namespace that can pause pools, in name order. None if the kind is not served.
    fn pausables(&self, _kind: PausableKind, _namespace: &str) -> Vec<Arc<Pausable>> {
        Vec::new()
    }
    /// Agents of a namespace, in name order. There may be ten thousand: to find some, ask by [`index_keys`].
    fn agents(&self, namespace: &str) -> Vec<Arc<Agent>>;
    /// The Agents that have one of these keys, at one moment and in name order. This default shows the meaning. A cache
    /// keeps an index for it, and for the methods below.
    fn agents_with(&self, namespace: &str, keys: &IndexKeys) -> Vec<Arc<Agent>> {
        let mut all = self.agents(namespace);
        all.retain(|agent| !index_keys::of_agent(agent).is_disjoint(keys));
        all
    }
    /// The first Agent, in name order, that has that word and that `wanted` accepts. `wanted` must not ask the view.
    fn first_agent(
        &self,
        namespace: &str,
        word: IndexKey,
        wanted: &dyn Fn(&Agent) -> bool,
    ) -> Option<Arc<Agent>> {
        let mut all = self
            .agents_with(namespace, &IndexKeys::from([word]))
            .into_iter();
        all.find(|agent| wanted(agent))
    }
    /// How many Agents have these labels.
    fn count_agents(&self, namespace: &str, labels: &Labels) -> Tally {
        let all = self.agents(namespace);
        all.iter().map(|agent| Tally::of(agent, labels)).sum()
    }
    /// VsphereAgents of all namespaces that ask for one of these keys.
    fn children_asking(&self, keys: &IndexKeys) -> Vec<Arc<VsphereAgent>> {
        let mut all = self.all_children();
        all.retain(|child| !index_keys::asked_by_child(child).is_disjoint(keys));
        all
    }
    /// AgentMachines of all namespaces that ask for one of these keys.
    fn agent_machines_asking(&self, keys: &IndexKeys) -> Vec<Arc<AgentMachine>> {
        let mut all = self.all_agent_machines();
        all.retain(|am| !index_keys::asked_by_agent_machine(am).is_disjoint(keys));
        all
    }
    /// One InfraEnv.
    fn infra_env(&self, key: &ObjectKey) -> Option<Arc<InfraEnv>>;
    /// How often the caches were in doubt so far: a watch had to list again, as after a restore of the API server. Whoever
    /// has followed an object may have missed something since.
    fn history(&self) -> u64 {
        0
    }
    /// The caches may mix two histories of the API server, until all kinds were listed again.
    fn is_in_doubt(&self) -> bool {
        false
    }
    /// Why a part of that namespace is unknown: it has more than the caches keep of one. What is left out must not count as
    /// absent. `None`: all of it is known.
    fn over_bound(&self, _namespace: &str) -> Option<String> {
        None
    }
    /// The namespaces of which a part is unknown.
    fn all_over_bound(&self) -> Vec<String> {
        Vec::new()
    }
    /// Whether objects of that namespace are watched, read and written (`--namespaces`).
    fn serves(&self, _namespace: &str) -> bool {
        true
    }
    /// The value of a Namespace's annotation `allow-pools-from` ([`grants`](crate::domain::grants)). `None` if it has none,
    /// or does not exist.
    fn namespace_grant(&self, namespace: &str) -> Option<String>;
}

/// An Event about one of our objects or about an AgentMachine that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// About what.
    pub regarding: Regarding,
    /// `Warning` instead of `Normal`.
    pub warning: bool,
    /// CamelCase reason.
    pub reason: &'static str,
    /// What was done.
    pub action: &'static str,
    /// One sentence, without secrets.
    pub note: String,
}

/// What an Event is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Regarding {
    /// apiVersion.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace and name.
    pub key: ObjectKey,
    /// uid.
    pub uid: String,
}

/// Which state of which Secret: equal versions hold the same bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecretVersion {
    /// uid.
    pub uid: String,
    /// resourceVersion.
    pub resource_version: String,
}

/// A Secret as it was read.
#[derive(Clone, Debug, Default)]
pub struct SecretRead {
    /// Which state of it.
    pub version: SecretVersion,
    /// Its annotation `allow-pools-from`.
    pub pools_from: Option<String>,
    /// Its data; keys whose value is not UTF-8 are left out.
    pub data: BTreeMap<String, SecretString>,
}

/// Selects Agents: few of thousands.
pub type AgentFilter = Arc<dyn Fn(&Agent) -> bool + Send + Sync>;

/// Selects AgentMachines.
pub type AgentMachineFilter = Arc<dyn Fn(&AgentMachine) -> bool + Send + Sync>;

/// Takes from an NMStateConfig what is kept of it, by MAC address.
pub type NetworkReader<'a> = &'a (dyn Fn(&NMStateConfig) -> Vec<(String, String)> + Send + Sync);

/// Live reads and writes.
#[async_trait]
pub trait Cluster: Send + Sync {
    /// Reads one VsphereAgent from the API server; `None` from a typed 404 only.
    async fn live_child(&self, key: &ObjectKey) -> ClusterResult<Option<VsphereAgent>>;
    /// Reads one pool; `None` if a list of its name is empty.
    async fn live_pool(&self, key: &ObjectKey) -> ClusterResult<Option<VsphereAgentPool>>;
    /// The objects of a namespace that can pause pools, from the API server: all, or the one of that name. None if discovery
    /// says that the kind is not served.
    async fn live_pausables(
        &self,
        kind: PausableKind,
        namespace: &str,
        name: Option<&str>,
    ) -> ClusterResult<Vec<Pausable>>;
    /// Lists the VsphereAgents that a pool has made or uses, from the API server: those in its namespace and in `elsewhere`.
    async fn live_children(
        &self,
        pool: &ObjectKey,
        elsewhere: &BTreeSet<String>,
    ) -> ClusterResult<Vec<VsphereAgent>>;
    /// Reads one Agent; `None` from a typed 404 only.
    async fn live_agent(&self, key: &ObjectKey) -> ClusterResult<Option<Agent>>;
    /// The Agents of a namespace that `wanted` accepts, from the API server, in a list that begins after this call. They
    /// come without annotations that no decision reads.
    async fn live_agents(&self, namespace: &str, wanted: AgentFilter) -> ClusterResult<Vec<Agent>>;
    /// Reads one AgentMachine; `None` from a typed 404 only.
    async fn live_agent_machine(&self, key: &ObjectKey) -> ClusterResult<Option<AgentMachine>>;
    /// The AgentMachines of all served namespaces that `wanted` accepts, from the API server.
    async fn live_agent_machines(
        &self,
        wanted: AgentMachineFilter,
    ) -> ClusterResult<Vec<AgentMachine>>;
    /// Reads one InfraEnv; `None` from a typed 404 only.
    async fn live_infra_env(&self, key: &ObjectKey) -> ClusterResult<Option<InfraEnv>>;
    /// What `read` takes from the NMStateConfigs of a namespace: at most `most` entries and those of one page more. Empty if
    /// that kind is not served.
    async fn live_network_configs(
        &self,
        namespace: &str,
        most: usize,
        read: NetworkReader<'_>,
    ) -> ClusterResult<BTreeMap<String, String>>;
    /// Whether that HostedCluster exists, by a list. An unserved kind is an error, never an absence.
    async fn live_hosted_cluster(&self, key: &ObjectKey) -> ClusterResult<bool>;
    /// Lists the Machines of a namespace in a version that discovery serves. An unserved kind is an error, never an empty
    /// list: a Machine is gone only by proof.
    async fn live_machines(&self, namespace: &str) -> ClusterResult<Vec<MachineFacts>>;
    /// Reads a Secret; `None` from a typed 404 only.
    async fn secret(&self, key: &ObjectKey) -> ClusterResult<Option<SecretRead>>;
    /// Reads a ConfigMap's `data`; `None` from a typed 404 only.
    async fn config_map(&self, key: &ObjectKey) -> ClusterResult<Option<BTreeMap<String, String>>>;

    /// Adds a finalizer to a Secret, if it is missing. Returns `false` if there is no such Secret, or if it is being deleted
    /// without this finalizer.
    async fn hold_secret(
        &self,
        effect: &Effect,
        key: &ObjectKey,
        finalizer: &str,
    ) -> ClusterResult<bool>;
    /// Removes a finalizer from a Secret. It succeeds if either is gone.
    async fn release_secret(
        &self,
        effect: &Effect,
        key: &ObjectKey,
        finalizer: &str,
    ) -> ClusterResult<()>;

    /// Creates a VsphereAgent.
    async fn create_child(
        &self,
        effect: &Effect,
        child: &VsphereAgent,
    ) -> ClusterResult<VsphereAgent>;
    /// Patches a VsphereAgent: all of it, or nothing.
    async fn patch_child(
        &self,
        permit: &Permit<Precondition>,
        patch: &OwnPatch,
    ) -> ClusterResult<()>;
    /// Deletes a VsphereAgent.
    async fn delete_child(&self, permit: &Permit<Precondition>) -> ClusterResult<()>;
    /// Replaces the status of a VsphereAgent; returns the new resourceVersion.
    async fn child_status(
        &self,
        effect: &Effect,
        at: &Precondition,
        status: &VsphereAgentStatus,
    ) -> ClusterResult<String>;
    /// Patches the metadata of a pool.
    async fn patch_pool(
        &self,
        effect: &Effect,
        at: &Precondition,
        patch: &OwnPatch,
    ) -> ClusterResult<()>;
    /// Replaces the status of a pool; returns the new resourceVersion.
    async fn pool_status(
        &self,
        effect: &Effect,
        at: &Precondition,
        status: &VsphereAgentPoolStatus,
    ) -> ClusterResult<String>;
    /// Adds one label to `spec.agentLabelSelector.matchLabels` of an AgentMachine.
    async fn pin(
        &self,
        effect: &Effect,
        at: &Precondition,
        label: &str,
        value: &str,
    ) -> ClusterResult<()>;
    /// Patches an Agent.
    async fn patch_agent(&self, permit: &Permit<AgentPatch>) -> ClusterResult<()>;
    /// Deletes an Agent.
    async fn delete_agent(&self, permit: &Permit<Precondition>) -> ClusterResult<()>;
    /// Records an Event in the background, with retries for some minutes. It logs failures and never returns them: no other
    /// work waits for an Event.
    fn notify(&self, notice: Notice);
}

impl From<ClusterError> for ReconcileError {
    fn from(e: ClusterError) -> Self {
        Self {
            side: ErrorSource::Kubernetes,
            reason: e.reason(),
            message: e.to_string(),
            class: e.class(),
        }
    }
}
