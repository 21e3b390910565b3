//! What the web page shows: HostedCluster, NodePool, pool, and each machine with its chain of objects. A pure function of
//! the caches. It takes time in proportion to the number of objects.

mod foreign;
#[cfg(test)]
pub(super) mod tests;

use std::collections::BTreeMap;

use agent_forge_actors::runtime::holds;
use agent_forge_crds::{
    VsphereAgentPool,
    pool::{ForeignAgentsStatus, PastHost},
};
use jiff::Timestamp;
use serde::Serialize;

pub use self::foreign::ForeignHosts;
use super::access::Reach;
use crate::{
    cluster::view::Caches,
    machines::{
        self,
        chain::{self, Live, Member},
        found::{Found, Kind},
        row::{Machine, OfPool},
        state::State,
    },
};

/// The cluster autoscaler gives up on a machine after this many seconds.
pub const AUTOSCALER_SECONDS: i64 = 900;
/// A MachineHealthCheck gives up on a machine after this many seconds.
pub const HEALTH_CHECK_SECONDS: i64 = 1200;
/// Width of a bar of the histogram, in seconds.
pub const BAR_SECONDS: i64 = 60;
/// Number of bars. The last one also has everything that took longer.
pub const BARS: usize = 31;

/// Everything that a viewer may see.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Topology {
    /// Sentences about the operator itself: it stands by, or it changes nothing.
    pub notes: Vec<String>,
    /// How to read the histograms.
    pub histogram: Scale,
    /// How many machines and foreign hosts there are in each state that occurs.
    pub counts: BTreeMap<State, usize>,
    /// HostedClusters, by name.
    pub clusters: Vec<ClusterNode>,
    /// Hosts of the same InfraEnvs that are not VMs of agent-forge.
    pub foreign: ForeignHosts,
}

/// The axis of the histograms. All values are seconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Scale {
    bar_seconds: i64,
    autoscaler_seconds: i64,
    health_check_seconds: i64,
}

/// A HostedCluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterNode {
    /// Namespace and name; the name alone if the namespace is not known.
    pub name: String,
    /// NodePools, by name.
    pub node_pools: Vec<NodePoolNode>,
}

/// A NodePool.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolNode {
    /// Name.
    pub name: String,
    /// The pools that serve it.
    pub pools: Vec<PoolNode>,
}

/// A VsphereAgentPool.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolNode {
    /// Namespace and name.
    pub name: String,
    /// The pause that holds it now, as a sentence. It is the pool's own, or that of something above it.
    pub paused: Option<String>,
    /// Status of its condition `Ready`; `null`: not known.
    pub ready: Option<bool>,
    /// Reason of that condition.
    pub reason: String,
    /// Sentence of that condition.
    pub message: String,
    /// Counts of the hosts of its InfraEnv that are not VMs of agent-forge, by its status. `null`: none, or not known.
    pub foreign_agents: Option<ForeignAgentsStatus>,
    /// Median of the seconds from the demand to the bound Agent.
    pub usual_seconds: Option<i64>,
    /// How many machines took how long from the demand to the bound Agent. See [`BAR_SECONDS`].
    pub histogram: Vec<u32>,
    /// Its hosts that are gone, by its status, the last one first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub past_hosts: Vec<PastHost>,
    /// Its machines: what needs a look comes first.
    pub machines: Vec<MachineNode>,
}

/// A machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineNode {
    /// Kind of the object that it is named after.
    pub kind: Kind,
    /// Namespace of that object.
    pub namespace: String,
    /// Name of that object.
    pub name: String,
    /// Gives the colour.
    pub state: State,
    /// Why, as one word.
    pub reason: String,
    /// Why, as a sentence.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// When it was demanded.
    pub since: Option<Timestamp>,
    /// The last entry of its timeline, and when it was.
    pub step: Option<(String, Option<Timestamp>)>,
    /// Seconds from the demand to the bound Agent, once it is bound.
    pub took_seconds: Option<i64>,
    /// Name of the ESXi host on which the VM is, else of the one that was chosen for it; `null`: neither is known.
    pub host: Option<String>,
    /// Name of the datastore.
    pub datastore: Option<String>,
    /// Its objects that exist: AgentMachine, Machine, VsphereAgent, VM, Agent, Node.
    pub chain: Vec<Member>,
}

/// Builds what a viewer with this reach may see.
#[must_use]
pub fn topology(caches: &Caches, reach: &Reach, notes: Vec<String>, now: Timestamp) -> Topology {
    let all = machines::machines(caches, now);
    let mut tree: BTreeMap<ClusterKey, BTreeMap<String, Vec<PoolNode>>> = BTreeMap::new();
    for of_pool in all.pools.iter().filter(|p| reach.covers(&p.key.namespace)) {
        let (cluster, node_pool) = match &of_pool.pool {
            Some(pool) if !pool.has_node_pool() => (ClusterKey::none(), "none".to_owned()),
            Some(pool) => (ClusterKey::of(pool), pool.spec.node_pool_ref.name.clone()),
            None => (ClusterKey::unknown(), "?".to_owned()),
        };
        let cluster = tree.entry(cluster).or_default();
        cluster
            .entry(node_pool)
            .or_default()
            .push(pool_node(of_pool));
    }
    let clusters: Vec<ClusterNode> = tree.into_iter().map(|(k, n)| k.node(n)).collect();
    let foreign = foreign::hosts(caches, &all.grants, reach, &all.agents());
    Topology {
        notes,
        counts: counts(&clusters, &foreign),
        histogram: Scale {
            bar_seconds: BAR_SECONDS,
            autoscaler_seconds: AUTOSCALER_SECONDS,
            health_check_seconds: HEALTH_CHECK_SECONDS,
        },
        clusters,
        foreign,
    }
}

/// See [`Topology::counts`].
fn counts(clusters: &[ClusterNode], foreign: &ForeignHosts) -> BTreeMap<State, usize> {
    let mut counts = BTreeMap::new();
    let node_pools = clusters.iter().flat_map(|c| &c.node_pools);
    let pools = node_pools.flat_map(|n| &n.pools);
    for machine in pools.flat_map(|p| &p.machines) {
        *counts.entry(machine.state).or_default() += 1;
    }
    let hosts = foreign.hosts.len() + foreign.more;
    if hosts > 0 {
        *counts.entry(State::Foreign).or_default() += hosts;
    }
    counts
}

/// A HostedCluster: its namespace, if it is known, and its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ClusterKey {
    namespace: Option<String>,
    name: String,
}

impl ClusterKey {
    fn of(pool: &VsphereAgentPool) -> Self {
        Self {
            namespace: holds::home_of_hosted_cluster(pool),
            name: pool.spec.hosted_cluster_ref.name.clone(),
        }
    }

    /// That of a pool without a NodePool.
    fn none() -> Self {
        Self {
            namespace: None,
            name: "no hosted cluster".to_owned(),
        }
    }

    /// That of a pool which is gone.
    fn unknown() -> Self {
        Self {
            namespace: None,
            name: "?".to_owned(),
        }
    }

    fn node(self, pools: BTreeMap<String, Vec<PoolNode>>) -> ClusterNode {
        let node_pool = |(name, pools)| NodePoolNode { name, pools };
        ClusterNode {
            node_pools: pools.into_iter().map(node_pool).collect(),
            name: match &self.namespace {
                Some(namespace) => format!("{namespace}/{}", self.name),
                None => self.name,
            },
        }
    }
}

fn pool_node(of_pool: &OfPool) -> PoolNode {
    let mut machines: Vec<MachineNode> = of_pool.machines.iter().map(machine_node).collect();
    machines.sort_by_cached_key(|m| (m.state, m.name.clone()));
    let took: Vec<i64> = machines.iter().filter_map(|m| m.took_seconds).collect();
    let status = of_pool.pool.as_ref().and_then(|p| p.status.as_ref());
    PoolNode {
        name: of_pool.key.to_string(),
        foreign_agents: status.and_then(|s| s.foreign_agents),
        paused: of_pool.paused.clone(),
        ready: of_pool.ready,
        reason: of_pool.reason.clone(),
        message: of_pool.message.clone(),
        usual_seconds: of_pool.usual_seconds,
        histogram: histogram(&took),
        past_hosts: status
            .map(|s| s.past_hosts.iter().rev().cloned().collect())
            .unwrap_or_default(),
        machines,
    }
}

/// How many of these times fall into each bar.
#[must_use]
pub fn histogram(seconds: &[i64]) -> Vec<u32> {
    let mut bars = vec![0; BARS];
    for took in seconds {
        let bar = usize::try_from(took.max(&0) / BAR_SECONDS).unwrap_or(BARS);
        bars[bar.min(BARS - 1)] += 1;
    }
    bars
}

/// The members of the chain that exist.
fn existing(found: &Found) -> Vec<Member> {
    let mut all = chain::members(found, &Live::NotAsked);
    all.retain(|member| member.name.is_some());
    all
}

fn machine_node(machine: &Machine) -> MachineNode {
    let child = machine.found.child.as_ref();
    let place = child.and_then(|c| c.vm()?.placement.as_ref());
    MachineNode {
        kind: machine.kind,
        namespace: machine.key.namespace.clone(),
        name: machine.key.name.clone(),
        state: machine.judged.state,
        reason: machine.judged.reason.clone(),
        message: machine.judged.message.clone(),
        since: machine.since,
        step: machine.step().map(|(event, at)| (event.to_owned(), at)),
        took_seconds: machine.took_seconds,
        host: child
            .and_then(|c| c.vm()?.esxi_host.clone())
            .or_else(|| place.and_then(|p| p.host.clone())),
        datastore: place.and_then(|p| p.datastore.clone()),
        chain: existing(&machine.found),
    }
}
