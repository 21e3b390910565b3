//! Decides which actors look again after a change. Pure; a wake carries no data.

use std::{collections::BTreeSet, fmt, sync::Arc};

use agent_forge_crds::{
    VsphereAgent, VsphereAgentPool,
    external::{agent::Agent, agent_machine::AgentMachine},
    names::AGENT_MACHINE_LABEL,
};
use kube::ResourceExt;

use crate::{
    domain::{
        belonging, goal,
        index_keys::{self, IndexKeys},
        names::ObjectKey,
        selector::Labels,
        tally::Tally,
        upstream::PausableKind,
    },
    iso::msg::IsoKey,
    ports::cluster::View,
    runtime::holds,
};

/// An actor.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ActorKey {
    /// Session actor.
    Sessions,
    /// Placement actor.
    Placement,
    /// Orphan scan.
    Orphans,
    /// News of vCenters.
    News,
    /// Installer for BYOH.
    Byoh,
    /// ISO cache of a datastore.
    IsoCache(IsoKey),
    /// Pool actor.
    Pool(ObjectKey),
    /// VM actor.
    Vm(ObjectKey),
}

impl ActorKey {
    /// Every kind that [`ActorKey::kind`] names.
    pub const KINDS: [&str; 8] = [
        "sessions",
        "placement",
        "orphans",
        "news",
        "byoh",
        "iso_cache",
        "pool",
        "vm",
    ];

    /// Kind, for metrics and descriptions.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Sessions => "sessions",
            Self::Placement => "placement",
            Self::Orphans => "orphans",
            Self::News => "news",
            Self::Byoh => "byoh",
            Self::IsoCache(_) => "iso_cache",
            Self::Pool(_) => "pool",
            Self::Vm(_) => "vm",
        }
    }

    /// The object that it is about, where there is one.
    #[must_use]
    pub const fn object(&self) -> Option<&ObjectKey> {
        match self {
            Self::Pool(key) | Self::Vm(key) => Some(key),
            Self::Sessions
            | Self::Placement
            | Self::Orphans
            | Self::News
            | Self::Byoh
            | Self::IsoCache(_) => None,
        }
    }
}

impl fmt::Display for ActorKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sessions | Self::Placement | Self::Orphans | Self::News | Self::Byoh => {
                f.write_str(self.kind())
            }
            Self::IsoCache(key) => write!(f, "iso_cache/{key}"),
            Self::Pool(key) => write!(f, "pool/{key}"),
            Self::Vm(key) => write!(f, "vm/{key}"),
        }
    }
}

/// The parts of an Agent's change that decide which objects it may concern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentNews {
    /// Which.
    pub key: ObjectKey,
    /// Its index keys before and now. Those of a free Agent are only here if they changed.
    pub keys: IndexKeys,
    /// Labels that it had or has, if they change which pools count it.
    pub counted: Vec<Labels>,
}

impl AgentNews {
    /// The change of an Agent from `old` to `new`.
    #[must_use]
    pub fn between(key: ObjectKey, old: Option<&Agent>, new: Option<&Agent>) -> Self {
        let both = [old, new];
        let states = || both.into_iter().flatten();
        let mut said: IndexKeys = states().flat_map(index_keys::identities).collect();
        let [was, is] = both.map(|a| a.map(index_keys::offers).unwrap_or_default());
        if was != is {
            said.extend(was);
            said.extend(is);
        }
        let counts = |a: &Agent| (Tally::of(a, &Labels::new()), a.labels().clone());
        let counted = if old.map(counts) == new.map(counts) {
            Vec::new()
        } else {
            states().map(|a| a.labels().clone()).collect()
        };
        Self {
            key,
            keys: said,
            counted,
        }
    }

    /// Whether the count of a pool for Agents with these labels may have changed.
    fn counts_for(&self, wanted: &Labels) -> bool {
        let has = |labels: &Labels| wanted.iter().all(|(k, v)| labels.get(k) == Some(v));
        self.counted.iter().any(has)
    }
}

/// What a watch saw. `deep`: more than counts and rows of the status changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A pool.
    Pool {
        /// Which.
        key: ObjectKey,
        /// Spec, metadata or `status.iso` changed: its VMs look again as well.
        deep: bool,
    },
    /// A VsphereAgent.
    ManagedVm {
        /// Which.
        key: ObjectKey,
        /// The pools that made it or use it, or did so before.
        pools: BTreeSet<ObjectKey>,
        /// Spec or metadata changed. The VM actor itself writes the status, so it knows that.
        deep: bool,
    },
    /// An AgentMachine or a Machine.
    Machine(ObjectKey),
    /// An Agent.
    Agent(AgentNews),
    /// An InfraEnv.
    InfraEnv(ObjectKey),
    /// A Cluster, a NodePool or a HostedCluster is paused, or no more.
    Pausable(PausableKind, ObjectKey),
    /// A config of the installer for BYOH, a ByoMachine or a ByoHost.
    Byoh,
    /// What the Namespace of that name allows pools of other namespaces.
    Namespace(String),
}

/// Which actors look again, and why.
#[must_use]
pub fn route(change: &Change, view: &dyn View) -> Vec<(ActorKey, &'static str)> {
    let mut out = Vec::new();
    match change {
        Change::Pool { key, deep } => {
            out.push((ActorKey::Pool(key.clone()), "pool"));
            if *deep {
                out.extend(shared(view, "pool", |pool| pool == key));
                out.extend(
                    view.children(key)
                        .iter()
                        .map(|c| (ActorKey::Vm(ObjectKey::of(c.as_ref())), "pool")),
                );
                // A pool that appeared, disappeared or moved may end or begin a conflict with its neighbours.
                out.extend(
                    view.pools()
                        .iter()
                        .map(|p| ObjectKey::of(p.as_ref()))
                        .filter(|k| k != key)
                        .map(|k| (ActorKey::Pool(k), "neighbour")),
                );
            }
        }
        Change::ManagedVm { key, pools, deep } => {
            if *deep {
                out.push((ActorKey::Vm(key.clone()), "vsphereagent"));
            }
            let pools = pools.iter().cloned().map(ActorKey::Pool);
            out.extend(pools.map(|pool| (pool, "vsphereagent")));
            // It may begin to run, or end.
            out.push((ActorKey::News, "vsphereagent"));
        }
        Change::Machine(key) => {
            let served = |p: &&Arc<VsphereAgentPool>| p.control_plane() == key.namespace;
            for pool in view.pools().iter().filter(served) {
                let pool = ObjectKey::of(pool.as_ref());
                let mut children = view.children(&pool);
                children.retain(|c| is_for(c, &key.name));
                let vms = children.iter().map(|c| ObjectKey::of(c.as_ref()));
                out.extend(vms.map(|vm| (ActorKey::Vm(vm), "machine")));
                out.push((ActorKey::Pool(pool), "machine"));
            }
        }
        Change::Agent(news) => out.extend(concerned_by(news, view)),
        Change::InfraEnv(key) => out.extend(of_infra_env(key, view)),
        Change::Pausable(kind, key) => out.extend(of_pausable(*kind, key, view)),
        Change::Byoh => out.push((ActorKey::Byoh, "byoh")),
        Change::Namespace(name) => {
            for pool in view.pools().iter().filter(|p| is_near(view, p, name)) {
                out.extend(with_vms(view, pool, "namespace"));
            }
            out.extend(shared(view, "namespace", |pool| pool.namespace == *name));
        }
    }
    out
}

/// The pools that such an object pauses, with their VMs. A Cluster may pause configs of the installer too.
fn of_pausable(
    kind: PausableKind,
    key: &ObjectKey,
    view: &dyn View,
) -> Vec<(ActorKey, &'static str)> {
    let pools = view.pools();
    let covered = pools.iter().filter(|p| holds::covers(kind, key, p));
    let pools = covered.flat_map(|pool| with_vms(view, pool, "pause"));
    let installer = (kind == PausableKind::Cluster).then_some((ActorKey::Byoh, "pause"));
    pools.chain(installer).collect()
}

/// The pools that use that InfraEnv, and their VMs that are not made: it may block their creation, or stop blocking it.
fn of_infra_env(key: &ObjectKey, view: &dyn View) -> Vec<(ActorKey, &'static str)> {
    let made = |c: &VsphereAgent| {
        let status = c.status.as_ref();
        status.is_some_and(|s| s.vm.as_ref().is_some_and(|vm| vm.moref.is_some()))
    };
    let mut pools = view.pools();
    pools.retain(|p| belonging::infra_envs(p).contains(key));
    let mut out = Vec::new();
    for pool in pools {
        let pool = ObjectKey::of(pool.as_ref());
        let children = view.children(&pool);
        let unmade = children.iter().filter(|c| !made(c));
        out.extend(unmade.map(|c| (ActorKey::Vm(ObjectKey::of(c.as_ref())), "infraenv")));
        out.push((ActorKey::Pool(pool), "infraenv"));
    }
    out
}

/// It is for the Machine of that name.
fn is_for(child: &VsphereAgent, machine: &str) -> bool {
    let labelled = child.labels().get(AGENT_MACHINE_LABEL).map(String::as_str);
    labelled == Some(machine) || goal::of(child).machine.is_some_and(|m| m.name == machine)
}

/// The hosts that pools of two namespaces share, and these pools, if `concerns` one of the two.
fn shared(
    view: &dyn View,
    why: &'static str,
    concerns: impl Fn(&ObjectKey) -> bool,
) -> Vec<(ActorKey, &'static str)> {
    let mut out = Vec::new();
    for child in view.all_children() {
        let both = [goal::maker(&child), goal::user(&child)];
        if both[0] != both[1] && both.iter().any(&concerns) {
            out.push((ActorKey::Vm(ObjectKey::of(child.as_ref())), why));
            out.extend(both.map(|pool| (ActorKey::Pool(pool), why)));
        }
    }
    out
}

/// A pool with all its VMs.
fn with_vms(
    view: &dyn View,
    pool: &VsphereAgentPool,
    why: &'static str,
) -> Vec<(ActorKey, &'static str)> {
    let key = ObjectKey::of(pool);
    let children = view.children(&key).into_iter();
    let vms = children.map(|c| (ActorKey::Vm(ObjectKey::of(c.as_ref())), why));
    vms.chain([(ActorKey::Pool(key.clone()), why)]).collect()
}

/// The VMs that the Agent names or that record it, and their pools. Also the pools that serve an AgentMachine with a
/// relation to the Agent, or that count the Agent.
fn concerned_by(news: &AgentNews, view: &dyn View) -> Vec<(ActorKey, &'static str)> {
    let namespace = &news.key.namespace;
    let (mut vms, mut near) = (Vec::new(), BTreeSet::new());
    for child in view.children_asking(&news.keys) {
        let key = ObjectKey::of(child.as_ref());
        let pool = goal::user(&child);
        vms.push((pool.clone(), ActorKey::Vm(key)));
        near.insert(pool);
    }
    let machines = view.agent_machines_asking(&news.keys);
    let mut out = Vec::new();
    for pool in view.pools() {
        let key = ObjectKey::of(pool.as_ref());
        let serves = || machines.iter().any(|am| belonging::belongs(&pool, am));
        let counts = || news.counts_for(&pool.spec.agent.labels);
        let is_near = near.contains(&key) || serves() || counts();
        if !is_near || !has_agents_in(view, &pool, &key, namespace) {
            continue;
        }
        let own = vms.iter().filter(|(of, _)| *of == key);
        out.extend(own.map(|(_, vm)| (vm.clone(), "agent")));
        out.push((ActorKey::Pool(key), "agent"));
    }
    out
}

/// Whether Agents of the pool's VMs may be in that namespace: the one of its InfraEnv, or of the InfraEnv that a VM boots
/// from, whatever the spec has now.
fn has_agents_in(
    view: &dyn View,
    pool: &VsphereAgentPool,
    key: &ObjectKey,
    namespace: &str,
) -> bool {
    let boots_from_there = |child: &Arc<VsphereAgent>| {
        let vm = child.status.as_ref().and_then(|s| s.vm.as_ref());
        let source = vm.and_then(|vm| vm.infra_env_ref.as_ref());
        source.is_some_and(|s| s.namespace.as_deref() == Some(namespace))
    };
    let homes = belonging::infra_envs(pool);
    homes.iter().any(|home| home.namespace == namespace)
        || view.children(key).iter().any(boots_from_there)
}

/// Whether the pool is in that namespace, or depends on objects there.
fn is_near(view: &dyn View, pool: &VsphereAgentPool, name: &str) -> bool {
    let control_plane = pool.control_plane();
    let homes = belonging::infra_envs(pool);
    let of_node_pool = |am: &Arc<AgentMachine>| am.node_pool().is_some_and(|(ns, _)| ns == name);
    pool.metadata.namespace.as_deref() == Some(name)
        || control_plane == name
        || homes.iter().any(|home| home.namespace == name)
        || view.agent_machines(control_plane).iter().any(of_node_pool)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ObjectReference;

    use super::*;
    use crate::{
        testing::{POOL, agent_on, child_with_vm, pool, with},
        vm::testing::hub::Hub,
    };

    /// The pool's spec now names another InfraEnv.
    #[test]
    fn an_agent_where_a_vm_boots_from_is_told_to_that_vm() {
        let child = with(child_with_vm("a"), |c| {
            let vm = c.status.as_mut().and_then(|s| s.vm.as_mut());
            vm.expect("recorded").infra_env_ref = Some(ObjectReference {
                namespace: Some("old-home".to_owned()),
                name: Some("infra".to_owned()),
                ..ObjectReference::default()
            });
        });
        let agent = with(agent_on(&child), |a| {
            a.metadata.namespace = Some("old-home".to_owned());
        });
        let news = AgentNews::between(ObjectKey::of(&agent), None, Some(&agent));
        let change = Change::Agent(news);
        let hub = Hub::default();
        hub.with(|o| {
            o.pool = Some(pool(POOL));
            o.child = Some(child);
            o.agents = vec![agent];
        });
        let told: Vec<ActorKey> = route(&change, &hub)
            .into_iter()
            .map(|(key, _)| key)
            .collect();
        let vm = told.iter().any(|key| matches!(key, ActorKey::Vm(_)));
        let pool = told.iter().any(|key| matches!(key, ActorKey::Pool(_)));
        assert!(vm && pool, "{told:?}");
    }
}
