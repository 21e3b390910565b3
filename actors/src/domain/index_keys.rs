//! Index keys: an index from Agents to the objects that they may concern, so that no lookup reads all objects. Pure.
//!
//! An Agent has keys. A VsphereAgent, an AgentMachine and a pool ask for some. Guarantee: if a rule may answer "yes" for an
//! Agent, that Agent has a key that is asked for. Those rules are [`proof`], [`upstream::claims`], a reference by name, a
//! hostname, and [`is_free_for`](super::belonging::is_free_for). A key is only a hint: two facts may share one. The
//! rule then judges each Agent that was found.

use std::{
    collections::{BTreeSet, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
};

use agent_forge_crds::{
    VsphereAgent,
    external::{agent::Agent, agent_machine::AgentMachine},
    names::AGENT_MACHINE_LABEL,
};
use kube::ResourceExt;

use super::{
    goal,
    identity::{BiosUuid, proof},
    names::ObjectKey,
    recorded_vm, selector, upstream,
};

/// A number that represents one fact. It is small: thousands of Agents have several each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IndexKey(u64);

#[derive(Hash)]
enum Fact<'a> {
    Machine(BiosUuid),
    Name(&'a str),
    Hostname(&'a str),
    Claimant(&'a str),
    Free(Option<(&'a str, &'a str)>),
    Pool(&'a ObjectKey),
}

impl IndexKey {
    fn of(fact: &Fact<'_>) -> Self {
        // Without a seed, so that every cache computes the same number.
        let mut hasher = DefaultHasher::new();
        fact.hash(&mut hasher);
        Self(hasher.finish())
    }

    /// The Agent names that machine, in either byte order.
    #[must_use]
    pub fn machine(uuid: BiosUuid) -> Self {
        Self::of(&Fact::Machine(uuid.in_one_order()))
    }

    /// The Agent has that name.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self::of(&Fact::Name(name))
    }

    /// The Agent is of that pool.
    #[must_use]
    pub fn pool(key: &ObjectKey) -> Self {
        Self::of(&Fact::Pool(key))
    }

    /// The Agent could be claimed. If the AgentMachine's selector asks for labels, the Agent has one of them.
    #[must_use]
    pub fn free_for(am: &AgentMachine) -> Self {
        let selector = am.spec.agent_label_selector.as_ref();
        let exact = selector.and_then(|s| s.match_labels.as_ref());
        let exact = exact.into_iter().flatten();
        // The pin is the rarest label. Labels of the service are on all Agents.
        let rank = |key: &str| match key {
            AGENT_MACHINE_LABEL => 0,
            key if selector::is_service_label(key) => 2,
            _ => 1,
        };
        let rarest = exact.min_by_key(|(key, _)| rank(key));
        Self::of(&Fact::Free(rarest.map(|(k, v)| (k.as_str(), v.as_str()))))
    }
}

/// A set of keys.
pub type IndexKeys = BTreeSet<IndexKey>;

/// The keys for what an Agent is, and for the objects that it names.
#[must_use]
pub fn identities(agent: &Agent) -> IndexKeys {
    let named = agent.metadata.name.as_deref().map(Fact::Name);
    let hostname = agent.spec.hostname.as_deref().map(Fact::Hostname);
    let claimant = agent.claimed_by().map(Fact::Claimant);
    let facts = named.into_iter().chain(hostname).chain(claimant);
    let machines = proof::named_machines(agent);
    let machines = machines.into_iter().map(IndexKey::machine);
    facts
        .map(|fact| IndexKey::of(&fact))
        .chain(machines)
        .collect()
}

/// The keys of an Agent that could be claimed now.
#[must_use]
pub fn offers(agent: &Agent) -> IndexKeys {
    if !upstream::claimable(agent) {
        return IndexKeys::new();
    }
    let labels = agent.labels().iter();
    let labels = labels.map(|(k, v)| Some((k.as_str(), v.as_str())));
    let all = labels.chain([None]);
    all.map(|label| IndexKey::of(&Fact::Free(label))).collect()
}

/// All keys of an Agent.
#[must_use]
pub fn of_agent(agent: &Agent) -> IndexKeys {
    let mut all = identities(agent);
    all.extend(offers(agent));
    all
}

/// The keys that the decisions about an AgentMachine ask for, except for those of free Agents.
#[must_use]
pub fn sought_by(am: &AgentMachine) -> IndexKeys {
    let name = am.metadata.name.as_deref();
    let named = name.map(Fact::Claimant).into_iter();
    let hostname = name.map(Fact::Hostname);
    let chosen = am.agent_ref().map(|r| Fact::Name(&r.name));
    let all = named.chain(hostname).chain(chosen);
    all.map(|fact| IndexKey::of(&fact)).collect()
}

/// All that an AgentMachine asks for.
#[must_use]
pub fn asked_by_agent_machine(am: &AgentMachine) -> IndexKeys {
    let mut all = sought_by(am);
    all.insert(IndexKey::free_for(am));
    all
}

/// All keys that a VsphereAgent asks for: Agents that name its VM, the Agent on record, and Agents of its pool.
#[must_use]
pub fn asked_by_child(child: &VsphereAgent) -> IndexKeys {
    let vm = child.status.as_ref().and_then(|s| s.vm.as_ref());
    let machine = vm.and_then(recorded_vm::identity);
    let machine = machine.map(|vm| IndexKey::machine(vm.bios_uuid));
    let recorded = vm.and_then(|vm| vm.agent_ref.as_ref()?.name.as_deref());
    let recorded = recorded.map(|name| IndexKey::of(&Fact::Name(name)));
    let all = machine.into_iter().chain(recorded);
    all.chain([IndexKey::pool(&goal::user(child))]).collect()
}
