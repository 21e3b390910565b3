//! Which objects of one [`Observed`] belong together.
//!
//! A pool asks that for each of its machines in each pass. Without these tables, the cost would grow with the square of
//! the number of machines. A pass with a thousand machines would cost ten thousand times as much as a pass with ten.
//!
//! Guarantee: a table finds what a search through all objects would find, in the same order
//! (`plan/tests/properties.rs`).

use std::{
    collections::{BTreeSet, HashMap},
    hash::Hash,
    sync::{Arc, OnceLock},
};

use agent_forge_crds::{
    external::{agent::Agent, agent_machine::AgentMachine},
    names::AGENT_MACHINE_LABEL,
};
use kube::ResourceExt;

use super::{
    observed::Observed,
    tables::{Places, Positions, Tables},
};
use crate::{
    domain::{
        goal::Recorded,
        identity::proof,
        machine_state::{MachineState, machine_state, unserved},
        managed_vm::ManagedVm,
        names::ObjectKey,
        upstream::{self, MachineFacts},
    },
    world::{classify::Demand, host::Host},
};

fn at<'a>(table: &'a HashMap<String, Places>, key: &str) -> &'a [usize] {
    table.get(key).map_or(&[], Vec::as_slice)
}

fn note<K: Eq + Hash>(table: &mut HashMap<K, Places>, key: Option<K>, at: usize) {
    if let Some(key) = key {
        table.entry(key).or_default().push(at);
    }
}

impl Positions {
    fn note(&mut self, name: Option<&String>, uid: Option<&String>, at: usize) {
        note(&mut self.names, name.cloned(), at);
        note(&mut self.uids, uid.cloned(), at);
    }

    /// All objects that a record may mean: those with its uid, and those with its name.
    fn meant_by(&self, record: &Recorded) -> BTreeSet<usize> {
        let uid = record.uid.as_deref();
        let by_uid = uid.map_or(&[][..], |uid| at(&self.uids, uid));
        by_uid
            .iter()
            .chain(at(&self.names, &record.name))
            .copied()
            .collect()
    }
}

impl Tables {
    fn of(s: &Observed) -> Self {
        let mut tables = Self::default();
        for (at, agent) in s.agents.iter().enumerate() {
            for machine in proof::named_machines(agent) {
                let machine = machine.in_one_order();
                note(&mut tables.machines_of_agents, Some(machine), at);
            }
            note(&mut tables.agent_names, agent.metadata.name.clone(), at);
            note(&mut tables.hostnames, agent.spec.hostname.clone(), at);
            let claimed_by = agent.claimed_by().map(str::to_owned);
            note(&mut tables.claims, claimed_by, at);
        }
        for (at, machine) in s.machines.iter().enumerate() {
            let (name, uid) = (&machine.key.name, &machine.uid);
            tables.machines.note(Some(name), Some(uid), at);
        }
        for (at, am) in s.agent_machines.iter().enumerate() {
            let (name, uid) = (am.metadata.name.as_ref(), am.metadata.uid.as_ref());
            tables.agent_machines.note(name, uid, at);
            let reserved = am.agent_ref().map(|r| r.name.clone());
            note(&mut tables.reservations, reserved, at);
        }
        for (at, child) in s.children.iter().enumerate() {
            let Some(record) = &child.agent_machine else {
                continue;
            };
            let name = record.uid.is_none().then_some(&record.name);
            tables.children.note(name, record.uid.as_ref(), at);
        }
        tables
    }
}

impl Observed {
    fn tables(&self) -> &Tables {
        self.index.tables.get_or_init(|| Tables::of(self))
    }

    /// The host of that VsphereAgent. It is read once in a pass.
    #[must_use]
    pub fn host(&self, child: &ManagedVm) -> &Host {
        static UNSEEN: OnceLock<Host> = OnceLock::new();
        let read = || {
            let all = self.children.iter();
            all.map(|c| (c.uid.clone(), self.read_host(c))).collect()
        };
        let hosts: &HashMap<String, Host> = self.index.hosts.get_or_init(read);
        let unseen = || Host::unknown("it is not among the VsphereAgents of this pass".to_owned());
        let host = hosts.get(&child.uid);
        host.unwrap_or_else(|| UNSEEN.get_or_init(unseen))
    }

    fn read_host(&self, child: &ManagedVm) -> Host {
        let naming: Vec<Arc<Agent>> = self.agents_naming(child).cloned().collect();
        let machine = self.machine_state(child);
        Host::read(child, &naming, machine, &|agent| self.is_reserved(agent))
    }

    /// Agents that name the child's VM as their machine. No other Agent may run there.
    fn agents_naming(&self, child: &ManagedVm) -> impl Iterator<Item = &Arc<Agent>> {
        let tables = self.tables();
        let vm = child.identity.as_ref().map(|vm| vm.bios_uuid);
        let places = match vm {
            Some(uuid) => {
                let all = tables.machines_of_agents.get(&uuid.in_one_order());
                all.map_or(&[][..], Vec::as_slice)
            }
            None => &[],
        };
        places.iter().filter_map(|at| self.agents.get(*at))
    }

    /// Whether the cache shows an Agent of that name, or one that this AgentMachine claims.
    #[must_use]
    pub fn sees_agent_of(&self, name: Option<&str>, am: &AgentMachine) -> bool {
        let tables = self.tables();
        let named = name.is_some_and(|name| !at(&tables.agent_names, name).is_empty());
        let own = am.metadata.name.as_deref().unwrap_or_default();
        let mut claimants = at(&tables.claims, own).iter();
        named
            || claimants.any(|at| {
                let agent = self.agents.get(*at);
                agent.is_some_and(|a| upstream::claims(a, am))
            })
    }

    /// The first VsphereAgent that is for this AgentMachine and whose Agent does not serve another control plane.
    #[must_use]
    pub fn child_for(&self, am: &AgentMachine) -> Option<&ManagedVm> {
        let children = &self.tables().children;
        let (name, uid) = (am.metadata.name.as_deref(), am.metadata.uid.as_deref());
        let by_uid = at(&children.uids, uid.unwrap_or_default()).iter();
        let by_name = at(&children.names, name.unwrap_or_default()).iter();
        let all: BTreeSet<usize> = by_uid.chain(by_name).copied().collect();
        let mut all = all.into_iter().filter_map(|at| self.children.get(at));
        all.find(|child| self.serves_elsewhere(child).is_none())
    }

    /// The AgentMachine of another control plane that has claimed the child's Agent.
    #[must_use]
    pub fn serves_elsewhere(&self, child: &ManagedVm) -> Option<ObjectKey> {
        self.host(child).serves_elsewhere(child.home(&self.pool))
    }

    /// Whether a VsphereAgent records this AgentMachine.
    #[must_use]
    pub fn has_record_of(&self, am: &AgentMachine) -> bool {
        let name = am.metadata.name.as_deref().unwrap_or_default();
        let uid = am.metadata.uid.as_deref().unwrap_or_default();
        self.has_child_for(uid) || !at(&self.tables().children.names, name).is_empty()
    }

    /// Whether another Agent than this one has that name for its host, and stays.
    #[must_use]
    pub fn is_hostname_taken(&self, hostname: &str, agent: &Agent) -> bool {
        let mut there = at(&self.tables().hostnames, hostname).iter();
        there.any(|at| {
            let other = self.agents.get(*at);
            other.is_some_and(|a| a.metadata.uid != agent.metadata.uid && !a.is_deleting())
        })
    }

    /// Whether a VsphereAgent records this uid as that of its AgentMachine.
    #[must_use]
    pub fn has_child_for(&self, uid: &str) -> bool {
        !at(&self.tables().children.uids, uid).is_empty()
    }

    /// AgentMachines with that name, in any namespace.
    pub fn agent_machines_named(&self, name: &str) -> impl Iterator<Item = &Arc<AgentMachine>> {
        let places = at(&self.tables().agent_machines.names, name).iter();
        places.filter_map(|at| self.agent_machines.get(*at))
    }

    /// The AgentMachine of that uid.
    #[must_use]
    pub fn agent_machine(&self, uid: &str) -> Option<&Arc<AgentMachine>> {
        let place = at(&self.tables().agent_machines.uids, uid).first()?;
        self.agent_machines.get(*place)
    }

    /// The AgentMachine on record.
    #[must_use]
    pub fn recorded_agent_machine(&self, record: &Recorded) -> Option<&Arc<AgentMachine>> {
        let meant = self.tables().agent_machines.meant_by(record).into_iter();
        let mut meant = meant.filter_map(|at| self.agent_machines.get(at));
        meant.find(|am| record.is_object(&am.metadata))
    }

    /// VsphereAgents with this record, and maybe others. Without a record, all.
    pub fn children_of(&self, record: Option<&Recorded>) -> impl Iterator<Item = &ManagedVm> {
        let children = &self.tables().children;
        let places = record.map(|record| match &record.uid {
            Some(uid) => at(&children.uids, uid),
            None => at(&children.names, &record.name),
        });
        let (some, all) = match places {
            Some(places) => (places, &self.children[..0]),
            None => (&[][..], &self.children[..]),
        };
        some.iter()
            .filter_map(|at| self.children.get(*at))
            .chain(all)
    }

    /// As [`upstream::is_reserved`].
    fn is_reserved(&self, agent: &Agent) -> bool {
        let tables = self.tables();
        let name = agent.metadata.name.as_deref().unwrap_or_default();
        let reserving: Vec<_> = at(&tables.reservations, name)
            .iter()
            .filter_map(|at| self.agent_machines.get(*at).cloned())
            .collect();
        let owners = reserving.iter().filter_map(|am| am.owner_machine());
        let machines: Vec<&MachineFacts> = owners
            .flat_map(|owner| at(&tables.machines.uids, &owner.uid))
            .filter_map(|at| self.machines.get(*at))
            .collect();
        upstream::is_reserved(agent, &reserving, &machines)
    }

    /// The state of the Machine of one of the pool's VsphereAgents.
    fn machine_state(&self, child: &ManagedVm) -> MachineState {
        let home = child.home(&self.pool);
        if home != self.pool.control_plane() {
            return match self.recorded_homes.get(home) {
                Some(there) => machine_state(child, home, &there.machines, &there.agent_machines),
                None => unserved(home),
            };
        }
        let tables = self.tables();
        let meant = |record: &Option<Recorded>, known: &Positions| match record {
            Some(record) => known.meant_by(record),
            None => BTreeSet::new(),
        };
        let machines: Vec<&MachineFacts> = meant(&child.machine, &tables.machines)
            .into_iter()
            .filter_map(|at| self.machines.get(at))
            .collect();
        let agent_machines: Vec<_> = meant(&child.agent_machine, &tables.agent_machines)
            .into_iter()
            .filter_map(|at| self.agent_machines.get(at).cloned())
            .collect();
        machine_state(child, home, &machines, &agent_machines)
    }
}

/// Finds the demand of the AgentMachine that a VsphereAgent records.
pub(super) struct Records {
    names: HashMap<String, usize>,
    uids: HashMap<String, usize>,
}

impl Records {
    pub fn of(demands: &[Demand]) -> Self {
        let (mut names, mut uids) = (HashMap::new(), HashMap::new());
        for (at, demand) in demands.iter().enumerate() {
            names.entry(demand.name()).or_insert(at);
            uids.entry(demand.uid()).or_insert(at);
        }
        Self { names, uids }
    }

    /// The demand of the AgentMachine on record.
    pub fn find<'a>(&self, demands: &'a [Demand], record: Option<&Recorded>) -> Option<&'a Demand> {
        let record = record?;
        let at = match &record.uid {
            Some(uid) => self.uids.get(uid),
            None => self.names.get(&record.name),
        };
        demands.get(*at?)
    }

    /// The demand of the AgentMachine that has claimed that Agent.
    pub fn served_by<'a>(&self, demands: &'a [Demand], agent: &Agent) -> Option<&'a Demand> {
        let demand = demands.get(*self.names.get(agent.claimed_by()?)?)?;
        upstream::claims(agent, &demand.agent_machine).then_some(demand)
    }
}

/// The Agent of the AgentMachine is the one on this child's VM, or may be.
pub(super) fn served_by_child(s: &Observed, demand: &Demand, child: &ManagedVm) -> bool {
    let am = demand.agent_machine.as_ref();
    let reference = am.agent_ref().map(|r| r.name.as_str());
    let serves = |a: &Arc<Agent>| {
        reference.is_some_and(|name| a.name_any() == name) || upstream::claims(a, am)
    };
    // An Agent that the cache does not show may be the child's.
    !s.sees_agent_of(reference, am)
        || s.host(child).possible.iter().any(serves)
        || child.identity.is_none() && s.agents.iter().any(|a| serves(a) && is_nobodys(s, a))
}

/// The Agent was prepared for the VM of a VsphereAgent, and matches no recorded VM. The record of its VM may be lost,
/// for example on a hub that was restored without status.
fn is_nobodys(s: &Observed, agent: &Agent) -> bool {
    let is_its_own = |child: &ManagedVm| {
        let own = s.host(child).own.as_ref();
        own.is_some_and(|a| a.uid() == agent.uid())
    };
    agent.labels().contains_key(AGENT_MACHINE_LABEL) && !s.children.iter().any(is_its_own)
}
