//! All facts for one decision about a pool. They are observed once per pass, and never changed afterwards.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use agent_forge_crds::{
    external::{agent::Agent, agent_machine::AgentMachine, infra_env::InfraEnv},
    names::AGENT_MACHINE_UID_ANNOTATION,
    pool::{MAX_REFUSALS, VsphereAgentPool},
};
use jiff::Timestamp;
use kube::ResourceExt;

use super::{Memory, index::Index, lending::Lent, provision::Pending, secret_finalizers};
use crate::{
    demand::lending::{self, Lender},
    domain::{
        belonging,
        holds::Holds,
        identity::{AgentMatch, MacAddress, agent_runs_on},
        managed_vm::ManagedVm,
        names::ObjectKey,
        tally::Tally,
        upstream::MachineFacts,
    },
    iso::{
        infra_env_guards::{self, Guard},
        of_pool::NoSource,
    },
    lifecycle::Policy,
    ports::{clock::Clock, cluster::View, effect::Hold},
    runtime::holds,
    world::{agents_home, boundary::Grants},
};

/// What a control plane namespace holds.
#[derive(Clone, Debug, Default)]
pub struct Home {
    /// Its AgentMachines.
    pub agent_machines: Vec<Arc<AgentMachine>>,
    /// Its Machines.
    pub machines: Vec<Arc<MachineFacts>>,
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
        .filter(|home| *home != pool.spec.control_plane_namespace && view.serves(home));
    let read = |home: &str| Home {
        agent_machines: view.agent_machines(home),
        machines: view.machines(home),
    };
    others.map(|home| (home.to_owned(), read(home))).collect()
}

/// The facts of one pool at one moment.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The pool.
    pub pool: Arc<VsphereAgentPool>,
    /// Its key.
    pub key: ObjectKey,
    /// Other pools of the same control plane namespace, not being deleted.
    pub other_pools: Vec<Arc<VsphereAgentPool>>,
    /// AgentMachines of the control plane namespace.
    pub agent_machines: Vec<Arc<AgentMachine>>,
    /// AgentMachines of all namespaces: each may choose a freed Agent.
    pub choosers: Vec<Arc<AgentMachine>>,
    /// Machines of the control plane namespace.
    pub machines: Vec<MachineFacts>,
    /// AgentMachines and Machines of other namespaces, if VsphereAgents of the pool have theirs there on record. Only
    /// namespaces that the operator serves.
    pub recorded_homes: BTreeMap<String, Home>,
    /// The pool's VsphereAgents.
    pub children: Vec<ManagedVm>,
    /// VsphereAgents of other pools, by the uid of the AgentMachine that they are for.
    pub made_by_others: BTreeMap<String, ObjectKey>,
    /// Agents that a decision may use ([`agents_home::of_pool`]). In namespaces that do not admit the pool, only those
    /// that may run on a recorded VM.
    pub agents: Vec<Arc<Agent>>,
    /// How many Agents carry the pool's labels. In namespaces that do not admit the pool, only those that may run on a
    /// recorded VM count.
    pub matching: Tally,
    /// The key of the InfraEnv, whether or not it exists.
    pub infra_env_key: ObjectKey,
    /// The InfraEnv.
    pub infra_env: Option<Arc<InfraEnv>>,
    /// Which pools are admitted by the namespaces that the pool and its neighbours name.
    pub grants: Grants,
    /// AgentMachine names that exist in more than one control plane namespace. For them the pin must contain the uid.
    pub ambiguous_names: BTreeSet<String>,
    /// Since when (monotonic) each AgentMachine was seen waiting, by uid.
    pub waiting_since: BTreeMap<String, Duration>,
    /// Since when (monotonic) each VsphereAgent's VM is offered to another AgentMachine, by uid.
    pub spare_since: BTreeMap<String, Duration>,
    /// uids of AgentMachines that were pinned, while the cache does not show the pin yet.
    pub pinned: BTreeSet<String>,
    /// uids of AgentMachines whose VsphereAgent was created, while the cache does not show it yet.
    pub made: BTreeSet<String>,
    /// As `made`, but longer ago: the same VsphereAgent may be created once more, and no other host is given.
    pub begun: BTreeSet<String>,
    /// uids of AgentMachines that got a VsphereAgent which was there, and the uid of that, while the cache does not show it
    /// yet.
    pub given: BTreeMap<String, String>,
    /// Names of VsphereAgents that were created for the buffer, while the cache does not show them yet.
    pub made_for_buffer: BTreeSet<String>,
    /// The only other namespaces from which credentials may be read. Empty: any.
    pub secret_namespaces: Vec<String>,
    /// The held Secrets are to be checked again.
    pub secrets_due: bool,
    /// Monotonic now.
    pub now: Duration,
    /// Wall clock.
    pub wall: Timestamp,
    /// What people have paused or forbidden for the pool.
    pub holds: Holds,
    /// Something stopped all work on the pool in the pass before.
    pub was_stopped: bool,
    /// The other pools of its group. While one of its AgentMachines has no host, with the hosts of their buffers.
    pub lenders: Vec<Lender>,
    /// The other pools of its group that lend it nothing as they are set up, each with the reason.
    pub refused_by: Vec<String>,
    /// Its own hosts that change their pool.
    pub lent: Lent,
    /// Names of VMs that changed their pool. They keep the name, so no other VM gets it.
    pub moved_vms: BTreeSet<String>,
    /// uids of VsphereAgents that took over a VM, and whose lender's record is gone.
    pub settled: BTreeSet<String>,
    /// Which of these objects belong together.
    pub index: Index,
}

impl Observed {
    /// The MAC addresses of its VMs.
    #[must_use]
    pub fn macs(&self) -> BTreeSet<MacAddress> {
        let known = self.children.iter().filter_map(|c| c.identity.as_ref());
        known
            .flat_map(|identity| identity.macs.iter().copied())
            .collect()
    }

    /// Why there is no InfraEnv to fetch from, if no namespace where it may be admits the pool.
    #[must_use]
    pub fn refused_source(&self) -> Option<NoSource> {
        self.grants.lacking_home(&self.pool)?;
        let refused = self.grants.refused_homes(&self.pool);
        Some(NoSource::NotAllowed(refused))
    }

    /// The pool may have lost its InfraEnv because a grant was removed.
    #[must_use]
    pub fn may_have_lost_source(&self) -> bool {
        self.infra_env.is_none() && !self.grants.refused_homes(&self.pool).is_empty()
    }

    /// Adds the writes that the cache does not show yet.
    pub fn see_pending(&mut self, pending: Pending) {
        self.pinned = pending.pinned;
        self.made = pending.made;
        self.begun = pending.begun;
        self.given = pending.given;
        self.made_for_buffer = pending.made_for_buffer;
    }

    /// The AgentMachine of that uid got a host that the cache does not show yet.
    #[must_use]
    pub fn was_served(&self, uid: &str) -> bool {
        self.made.contains(uid) || self.given.contains_key(uid)
    }

    /// Namespaces with AgentMachines that the pool is to serve, and that do not admit the pool. Also the control
    /// plane's namespace if the operator does not serve it, because it then sees no AgentMachine there.
    #[must_use]
    pub fn refusing(&self) -> Vec<String> {
        let all = self.agent_machines.iter();
        let refused: BTreeSet<String> = all
            .filter(|am| belonging::belongs(&self.pool, am) && !self.grants.shows(&self.pool, am))
            .filter_map(|am| self.grants.lacking(&self.pool, am))
            .chain(self.grants.unserved_control_plane(&self.pool))
            .collect();
        refused.into_iter().collect()
    }

    /// How the VM of `child` is to end.
    #[must_use]
    pub fn policy_of(&self, child: &ManagedVm) -> Policy {
        Policy::of(child.skips_delete(), Some(self.pool.spec.cleanup_policy()))
    }

    /// What prevents new VMs from the InfraEnv.
    #[must_use]
    pub fn guard(&self) -> Option<Guard> {
        let infra_env = self.infra_env.as_deref()?;
        let shown = |am: &AgentMachine| self.grants.shows(&self.pool, am);
        infra_env_guards::guard(&self.pool, infra_env, &self.choosers, &shown)
    }

    /// What stops all work on the pool, if something does: a dry run, or a pause.
    #[must_use]
    pub fn stop(&self) -> Option<Hold> {
        holds::stop(&self.holds, self.wall)
    }

    /// The Agents in the InfraEnv's namespace: the provider chooses from these.
    pub fn home_agents(&self) -> impl Iterator<Item = &Arc<Agent>> {
        self.agents
            .iter()
            .filter(|a| a.namespace().as_ref() == Some(&self.infra_env_key.namespace))
    }
}

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
    let namespace = &pool.spec.control_plane_namespace;
    let pools = view.pools();
    let is_other = |p: &&Arc<VsphereAgentPool>| {
        ObjectKey::of(p.as_ref()) != *key
            && p.spec.control_plane_namespace == *namespace
            && p.metadata.deletion_timestamp.is_none()
    };
    let agent_machines = view.agent_machines(namespace);
    let elsewhere: BTreeSet<&String> = pools
        .iter()
        .map(|p| &p.spec.control_plane_namespace)
        .filter(|n| *n != namespace)
        .collect();
    let elsewhere: Vec<_> = elsewhere
        .into_iter()
        .flat_map(|n| view.agent_machines(n))
        .collect();
    let all = agent_machines.iter().chain(&elsewhere).map(AsRef::as_ref);
    let grants = Grants::read(view, pools.iter().map(AsRef::as_ref), all);
    let ambiguous_names = ambiguous(&grants, &pools, &agent_machines, &elsewhere);
    let children: Vec<ManagedVm> = view
        .children(key)
        .into_iter()
        .map(ManagedVm::read)
        .collect();
    let made_by_others = made_by_others(view, &grants, key, &agent_machines);
    let (infra_env_key, infra_env) = agents_home::find(view, &grants, &pool);
    let own = agent_machines.iter().map(AsRef::as_ref);
    let own: Vec<_> = own.filter(|am| belonging::belongs(&pool, am)).collect();
    let home = &infra_env_key.namespace;
    let mut agents = agents_home::of_pool(view, &pool, &children, &own, home);
    agents.retain(|agent| is_shown(agent, &grants, &pool, &children));
    let matching = matching(view, &grants, (&pool, &children), &agents);
    memory.note_waiting(&agent_machines, now);
    let mut observed = Observed {
        recorded_homes: recorded_homes(view, &pool, &children),
        other_pools: pools.iter().filter(is_other).cloned().collect(),
        machines: view
            .machines(namespace)
            .iter()
            .map(|m| m.as_ref().clone())
            .collect(),
        choosers: view.all_agent_machines(),
        agents,
        matching,
        grants,
        children,
        made_by_others,
        infra_env_key,
        infra_env,
        ambiguous_names,
        waiting_since: memory.waiting_since.clone(),
        spare_since: memory.spare_since.clone(),
        pinned: BTreeSet::new(),
        made: BTreeSet::new(),
        begun: BTreeSet::new(),
        given: BTreeMap::new(),
        made_for_buffer: BTreeSet::new(),
        secret_namespaces: secret_namespaces.to_vec(),
        secrets_due: secret_finalizers::is_check_due(memory.secrets_checked, now),
        now,
        wall: clock.wall(),
        holds: holds::of_pool(view, key),
        was_stopped: memory.stopped,
        lenders: Vec::new(),
        refused_by: Vec::new(),
        lent: Lent::default(),
        settled: BTreeSet::new(),
        moved_vms: BTreeSet::new(),
        index: Index::default(),
        agent_machines,
        key: key.clone(),
        pool,
    };
    let pending = memory.pending.recall(&observed);
    observed.see_pending(pending);
    see_group(view, &mut observed, memory);
    Some(observed)
}

/// Adds what the pool sees of the other pools of its group. Hosts may be on their way when it has left the group.
fn see_group(view: &dyn View, s: &mut Observed, memory: &mut Memory) {
    let asks = s.agent_machines.iter().any(|am| {
        let unserved = am.agent_ref().is_none() && s.child_for(am).is_none();
        unserved && !am.is_deleting() && belonging::belongs(&s.pool, am)
    });
    let whose = (s.pool.as_ref(), asks);
    let lenders = lending::lenders(view, &s.grants, whose, &s.secret_namespaces, s.wall);
    let lasting = lenders.iter().filter_map(|lender| {
        let refusal = lender.refusal.as_ref().filter(|r| r.is_lasting())?;
        Some(format!("{}: {refusal}", lender.key))
    });
    s.refused_by = lasting.take(MAX_REFUSALS).collect();
    s.lenders = lenders;
    s.lent = super::lending::lent(view, s, &mut memory.reserved_since);
    let vms = view.all_children();
    let vms = vms.iter().filter_map(|c| c.status.as_ref()?.vm.as_ref());
    let moved = vms.filter(|vm| vm.taken_from.is_some());
    s.moved_vms = moved.map(|vm| vm.name.clone()).collect();
    let taken = s.children.iter().filter(|c| c.taken_from.is_some());
    let over = taken.filter(|c| super::lending::is_over(view, c));
    s.settled = over.map(|c| c.uid.clone()).collect();
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
        let pool = ObjectKey::new(&key.namespace, &object.spec.pool_ref.name);
        if pool == *own {
            continue;
        }
        let uid = object.annotations().get(AGENT_MACHINE_UID_ANNOTATION);
        let Some((uid, am)) = uid.and_then(|uid| Some((uid, by_uid.get(uid.as_str())?))) else {
            continue;
        };
        let admitted = || {
            let pool = view.pool(&pool);
            pool.is_some_and(|pool| grants.lacking(&pool, am).is_none())
        };
        if key.namespace == own.namespace || admitted() {
            found.insert(uid.clone(), key);
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
            .filter(|p| Some(&p.spec.control_plane_namespace) == am.metadata.namespace.as_ref());
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
