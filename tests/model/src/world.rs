//! The small world: the content of the API server and vCenter, the memory of the leading operator, and the faults that
//! are left.

pub mod form;
pub mod vcenter;

use std::{sync::Arc, time::Duration};

use agent_forge_actors::{
    domain::{identity::BiosUuid, names::ObjectKey, upstream::MachineFacts},
    ports::vcenter::VmObservation,
    vm::memory::Memory,
};
use agent_forge_crds::{
    agent::VsphereAgent,
    external::{agent::Agent, agent_machine::AgentMachine},
};
use kube::ResourceExt;
use litemap::LiteMap;

use self::vcenter::{Late, foreign_vm};
use crate::{
    explore::digest,
    objects::{self, CLUSTER_ID, POOL},
    shared::{Held, Shared},
};

/// Objects of one kind.
pub type List<T> = Held<Vec<Shared<T>>>;

/// Monotonic time of everything in memory. The pass that reads the memory decides how old it is. The state does not, so
/// it does not grow with time.
pub const THEN: Duration = Duration::from_secs(10_000);

/// What may go wrong, each at most once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// The operator dies. The other one takes over without memory.
    Crash,
    /// A watch shows an old state until it catches up.
    Lag,
    /// A request is lost without a sign.
    Loss,
    /// A request arrives twice, and the second answer comes back.
    Duplicate,
    /// A request is carried out, at once or later, and its answer is lost.
    Unknown,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Crash,
        Self::Lag,
        Self::Loss,
        Self::Duplicate,
        Self::Unknown,
    ];

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// Which faults may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget(u8);

impl Budget {
    /// These faults, each once.
    pub fn of(faults: &[Fault]) -> Self {
        Self(faults.iter().fold(0, |all, f| all | f.bit()))
    }

    /// A bit for each fault that is left.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether it may still happen.
    pub fn has(self, fault: Fault) -> bool {
        self.0 & fault.bit() != 0
    }

    /// Notes that it has happened.
    pub fn spend(&mut self, fault: Fault) {
        self.0 &= !fault.bit();
    }
}

/// A broken promise, noted when it breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Harm {
    /// Something that is not ours was changed.
    ForeignTouched,
    /// The VM or the Agent of a serving host was removed.
    ServingDestroyed,
    /// A second VsphereAgent was created for an AgentMachine that has one.
    Doubled,
    /// An Agent was approved although its VM was given up or has no VsphereAgent.
    LateApproved,
    /// An Agent was bound although its guest does not run in the present life of its VM.
    StaleBound,
    /// A VsphereAgent changed a VM with another one's mark, or promised the Agent of such a VM.
    OthersTouched,
}

/// The watch that lags, with what it still shows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Stale {
    /// VsphereAgents.
    Children(List<VsphereAgent>),
    /// Agents.
    Agents(List<Agent>),
    /// AgentMachines and Machines.
    Demand(List<AgentMachine>, List<MachineFacts>),
}

/// A state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// AgentMachines.
    pub agent_machines: List<AgentMachine>,
    /// Machines.
    pub machines: List<MachineFacts>,
    /// VsphereAgents.
    pub children: List<VsphereAgent>,
    /// Agents.
    pub agents: List<Agent>,
    /// All VMs, ours and foreign ones.
    pub vms: List<VmObservation>,
    /// The watch that lags.
    pub stale: Option<Stale>,
    /// Number of events that it has not shown yet.
    pub missed: u8,
    /// The request that may still arrive.
    pub late: Option<Shared<Late>>,
    /// The memory of the leading operator's VM actors.
    pub memory: Held<LiteMap<String, Shared<Memory>>>,
    /// How many VsphereAgents and VMs were ever created for that name.
    pub born: Held<LiteMap<String, (u8, u8)>>,
    /// Number of hours that have passed. An hour is longer than any deadline and any pause.
    pub hours: u8,
    /// The faults that are left.
    pub left: Budget,
    /// Machines that a person may still create.
    pub to_come: Held<Vec<String>>,
    /// They may come as soon as the one before is being deleted, and not only when a VM is made ready for its next life.
    pub hurries: bool,
    /// The service may reclaim a host that is unbound, so that its guest returns by itself.
    pub reclaims: bool,
    /// The servers check neither versions nor names. No real one is like that: it shows that an oracle can fail.
    pub lenient: bool,
    /// VMs have versions and lives, and Agents the states of these. See [`crate::binding`].
    pub lives: bool,
    /// The first broken promise.
    pub harm: Option<Harm>,
}

/// Counts a write: the version grows.
pub fn bump<K: kube::Resource>(object: &mut K) -> String {
    let meta = object.meta_mut();
    let version = number(meta.resource_version.as_deref()) + 1;
    let version = version.to_string();
    meta.resource_version = Some(version.clone());
    version
}

fn number(version: Option<&str>) -> u64 {
    version.and_then(|v| v.parse().ok()).unwrap_or(0)
}

impl World {
    /// Digest of everything except what says only how much may still happen.
    pub fn print(&self) -> u64 {
        let Self {
            agent_machines,
            machines,
            children,
            agents,
            vms,
            stale,
            missed: _,
            late,
            memory,
            born,
            hours,
            left: _,
            to_come,
            hurries: _,
            reclaims: _,
            lenient: _,
            lives: _,
            harm,
        } = self;
        let objects = (agent_machines, machines, children, agents, vms);
        digest(&(objects, stale, late, memory, born, hours, to_come, harm))
    }

    /// A world in which these machines wait and a foreign Agent exists. With `foreign`, a foreign VM has the name of
    /// the first machine.
    pub fn new(names: &[&str], foreign: bool, faults: &[Fault]) -> Self {
        let foreign = foreign.then(|| names.first()).flatten();
        Self {
            agent_machines: names
                .iter()
                .map(|n| objects::agent_machine(n, POOL))
                .collect(),
            machines: names.iter().map(|n| objects::machine(n)).collect(),
            children: List::default(),
            agents: [objects::stranger()].into_iter().collect(),
            vms: foreign.map(|name| foreign_vm(name)).into_iter().collect(),
            stale: None,
            missed: 0,
            late: None,
            memory: Held::default(),
            born: Held::default(),
            hours: 0,
            left: Budget::of(faults),
            to_come: Held::default(),
            hurries: false,
            reclaims: false,
            lenient: false,
            lives: false,
            harm: None,
        }
    }

    /// VsphereAgents as the watch shows them.
    pub fn shown_children(&self) -> &[Shared<VsphereAgent>] {
        match &self.stale {
            Some(Stale::Children(old)) => old,
            _ => &self.children,
        }
    }

    /// Agents as the watch shows them.
    pub fn shown_agents(&self) -> &[Shared<Agent>] {
        match &self.stale {
            Some(Stale::Agents(old)) => old,
            _ => &self.agents,
        }
    }

    /// AgentMachines as the watch shows them.
    pub fn shown_agent_machines(&self) -> &[Shared<AgentMachine>] {
        match &self.stale {
            Some(Stale::Demand(old, _)) => old,
            _ => &self.agent_machines,
        }
    }

    /// Machines as the watch shows them.
    pub fn shown_machines(&self) -> &[Shared<MachineFacts>] {
        match &self.stale {
            Some(Stale::Demand(_, old)) => old,
            _ => &self.machines,
        }
    }

    /// Limits how far the watch lags after `before`. When it would be behind by more events, it shows everything again.
    pub fn lag_at_most(&mut self, most: u8, before: &Self) {
        let news = match &self.stale {
            None => false,
            Some(Stale::Children(_)) => self.children != before.children,
            Some(Stale::Agents(_)) => self.agents != before.agents,
            Some(Stale::Demand(..)) => {
                self.agent_machines != before.agent_machines || self.machines != before.machines
            }
        };
        self.missed += u8::from(news);
        if self.missed > most {
            self.stale = None;
            self.settle();
        }
    }

    /// Notes a broken promise. Only the first one counts.
    pub fn harmed(&mut self, harm: Harm) {
        self.harm.get_or_insert(harm);
    }

    /// The VM that an Agent runs on.
    pub fn vm_of(&self, agent: &Agent) -> Option<&Shared<VmObservation>> {
        let uuid = BiosUuid::parse(&agent.name_any())?;
        let runs = |vm: &&Shared<VmObservation>| vm.bios_uuid.is_some_and(|u| u.same_machine(uuid));
        self.vms.iter().find(runs)
    }

    /// The Agent that runs on a VM.
    pub fn agent_on(&self, vm: &VmObservation) -> Option<&Shared<Agent>> {
        let uuid = vm.bios_uuid?;
        let runs = |a: &&Shared<Agent>| {
            BiosUuid::parse(&a.name_any()).is_some_and(|u| u.same_machine(uuid))
        };
        self.agents.iter().find(runs)
    }

    /// Removes each VsphereAgent in deletion whose last finalizer is gone.
    pub fn reap(&mut self) {
        let stays = |c: &Shared<VsphereAgent>| {
            c.metadata.deletion_timestamp.is_none() || !c.finalizers().is_empty()
        };
        if !self.children.iter().all(stays) {
            self.children.retain(stays);
        }
    }
}

/// Whether the marker belongs to this cluster.
pub fn is_ours(vm: &VmObservation) -> bool {
    vm.marker
        .as_ref()
        .is_some_and(|m| m.cluster_id == CLUSTER_ID)
}

/// Key of an object.
pub fn key<K: ResourceExt>(object: &K) -> ObjectKey {
    ObjectKey::of(object)
}

impl<T: Clone> Shared<T> {
    /// A copy that may be changed.
    pub fn as_ref_clone(&self) -> T {
        T::clone(self)
    }
}

/// All values, shared as the ports return them.
pub fn arcs<T: std::fmt::Debug>(all: &[Shared<T>]) -> Vec<Arc<T>> {
    all.iter().map(Shared::arc).collect()
}
