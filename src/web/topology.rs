//! What the web page shows: HostedCluster, NodePool, pool, and each machine with its chain of objects. A pure function of
//! the caches. It takes time in proportion to the number of objects.

mod foreign;
#[cfg(test)]
pub(super) mod tests;

use std::collections::{BTreeMap, BTreeSet};

use agent_forge_actors::{
    demand::classify, domain::names::ObjectKey, ports::cluster::View as _, runtime::holds,
};
use agent_forge_crds::{
    VsphereAgentPool,
    agent::Milestone,
    conditions::{READY, Reason, find_condition},
    external::{agent::Agent, agent_machine::AgentMachine},
};
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde::Serialize;

pub use self::foreign::ForeignHosts;
use super::access::Reach;
use crate::{
    cluster::view::Caches,
    commands::top::rows,
    machines::{
        chain::{self, Live, Member},
        found::{Found, Kind},
        join::Join,
        state::{self, State},
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
    /// Median of the seconds from the demand to the bound Agent.
    pub usual_seconds: Option<i64>,
    /// How many machines took how long from the demand to the bound Agent. See [`BAR_SECONDS`].
    pub histogram: Vec<u32>,
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
    /// Name of the host; `null`: vCenter chooses it.
    pub host: Option<String>,
    /// Name of the datastore.
    pub datastore: Option<String>,
    /// Its objects that exist: AgentMachine, Machine, VsphereAgent, VM, Agent, Node.
    pub chain: Vec<Member>,
}

/// Builds what a viewer with this reach may see.
#[must_use]
pub fn topology(caches: &Caches, reach: &Reach, notes: Vec<String>, now: Timestamp) -> Topology {
    let join = Join::new(caches);
    let all = join.children().iter().cloned();
    let all: Vec<Found> = all.map(|child| join.of_child(child)).collect();
    let mut of_pool: BTreeMap<ObjectKey, Vec<&Found>> = BTreeMap::new();
    let mut own = BTreeSet::new();
    for found in &all {
        own.extend(found.agent.as_deref().map(ObjectKey::of));
        if let Some(child) = &found.child {
            let name = &child.object.spec.pool_ref.name;
            let pool = ObjectKey::new(&child.key.namespace, name);
            of_pool.entry(pool).or_default().push(found);
        }
    }
    let mut tree: BTreeMap<ClusterKey, BTreeMap<String, Vec<PoolNode>>> = BTreeMap::new();
    for pool in caches.pools() {
        let key = ObjectKey::of(pool.as_ref());
        if !reach.covers(&key.namespace) {
            continue;
        }
        let machines = of_pool.remove(&key).unwrap_or_default();
        let node = PoolNode {
            paused: rows::paused(caches, &key, now),
            ..pool_node(caches, &join, &pool, &machines)
        };
        let cluster = tree.entry(ClusterKey::of(&pool)).or_default();
        let node_pool = pool.spec.node_pool_ref.name.clone();
        cluster.entry(node_pool).or_default().push(node);
    }
    // A VsphereAgent whose pool is gone still has a VM.
    for (key, machines) in of_pool
        .iter()
        .filter(|(key, _)| reach.covers(&key.namespace))
    {
        let cluster = tree.entry(ClusterKey::unknown()).or_default();
        let pools = cluster.entry("?".to_owned()).or_default();
        let over = caches.over_bound(&key.namespace);
        pools.push(gone_pool(key, over, machines));
    }
    let clusters: Vec<ClusterNode> = tree.into_iter().map(|(k, n)| k.node(n)).collect();
    let foreign = foreign::hosts(caches, join.grants(), reach, &own);
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

fn pool_node(
    caches: &Caches,
    join: &Join<'_>,
    pool: &VsphereAgentPool,
    machines: &[&Found],
) -> PoolNode {
    let status = pool.status.as_ref();
    let conditions = status.map(|s| s.conditions.as_slice()).unwrap_or_default();
    let ready = find_condition(conditions, READY);
    let own = pool.namespace().unwrap_or_default();
    let children = machines.iter().filter_map(|found| child_node(found));
    let home = &pool.spec.control_plane_namespace;
    let demands = caches.agent_machines(home).into_iter();
    let grants = join.grants();
    let demands = demands.filter(|am| {
        let is_its = classify::belongs(pool, am) && grants.shows(pool, am);
        is_its && join.made_for(am).is_none()
    });
    let agent = |am: &AgentMachine| {
        let namespace = |agent: &Agent| agent.namespace().unwrap_or_default();
        let agent = join.reserved(am);
        agent.filter(|agent| grants.admit(&namespace(agent), pool))
    };
    let demands = demands.map(|am| {
        let found = Found {
            machine: join.machine_of(&am),
            agent: agent(&am),
            agent_machine: Some(am),
            ..Found::default()
        };
        demand_node(pool, &found)
    });
    let machines: Vec<MachineNode> = children.chain(demands.flatten()).collect();
    PoolNode {
        name: format!("{own}/{}", pool.name_any()),
        ready: ready.map(|c| c.status == "True"),
        reason: ready.map(|c| c.reason.clone()).unwrap_or_default(),
        message: ready.map(|c| c.message.clone()).unwrap_or_default(),
        ..of_machines(machines)
    }
}

/// `over`: why a part of its namespace is unknown.
fn gone_pool(key: &ObjectKey, over: Option<String>, machines: &[&Found]) -> PoolNode {
    let machines = machines.iter().filter_map(|found| child_node(found));
    let (ready, reason, message) = match over {
        Some(why) => (None, Reason::NamespaceTooLarge, why),
        None => (
            Some(false),
            Reason::PoolNotFound,
            "this VsphereAgentPool does not exist".to_owned(),
        ),
    };
    PoolNode {
        name: key.to_string(),
        ready,
        reason: reason.to_string(),
        message,
        ..of_machines(machines.collect())
    }
}

/// What the machines of a pool say together.
fn of_machines(mut machines: Vec<MachineNode>) -> PoolNode {
    let by_name = |m: &MachineNode| (m.state, m.name.clone());
    machines.sort_by_cached_key(by_name);
    let took: Vec<i64> = machines.iter().filter_map(|m| m.took_seconds).collect();
    PoolNode {
        name: String::new(),
        paused: None,
        ready: None,
        reason: String::new(),
        message: String::new(),
        histogram: histogram(&took),
        usual_seconds: rows::median(took),
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

fn child_node(found: &Found) -> Option<MachineNode> {
    let child = found.child.as_ref()?;
    let place = child.vm().and_then(|vm| vm.placement.as_ref());
    let timeline = rows::timeline(&child.object);
    let at = |entry: &Milestone| entry.at.as_ref().map(|t| t.0);
    let created = child.object.metadata.creation_timestamp.as_ref();
    let judged = state::of_child(found, child);
    Some(MachineNode {
        kind: Kind::VsphereAgent,
        namespace: child.key.namespace.clone(),
        name: child.key.name.clone(),
        state: judged.state,
        reason: judged.reason,
        message: judged.message,
        since: timeline.first().and_then(at).or(created.map(|t| t.0)),
        step: timeline.last().map(|e| (e.event.clone(), at(e))),
        took_seconds: rows::took(timeline),
        host: place.and_then(|p| p.host.clone()),
        datastore: place.and_then(|p| p.datastore.clone()),
        chain: existing(found),
    })
}

/// An AgentMachine without a VsphereAgent: it waits, or another host serves it.
fn demand_node(pool: &VsphereAgentPool, found: &Found) -> Option<MachineNode> {
    let am = found.agent_machine.as_deref()?;
    let judged = state::of_demand(pool, found, am);
    Some(MachineNode {
        kind: Kind::AgentMachine,
        namespace: am.namespace().unwrap_or_default(),
        name: am.name_any(),
        state: judged.state,
        reason: judged.reason,
        message: judged.message,
        since: am.metadata.creation_timestamp.as_ref().map(|t| t.0),
        step: None,
        took_seconds: None,
        host: None,
        datastore: None,
        chain: existing(found),
    })
}
