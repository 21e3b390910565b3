//! Finds the objects of a machine from one another. An index is made once, so that a join of all machines takes time in
//! proportion to their number.
//!
//! Guarantee: of other namespaces a VsphereAgent leads only to what its pool may use, by the rule of the pool's actor
//! ([`Grants`]). An AgentMachine leads only to VsphereAgents that may be for it.

use std::{collections::HashMap, sync::Arc};

use agent_forge_actors::{
    domain::{
        belonging,
        identity::{AgentMatch, agent_runs_on},
        index_keys,
        managed_vm::ManagedVm,
        names::ObjectKey,
        upstream::{self, MachineFacts},
    },
    ports::cluster::View as _,
    world::boundary::Grants,
};
use agent_forge_crds::{
    VsphereAgentPool,
    external::{agent::Agent, agent_machine::AgentMachine},
};
use kube::ResourceExt;

use super::found::{Found, Kind};
use crate::cluster::view::Caches;

/// Places in a list, by a name or a uid.
type Places = HashMap<String, Vec<usize>>;

/// The index.
pub struct Join<'a> {
    caches: &'a Caches,
    grants: Grants,
    children: Vec<ManagedVm>,
    agent_machines: Vec<Arc<AgentMachine>>,
    /// VsphereAgents by the uid of the AgentMachine on record.
    children_by_uid: Places,
    /// Those without such a uid, by its name.
    children_by_name: Places,
    agent_machines_by_uid: Places,
    agent_machines_by_name: Places,
}

fn places<'k>(keys: impl Iterator<Item = Option<&'k str>>) -> Places {
    let mut places = Places::new();
    for (at, key) in keys.enumerate() {
        if let Some(key) = key {
            places.entry(key.to_owned()).or_default().push(at);
        }
    }
    places
}

fn at<'a, T>(all: &'a [T], places: &'a Places, key: &str) -> impl Iterator<Item = &'a T> {
    let found = places.get(key).map(Vec::as_slice).unwrap_or_default();
    found.iter().filter_map(|at| all.get(*at))
}

impl<'a> Join<'a> {
    /// Reads all VsphereAgents and AgentMachines once.
    #[must_use]
    pub fn new(caches: &'a Caches) -> Self {
        let children = caches.all_children().into_iter().map(ManagedVm::read);
        let children: Vec<ManagedVm> = children.collect();
        let agent_machines = caches.all_agent_machines();
        let uids = children
            .iter()
            .map(|c| c.agent_machine.as_ref()?.uid.as_deref());
        let names = children.iter().map(|c| {
            let record = c.agent_machine.as_ref()?;
            record.uid.is_none().then_some(record.name.as_str())
        });
        let pools = caches.pools();
        let pools = pools.iter().map(AsRef::as_ref);
        let grants = Grants::read(caches, pools, agent_machines.iter().map(AsRef::as_ref));
        let metadata = || agent_machines.iter().map(|am| &am.metadata);
        Self {
            caches,
            children_by_uid: places(uids),
            children_by_name: places(names),
            agent_machines_by_uid: places(metadata().map(|m| m.uid.as_deref())),
            agent_machines_by_name: places(metadata().map(|m| m.name.as_deref())),
            children,
            agent_machines,
            grants,
        }
    }

    /// Which pools are admitted by the namespaces that pools and AgentMachines name.
    #[must_use]
    pub fn into_grants(self) -> Grants {
        self.grants
    }

    /// Whether the pool of the VsphereAgent may use the AgentMachine.
    #[must_use]
    pub fn may_be_for(&self, child: &ManagedVm, am: &AgentMachine) -> bool {
        self.grants.shows_to(&child.pool.namespace, am)
    }

    /// Whether the pool of the VsphereAgent sees the Agent: it may run on the VM, or its namespace admits the pool.
    #[must_use]
    pub fn may_see(&self, child: &ManagedVm, agent: &Agent) -> bool {
        let namespace = agent.metadata.namespace.as_deref().unwrap_or_default();
        let may_run_there = |vm| agent_runs_on(agent, vm) != AgentMatch::Other;
        self.grants.admit_from(namespace, &child.pool.namespace)
            || child.identity.as_ref().is_some_and(may_run_there)
    }

    /// All VsphereAgents.
    #[must_use]
    pub fn children(&self) -> &[ManagedVm] {
        &self.children
    }

    /// Everything that belongs to the machine of a VsphereAgent.
    #[must_use]
    pub fn of_child(&self, child: ManagedVm) -> Found {
        self.complete(Found {
            child: Some(child),
            ..Found::default()
        })
    }

    /// The machine of an AgentMachine that the pool may see and that has no VsphereAgent. `None`: it has one, or belongs to
    /// others.
    #[must_use]
    pub fn of_demand(&self, pool: &Arc<VsphereAgentPool>, am: &Arc<AgentMachine>) -> Option<Found> {
        let is_its = belonging::belongs(pool, am) && self.grants.shows(pool, am);
        if !is_its || self.made_for(am).is_some() {
            return None;
        }
        Some(Found {
            machine: self.machine_of(am),
            agent: self.reserved(am).filter(|a| self.admits(a, pool)),
            agent_machine: Some(am.clone()),
            pool: Some(pool.clone()),
            ..Found::default()
        })
    }

    /// Whether the namespace of the Agent admits the pool.
    fn admits(&self, agent: &Agent, pool: &VsphereAgentPool) -> bool {
        let namespace = agent.metadata.namespace.as_deref().unwrap_or_default();
        self.grants.admit(namespace, pool)
    }

    /// The AgentMachine that the VsphereAgent is for.
    #[must_use]
    pub fn agent_machine_of(&self, child: &ManagedVm) -> Option<Arc<AgentMachine>> {
        let record = child.agent_machine.as_ref()?;
        let is_home = |am: &&Arc<AgentMachine>| {
            let home = child.control_plane.as_ref();
            home.is_none_or(|home| am.namespace().as_ref() == Some(home))
        };
        let all = &self.agent_machines;
        let found = match &record.uid {
            Some(uid) => at(all, &self.agent_machines_by_uid, uid),
            None => at(all, &self.agent_machines_by_name, &record.name),
        };
        let mut found = found.filter(|am| self.may_be_for(child, am));
        found.find(is_home).cloned()
    }

    /// The AgentMachine that has claimed the Agent.
    #[must_use]
    pub fn claimant(&self, agent: &Agent) -> Option<Arc<AgentMachine>> {
        let name = agent.claimed_by()?;
        let mut found = at(&self.agent_machines, &self.agent_machines_by_name, name);
        found.find(|am| upstream::claims(agent, am)).cloned()
    }

    /// The AgentMachine of a Machine.
    #[must_use]
    pub fn owned(&self, machine: &MachineFacts) -> Option<Arc<AgentMachine>> {
        let all = self.caches.agent_machines(&machine.key.namespace);
        let is_owned =
            |am: &Arc<AgentMachine>| am.owner_machine().is_some_and(|o| o.uid == machine.uid);
        all.into_iter().find(is_owned)
    }

    /// The Machine of an AgentMachine.
    #[must_use]
    pub fn machine_of(&self, am: &AgentMachine) -> Option<Arc<MachineFacts>> {
        let owner = am.owner_machine()?;
        let key = ObjectKey::new(am.namespace()?, &owner.name);
        self.caches.machine(&key)
    }

    /// The VsphereAgent on whose VM the Agent runs, or may run.
    #[must_use]
    pub fn runs_agent(&self, agent: &Agent) -> Option<ManagedVm> {
        let names = |child: &ManagedVm| {
            let vm = child.identity.as_ref();
            vm.map_or(AgentMatch::Other, |vm| agent_runs_on(agent, vm))
        };
        let may = self.children.iter().filter(|c| names(c).may_run_there());
        may.min_by_key(|c| names(c) != AgentMatch::Same).cloned()
    }

    /// The VsphereAgent that is for the AgentMachine. One that is being removed comes last.
    #[must_use]
    pub fn made_for(&self, am: &AgentMachine) -> Option<&ManagedVm> {
        let (uid, name) = (am.metadata.uid.as_deref(), am.metadata.name.as_deref());
        let by_uid = at(&self.children, &self.children_by_uid, uid.unwrap_or("?"));
        let by_name = at(&self.children, &self.children_by_name, name.unwrap_or("?"));
        let may_be = by_uid.chain(by_name).filter(|c| self.may_be_for(c, am));
        may_be.min_by_key(|c| c.deleting)
    }

    /// The Agent of the VM: its own, else one that may be its own, else the one on record.
    #[must_use]
    pub fn agent_of(&self, child: &ManagedVm) -> Option<Arc<Agent>> {
        let keys = index_keys::asked_by_child(&child.object);
        let all = self.caches.agents.with_keys(None, &keys);
        let lineup = child.lineup(&all);
        let doubtful = || lineup.doubtful.first().map(|(agent, _)| *agent);
        let any = lineup.own.or_else(|| lineup.rivals.first().copied());
        let recorded = || self.caches.agents.get(child.agent.as_ref()?);
        let found = any.or_else(doubtful).cloned().or_else(recorded);
        found.filter(|agent| self.may_see(child, agent))
    }

    /// The Agent that the AgentMachine has.
    #[must_use]
    pub fn reserved(&self, am: &AgentMachine) -> Option<Arc<Agent>> {
        let reference = am.agent_ref()?;
        let key = ObjectKey::new(&reference.namespace, &reference.name);
        self.caches.agents.get(&key)
    }

    /// The machine of the VsphereAgent or AgentMachine of that name. `None`: there is no such object.
    #[must_use]
    pub fn machine(&self, kind: Kind, key: &ObjectKey) -> Option<Found> {
        let mut found = Found::default();
        match kind {
            Kind::VsphereAgent => {
                let child = self.caches.children.get(key)?;
                found.child = Some(ManagedVm::read(child));
            }
            Kind::AgentMachine => {
                found.agent_machine = Some(self.caches.agent_machines.get(key)?);
            }
            _ => return None,
        }
        Some(self.complete(found))
    }

    /// Adds what belongs to the objects that are found. Each one may lead to the next, in both directions.
    #[must_use]
    pub fn complete(&self, mut found: Found) -> Found {
        let asked_for_agent = found.agent.is_some();
        for _ in 0..3 {
            let child = found.child.as_ref();
            found.agent_machine = found.agent_machine.take().or_else(|| {
                let by_machine = found.machine.as_deref().and_then(|m| self.owned(m));
                let by_child = || self.agent_machine_of(child?);
                let by_agent = || self.claimant(found.agent.as_deref()?);
                let all = by_machine.or_else(by_child).or_else(by_agent);
                all.filter(|am| child.is_none_or(|c| self.may_be_for(c, am)))
            });
            let am = found.agent_machine.as_deref();
            found.child = found.child.take().or_else(|| {
                let by_agent = found.agent.as_deref().and_then(|a| self.runs_agent(a));
                let by_agent = by_agent.filter(|c| am.is_none_or(|am| self.may_be_for(c, am)));
                by_agent.or_else(|| self.made_for(am?).cloned())
            });
            let child = found.child.as_ref();
            found.agent = found.agent.take().or_else(|| match child {
                // That of its VM, and no other.
                Some(child) => self.agent_of(child),
                None => self.reserved(am?),
            });
        }
        found.machine = found
            .machine
            .take()
            .or_else(|| self.machine_of(found.agent_machine.as_deref()?));
        match (&found.child, found.agent_machine.as_deref()) {
            (Some(child), _) => {
                found.pool = self.caches.pool(&child.pool);
            }
            (None, Some(am)) => {
                let pools = self.caches.pools();
                let serves = |pool: &&Arc<VsphereAgentPool>| self.grants.serves(pool, am);
                // One that lacks only the grant of its InfraEnv waits for that, and says so.
                let sees = |pool: &&Arc<VsphereAgentPool>| {
                    belonging::belongs(pool, am) && self.grants.shows(pool, am)
                };
                let serving = pools.iter().find(serves);
                found.pool = serving.or_else(|| pools.iter().find(sees)).cloned();
                if found.pool.is_none() {
                    found.refused = pools.iter().find_map(|pool| self.refused(pool, am));
                }
            }
            (None, None) => {}
        }
        let agent = found.agent.as_deref().filter(|_| !asked_for_agent);
        if let (None, Some(pool), Some(agent)) = (&found.child, &found.pool, agent)
            && !self.admits(agent, pool)
        {
            found.agent = None;
        }
        found
    }

    /// Why the pool may not serve an AgentMachine of its NodePool.
    fn refused(&self, pool: &VsphereAgentPool, am: &AgentMachine) -> Option<String> {
        let belongs = belonging::belongs(pool, am);
        let lacking = self.grants.lacking(pool, am).filter(|_| belongs)?;
        let own = pool.namespace().unwrap_or_default();
        let why = self.grants.sentence(&[lacking], &own);
        Some(format!("VsphereAgentPool {}: {why}", ObjectKey::of(pool)))
    }
}
