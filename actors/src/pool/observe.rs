//! Observes the cluster.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use agent_forge_crds::{
    external::{agent::Agent, agent_machine::AgentMachine},
    pool::{MAX_REFUSALS, VsphereAgentPool},
};
use kube::ResourceExt;

use super::{
    memory::Memory,
    observed::{Group, Home, Observed, Pending},
    plan::secrets,
    tables::Index,
};
use crate::{
    demand::lending::lenders,
    domain::{
        belonging, goal,
        identity::{AgentMatch, agent_runs_on},
        managed_vm::ManagedVm,
        names::ObjectKey,
        sizes::Sizes,
        tally::Tally,
        upstream::MachineFacts,
    },
    ports::{clock::Clock, cluster::View},
    runtime::holds,
    world::{
        agents_home,
        boundary::Grants,
        foreign::{self, ForeignHosts},
        half_moved,
    },
};

/// Observes the cluster: all facts of a pass, from the cache, the memory and the clocks. `None`: the pool is gone.
///
/// The memory forgets what the cache shows by now.
#[must_use]
pub fn observe(
    view: &dyn View,
    clock: &dyn Clock,
    key: &ObjectKey,
    secret_namespaces: &[String],
    memory: &mut Memory,
) -> Option<Observed> {
    let pool = memory.status.begin(view, &view.pool(key)?);
    let now = clock.monotonic();
    let namespace = pool.control_plane();
    let pools = view.pools();
    let agent_machines = view.agent_machines(namespace);
    let elsewhere = elsewhere(view, &pools, namespace);
    let all = agent_machines.iter().chain(&elsewhere).map(AsRef::as_ref);
    let grants = Grants::read(view, pools.iter().map(AsRef::as_ref), all);
    let ambiguous_names = ambiguous(&grants, &pools, &agent_machines, &elsewhere);
    let children = view.children(key).into_iter().map(ManagedVm::read);
    let children: Vec<ManagedVm> = children.collect();
    let made_by_others = made_by_others(view, &grants, key, &agent_machines);
    let (infra_env_key, infra_env) = agents_home::find(view, &grants, &pool);
    let foreign = foreign::observe(view, &grants, &pools, &pool, &infra_env_key);
    let served = (agent_machines.as_slice(), &infra_env_key, &foreign);
    let agents = agents(view, &grants, (&pool, &children), served);
    let matching = matching(view, &grants, (&pool, &children), &agents);
    memory.note_waiting(&agent_machines, now);
    let mut observed = Observed {
        recorded_homes: recorded_homes(view, &pool, &children),
        sizes: Sizes::of(&pool),
        other_pools: other_pools(&pools, &pool, key),
        machines: machines(view, namespace),
        choosers: view.all_agent_machines(),
        agents,
        matching,
        foreign,
        grants,
        children,
        made_by_others,
        infra_env_key,
        infra_env,
        ambiguous_names,
        waiting_since: memory.waiting_since.clone(),
        spare_since: memory.spare_since.clone(),
        pending: Pending::default(),
        secret_namespaces: secret_namespaces.to_vec(),
        secrets_due: secrets::is_check_due(memory.secrets_checked, now),
        now,
        wall: clock.wall(),
        holds: holds::of_pool(view, key),
        was_stopped: memory.stopped,
        group: Group::default(),
        index: Index::default(),
        agent_machines,
        key: key.clone(),
        pool,
    };
    observed.pending = memory.pending.recall(&observed, |key| view.child(key));
    see_group(view, &mut observed);
    Some(observed)
}

/// The Agents that a decision of the pool may use. `home`: where its InfraEnv is.
fn agents(
    view: &dyn View,
    grants: &Grants,
    (pool, children): (&VsphereAgentPool, &[ManagedVm]),
    (agent_machines, home, foreign): (&[Arc<AgentMachine>], &ObjectKey, &ForeignHosts),
) -> Vec<Arc<Agent>> {
    let own = agent_machines.iter().map(AsRef::as_ref);
    let own: Vec<_> = own.filter(|am| belonging::belongs(pool, am)).collect();
    let is_taken = |agent: &Agent| foreign.counts(agent);
    let mut agents = agents_home::of_pool(view, pool, children, &own, (&home.namespace, &is_taken));
    agents.retain(|agent| is_shown(agent, grants, pool, children));
    agents
}

/// Those that serve the same control plane. A pool without a NodePool serves none.
fn other_pools(
    pools: &[Arc<VsphereAgentPool>],
    own: &VsphereAgentPool,
    key: &ObjectKey,
) -> Vec<Arc<VsphereAgentPool>> {
    let mut all = pools.to_vec();
    all.retain(|p| {
        ObjectKey::of(p.as_ref()) != *key
            && p.has_node_pool()
            && own.has_node_pool()
            && p.control_plane() == own.control_plane()
            && p.metadata.deletion_timestamp.is_none()
    });
    all
}

fn machines(view: &dyn View, namespace: &str) -> Vec<MachineFacts> {
    let all = view.machines(namespace);
    all.iter().map(|m| m.as_ref().clone()).collect()
}

/// The AgentMachines of all other control planes that pools serve.
fn elsewhere(
    view: &dyn View,
    pools: &[Arc<VsphereAgentPool>],
    own: &str,
) -> Vec<Arc<AgentMachine>> {
    let namespaces = pools.iter().map(|p| p.control_plane());
    let namespaces: BTreeSet<&str> = namespaces.filter(|n| *n != own).collect();
    let all = namespaces.into_iter();
    all.flat_map(|n| view.agent_machines(n)).collect()
}

/// Adds what the pool sees of the other pools of its group, and of their hosts.
fn see_group(view: &dyn View, s: &mut Observed) {
    let asks = s.agent_machines.iter().any(|am| {
        let unserved = am.agent_ref().is_none() && s.child_for(am).is_none();
        unserved && !am.is_deleting() && belonging::belongs(&s.pool, am)
    });
    let whose = (s.pool.as_ref(), asks);
    let lenders = lenders(view, &s.grants, whose, &s.secret_namespaces, s.wall);
    let lasting = lenders.iter().filter_map(|lender| {
        let refusal = lender.refusal.as_ref().filter(|r| r.is_lasting())?;
        Some(format!("{}: {refusal}", lender.key))
    });
    s.group.refused_by = lasting.take(MAX_REFUSALS).collect();
    s.group.host_namespaces = lenders.iter().map(|l| l.key.namespace.clone()).collect();
    s.group.lenders = lenders;
    let own: BTreeSet<&String> = s.children.iter().map(|c| &c.uid).collect();
    for object in view.all_children() {
        let (user, maker) = (goal::user(&object), goal::maker(&object));
        if user == s.key {
            s.group.host_namespaces.insert(maker.namespace.clone());
            let hidden = object
                .metadata
                .uid
                .as_ref()
                .is_some_and(|uid| !own.contains(uid));
            s.group
                .refused
                .extend(hidden.then(|| ManagedVm::read(object)));
            continue;
        }
        if maker.namespace != s.key.namespace {
            continue;
        }
        let vm = object.status.as_ref().and_then(|st| st.vm.as_ref());
        // A release before 1.0 left VMs that have another name than their VsphereAgent.
        s.group.taken_names.extend(vm.map(|vm| vm.name.clone()));
        s.group.taken_names.insert(object.name_any());
        if maker == s.key {
            s.group.shared.push(ManagedVm::read(object));
        }
    }
    s.group.host_namespaces.remove(&s.key.namespace);
    s.group.host_namespaces.retain(|home| view.serves(home));
    let own = s.children.iter();
    let taken = own.filter_map(|c| Some((c.uid.clone(), half_moved::taker(view, c)?.key)));
    s.group.half_moved = taken.collect();
}

/// VsphereAgents of other pools that are for one of these AgentMachines. A pool that the AgentMachine's namespaces do
/// not admit does not count: otherwise a foreign tenant could keep a pool from serving.
fn made_by_others(
    view: &dyn View,
    grants: &Grants,
    own: &ObjectKey,
    agent_machines: &[Arc<AgentMachine>],
) -> BTreeMap<String, ObjectKey> {
    let by_uid = agent_machines.iter();
    let by_uid = by_uid.filter_map(|am| Some((am.metadata.uid.as_deref()?, am)));
    let by_uid: HashMap<&str, _> = by_uid.collect();
    let mut found = BTreeMap::new();
    for object in view.all_children() {
        let key = ObjectKey::of(object.as_ref());
        let pool = goal::user(&object);
        let refused = goal::refusing(&object, |name| view.namespace_grant(name)).is_some();
        if pool == *own || refused {
            continue;
        }
        let Some(uid) = goal::wanted_by(&object) else {
            continue;
        };
        let Some(am) = by_uid.get(uid) else {
            continue;
        };
        let admitted = || {
            let pool = view.pool(&pool);
            pool.is_some_and(|pool| grants.lacking(&pool, am).is_none())
        };
        if key.namespace == own.namespace || admitted() {
            found.insert(uid.to_owned(), key);
        }
    }
    found
}

/// Names in `here` that an AgentMachine in another namespace has as well, which another pool may serve.
fn ambiguous(
    grants: &Grants,
    pools: &[Arc<VsphereAgentPool>],
    here: &[Arc<AgentMachine>],
    elsewhere: &[Arc<AgentMachine>],
) -> BTreeSet<String> {
    let names: BTreeSet<String> = here.iter().map(|am| am.name_any()).collect();
    let is_anybodys = |am: &AgentMachine| {
        let mut there = pools
            .iter()
            .filter(|p| Some(p.control_plane()) == am.metadata.namespace.as_deref());
        there.any(|pool| grants.lacking(pool, am).is_none())
    };
    elsewhere
        .iter()
        .filter(|am| names.contains(&am.name_any()) && is_anybodys(am))
        .map(|am| am.name_any())
        .collect()
}

/// See [`Observed::matching`]. `shown`: all Agents that count in namespaces that do not admit the pool.
fn matching(
    view: &dyn View,
    grants: &Grants,
    (pool, children): (&VsphereAgentPool, &[ManagedVm]),
    shown: &[Arc<Agent>],
) -> Tally {
    let labels = &pool.spec.agent.labels;
    let of = |namespace: &String| {
        if grants.admit(namespace, pool) {
            return view.count_agents(namespace, labels);
        }
        let there = |a: &&Arc<Agent>| a.metadata.namespace.as_ref() == Some(namespace);
        let there = shown.iter().filter(there);
        there.map(|agent| Tally::of(agent, labels)).sum()
    };
    let namespaces = agents_home::namespaces(Some(pool), children);
    namespaces.iter().map(of).sum()
}

/// A pool does not see Agents in a namespace that does not admit it, except those of its own VMs: they have to be
/// removed.
fn is_shown(
    agent: &Agent,
    grants: &Grants,
    pool: &VsphereAgentPool,
    children: &[ManagedVm],
) -> bool {
    let namespace = agent.metadata.namespace.as_deref().unwrap_or_default();
    let may_run_on = |child: &ManagedVm| {
        let vm = child.identity.as_ref();
        vm.is_some_and(|vm| agent_runs_on(agent, vm) != AgentMatch::Other)
    };
    grants.admit(namespace, pool) || children.iter().any(may_run_on)
}

/// See [`Observed::recorded_homes`].
fn recorded_homes(
    view: &dyn View,
    pool: &VsphereAgentPool,
    children: &[ManagedVm],
) -> BTreeMap<String, Home> {
    let homes: BTreeSet<&str> = children.iter().map(|c| c.home(pool)).collect();
    let others = homes
        .into_iter()
        .filter(|home| *home != pool.control_plane() && view.serves(home));
    let read = |home: &str| Home {
        agent_machines: view.agent_machines(home),
        machines: view.machines(home),
    };
    others.map(|home| (home.to_owned(), read(home))).collect()
}
