//! [`View`] on the caches that the watches fill.

use std::sync::{
    Arc, RwLock,
    atomic::{AtomicBool, Ordering},
};

use agent_forge_actors::{
    domain::{
        goal,
        holds::Mode,
        index_keys::{self, IndexKey, IndexKeys},
        names::ObjectKey,
        selector::Labels,
        tally::Tally,
        upstream::{MachineFacts, Pausable, PausableKind},
    },
    ports::cluster::View,
};
use agent_forge_crds::{
    VsphereAgent, VsphereAgentPool,
    external::{agent::Agent, agent_machine::AgentMachine, infra_env::InfraEnv},
    names::ALLOW_POOLS_FROM_ANNOTATION,
};
use kube::ResourceExt;

use super::{
    bound::{self, Bound, Meter},
    cache::Cache,
    doubt::Doubt,
    index::Reads,
    installers::InstallerCaches,
    scope::{Part, Scope},
};

/// What is kept of a Namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceGrant {
    /// Its name.
    pub name: String,
    /// Value of its annotation `allow-pools-from`.
    pub grant: Option<String>,
}

impl NamespaceGrant {
    /// Reads the metadata of a Namespace.
    pub fn of<K: ResourceExt>(namespace: &K) -> Self {
        Self {
            name: namespace.name_any(),
            grant: namespace
                .annotations()
                .get(ALLOW_POOLS_FROM_ANNOTATION)
                .cloned(),
        }
    }

    /// Its key in the cache. A Namespace is cluster-scoped.
    #[must_use]
    pub fn key(name: &str) -> ObjectKey {
        ObjectKey::new("", name)
    }

    fn bytes(&self) -> u64 {
        length([Some(self.name.as_str()), self.grant.as_deref()])
    }
}

/// Bytes of these texts.
fn length<'a>(texts: impl IntoIterator<Item = Option<&'a str>>) -> u64 {
    let bytes: usize = texts.into_iter().flatten().map(str::len).sum();
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

fn of_machine(machine: &MachineFacts) -> u64 {
    let texts = [
        &machine.key.namespace,
        &machine.key.name,
        &machine.uid,
        &machine.api_version,
    ];
    length(texts.map(|text| Some(text.as_str())))
}

fn of_pausable(found: &Pausable) -> u64 {
    let key = [&found.key.namespace, &found.key.name].map(Some);
    let texts = [found.cluster.as_ref(), found.paused_until.as_ref()];
    let all = key.into_iter().chain(texts);
    length(all.map(|text| text.map(String::as_str)))
}

/// The caches.
#[derive(Debug)]
pub struct Caches {
    /// Pools.
    pub pools: Arc<Cache<VsphereAgentPool>>,
    /// VsphereAgents.
    pub children: Arc<Cache<VsphereAgent>>,
    /// AgentMachines.
    pub agent_machines: Arc<Cache<AgentMachine>>,
    /// Machines.
    pub machines: Arc<Cache<MachineFacts>>,
    /// Agents.
    pub agents: Arc<Cache<Agent>>,
    /// InfraEnvs.
    pub infra_envs: Arc<Cache<InfraEnv>>,
    /// Clusters, NodePools and HostedClusters.
    pub pausables: [(PausableKind, Arc<Cache<Pausable>>); 3],
    /// What Namespaces allow pools of other namespaces.
    pub namespaces: Arc<Cache<NamespaceGrant>>,
    /// What the installer for BYOH reads; `None` if that is off.
    pub installers: Option<InstallerCaches>,
    /// The namespaces that the caches cover.
    pub scope: Scope,
    /// Identity of this cluster; empty until known.
    pub cluster_id: RwLock<String>,
    /// Whether the content may be of two histories of the API server.
    pub doubt: Arc<Doubt>,
    /// What of each namespace is kept.
    pub meter: Arc<Meter>,
    leading: AtomicBool,
    warm: AtomicBool,
    mode: RwLock<Mode>,
}

impl Caches {
    /// Caches for the namespaces in that scope, with the bound by default.
    #[must_use]
    pub fn of(scope: &Scope) -> Self {
        Self::bounded(scope, Bound::default())
    }

    /// Caches for the namespaces in that scope, which keep so much of each namespace.
    #[must_use]
    pub fn bounded(scope: &Scope, bound: Bound) -> Self {
        let parts = scope.parts();
        let (doubt, meter) = (Arc::new(Doubt::default()), Arc::new(Meter::of(bound)));
        let agents = Reads {
            keys: index_keys::of_agent,
            tally: Tally::of,
        };
        let make = Making {
            parts: &parts,
            doubt: &doubt,
            meter: &meter,
        };
        Self {
            pools: make.of("VsphereAgentPool", Reads::default(), bound::json),
            children: make.of("VsphereAgent", by(index_keys::asked_by_child), bound::json),
            agent_machines: make.of(
                "AgentMachine",
                by(index_keys::asked_by_agent_machine),
                bound::json,
            ),
            machines: make.of("Machine", Reads::default(), of_machine),
            agents: make.of("Agent", agents, bound::json),
            infra_envs: make.of("InfraEnv", Reads::default(), bound::json),
            pausables: [
                PausableKind::Cluster,
                PausableKind::NodePool,
                PausableKind::HostedCluster,
            ]
            .map(|kind| (kind, make.of(kind.as_str(), Reads::default(), of_pausable))),
            namespaces: Making {
                parts: &[None],
                ..make
            }
            .of("Namespace", Reads::default(), NamespaceGrant::bytes),
            installers: None,
            scope: scope.clone(),
            doubt,
            meter,
            cluster_id: RwLock::default(),
            leading: AtomicBool::new(false),
            warm: AtomicBool::new(false),
            mode: RwLock::default(),
        }
    }

    /// The same caches, with those of the installer for BYOH.
    #[must_use]
    pub fn with_installers(mut self) -> Self {
        self.installers = Some(InstallerCaches::of(&self.meter));
        self
    }

    /// Whether all watches have delivered their first list and the cluster's identity is known.
    pub fn listed(&self) -> bool {
        self.pools.ready()
            && self.children.ready()
            && self.agent_machines.ready()
            && self.machines.ready()
            && self.agents.ready()
            && self.infra_envs.ready()
            && self.pausables.iter().all(|(_, cache)| cache.ready())
            && self.namespaces.ready()
            && !self.cluster_id().is_empty()
    }

    /// Marks everything as not listed, because the content may be outdated. It stays visible until the new lists are
    /// complete.
    pub fn list_again(&self) {
        let parts = self.scope.parts();
        self.pools.list_again(&parts);
        self.children.list_again(&parts);
        self.agent_machines.list_again(&parts);
        self.machines.list_again(&parts);
        self.agents.list_again(&parts);
        self.infra_envs.list_again(&parts);
        for (_, cache) in &self.pausables {
            cache.list_again(&parts);
        }
        self.namespaces.list_again(&[None]);
    }

    /// Marks everything as to be listed again, because the content may be of two histories of the API server. Everything but
    /// an end goes on meanwhile.
    pub fn mistrust(&self) {
        let parts = self.scope.parts();
        self.pools.mistrust(&parts);
        self.children.mistrust(&parts);
        self.agent_machines.mistrust(&parts);
        self.machines.mistrust(&parts);
        self.agents.mistrust(&parts);
        self.infra_envs.mistrust(&parts);
        for (_, cache) in &self.pausables {
            cache.mistrust(&parts);
        }
        self.namespaces.mistrust(&[None]);
        self.doubt.is_answered();
    }

    /// Records that everything was listed once.
    pub fn warm(&self) {
        self.warm.store(true, Ordering::Release);
    }

    /// Whether everything was listed once. Then this process can act, or stand by.
    pub fn is_warm(&self) -> bool {
        self.warm.load(Ordering::Acquire)
    }

    /// A number that rises with each change of an object, of any kind. It starts again with the process.
    pub fn version(&self) -> u64 {
        let pausables = self.pausables.iter().map(|(_, cache)| cache.version());
        let all = [
            self.pools.version(),
            self.children.version(),
            self.agent_machines.version(),
            self.machines.version(),
            self.agents.version(),
            self.infra_envs.version(),
            self.namespaces.version(),
        ];
        all.into_iter().chain(pausables).sum()
    }

    /// From now on the operator runs in that mode. Returns whether that is a change.
    pub fn set_mode(&self, mode: Mode) -> bool {
        let slot = self.mode.write();
        slot.is_ok_and(|mut slot| std::mem::replace(&mut *slot, mode) != mode)
    }

    /// From now on this process acts on what it sees. Before, it only follows the changes.
    pub fn lead(&self) {
        self.leading.store(true, Ordering::Release);
    }

    /// Whether this process acts.
    pub fn leads(&self) -> bool {
        self.leading.load(Ordering::Acquire)
    }
}

/// What all caches have in common.
struct Making<'a> {
    parts: &'a [Part],
    doubt: &'a Arc<Doubt>,
    meter: &'a Arc<Meter>,
}

impl Making<'_> {
    fn of<K>(&self, kind: &'static str, reads: Reads<K>, weigh: fn(&K) -> u64) -> Arc<Cache<K>> {
        let cache = Cache::indexed(self.parts, reads).telling(self.doubt);
        Arc::new(cache.metered(self.meter, kind, weigh))
    }
}

/// Reads for an index by these keys.
fn by<K>(keys: fn(&K) -> IndexKeys) -> Reads<K> {
    Reads {
        keys,
        ..Reads::default()
    }
}

impl View for Caches {
    fn ready(&self) -> bool {
        self.listed() && self.leads()
    }

    fn mode(&self) -> Mode {
        // A reader that cannot know must not act.
        self.mode.read().map_or(Mode::Silent, |mode| *mode)
    }

    fn cluster_id(&self) -> String {
        self.cluster_id
            .read()
            .map(|id| id.clone())
            .unwrap_or_default()
    }

    fn pools(&self) -> Vec<Arc<VsphereAgentPool>> {
        self.pools.all()
    }

    fn pool(&self, key: &ObjectKey) -> Option<Arc<VsphereAgentPool>> {
        self.pools.get(key)
    }

    fn children(&self, pool: &ObjectKey) -> Vec<Arc<VsphereAgent>> {
        let asked = IndexKeys::from([IndexKey::pool(pool)]);
        let mut all = self.children.with_keys(None, &asked);
        let admitted =
            |c: &VsphereAgent| goal::refusing(c, |name| self.namespace_grant(name)).is_none();
        all.retain(|c| goal::user(c) == *pool && admitted(c));
        all
    }

    fn child(&self, key: &ObjectKey) -> Option<Arc<VsphereAgent>> {
        self.children.get(key)
    }

    fn all_children(&self) -> Vec<Arc<VsphereAgent>> {
        self.children.all()
    }

    fn agent_machines(&self, namespace: &str) -> Vec<Arc<AgentMachine>> {
        self.agent_machines.of_namespace(namespace)
    }

    fn all_agent_machines(&self) -> Vec<Arc<AgentMachine>> {
        self.agent_machines.all()
    }

    fn agent_machine(&self, key: &ObjectKey) -> Option<Arc<AgentMachine>> {
        self.agent_machines.get(key)
    }

    fn machines(&self, namespace: &str) -> Vec<Arc<MachineFacts>> {
        self.machines.of_namespace(namespace)
    }

    fn machine(&self, key: &ObjectKey) -> Option<Arc<MachineFacts>> {
        self.machines.get(key)
    }

    fn pausables(&self, kind: PausableKind, namespace: &str) -> Vec<Arc<Pausable>> {
        let mut all = self.pausables.iter();
        let found = all.find(|(k, _)| *k == kind);
        found.map_or_else(Vec::new, |(_, cache)| cache.of_namespace(namespace))
    }

    fn agents(&self, namespace: &str) -> Vec<Arc<Agent>> {
        self.agents.of_namespace(namespace)
    }

    fn agents_with(&self, namespace: &str, keys: &IndexKeys) -> Vec<Arc<Agent>> {
        self.agents.with_keys(Some(namespace), keys)
    }

    fn first_agent(
        &self,
        namespace: &str,
        word: IndexKey,
        wanted: &dyn Fn(&Agent) -> bool,
    ) -> Option<Arc<Agent>> {
        self.agents.first(namespace, word, wanted)
    }

    fn count_agents(&self, namespace: &str, labels: &Labels) -> Tally {
        self.agents.count(namespace, labels)
    }

    fn children_asking(&self, keys: &IndexKeys) -> Vec<Arc<VsphereAgent>> {
        self.children.with_keys(None, keys)
    }

    fn agent_machines_asking(&self, keys: &IndexKeys) -> Vec<Arc<AgentMachine>> {
        self.agent_machines.with_keys(None, keys)
    }

    fn infra_env(&self, key: &ObjectKey) -> Option<Arc<InfraEnv>> {
        self.infra_envs.get(key)
    }

    fn history(&self) -> u64 {
        self.doubt.times()
    }

    fn is_in_doubt(&self) -> bool {
        // In this order: what has begun is asked for before it is answered.
        self.doubt.has_begun()
            || self.pools.is_in_doubt()
            || self.children.is_in_doubt()
            || self.agent_machines.is_in_doubt()
            || self.machines.is_in_doubt()
            || self.agents.is_in_doubt()
            || self.infra_envs.is_in_doubt()
            || self.pausables.iter().any(|(_, c)| c.is_in_doubt())
            || self.namespaces.is_in_doubt()
    }

    fn over_bound(&self, namespace: &str) -> Option<String> {
        self.meter.over(namespace)
    }

    fn all_over_bound(&self) -> Vec<String> {
        self.meter.all_over()
    }

    fn serves(&self, namespace: &str) -> bool {
        self.scope.serves(namespace)
    }

    fn namespace_grant(&self, namespace: &str) -> Option<String> {
        self.namespaces
            .get(&NamespaceGrant::key(namespace))?
            .grant
            .clone()
    }
}
