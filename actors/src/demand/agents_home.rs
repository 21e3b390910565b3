//! Where a pool's InfraEnv is, and with it its Agents: they live in the InfraEnv's namespace, which need not be the
//! pool's (upstream-contract.md §6.1, §8.2 L).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use agent_forge_crds::{
    external::{agent::Agent, agent_machine::AgentMachine, infra_env::InfraEnv},
    pool::VsphereAgentPool,
};
use kube::ResourceExt;

use super::{boundary::Grants, classify};
use crate::{
    domain::{
        managed_vm::ManagedVm,
        names::ObjectKey,
        words::{self, Word, Words},
    },
    ports::cluster::View,
};

/// Namespaces in which the InfraEnv may be, in order of preference: the one that the spec names; else the pool's own,
/// then the control plane's.
#[must_use]
pub fn candidates(pool: &VsphereAgentPool) -> Vec<ObjectKey> {
    let name = &pool.spec.infra_env_ref.name;
    match pool
        .spec
        .infra_env_ref
        .namespace
        .as_deref()
        .filter(|n| !n.is_empty())
    {
        Some(namespace) => vec![ObjectKey::new(namespace, name)],
        None => vec![
            ObjectKey::new(pool.namespace().unwrap_or_default(), name),
            ObjectKey::new(&pool.spec.control_plane_namespace, name),
        ],
    }
}

/// The Agents that name the VM of that VsphereAgent; no other may run there. They are looked for in every namespace in which
/// the InfraEnv may be (it may have gone, or moved, while its Agents serve), in that of the one that the VM boots from, and
/// in that where its Agent was seen before. In key order.
#[must_use]
pub fn naming(
    view: &dyn View,
    pool: Option<&VsphereAgentPool>,
    child: &ManagedVm,
) -> Vec<Arc<Agent>> {
    let Some(identity) = &child.identity else {
        return Vec::new();
    };
    let words = Words::from([Word::machine(identity.bios_uuid)]);
    let namespaces = namespaces(pool, [child]).into_iter();
    namespaces
        .flat_map(|n| view.agents_saying(&n, &words))
        .collect()
}

/// The Agents that a decision about the pool may go by: those that name a VM of its VsphereAgents, those that one of these
/// AgentMachines names, or that name it, and for each of them the first of the namespace `home` that it could be given now.
/// In key order. Each question about all Agents has the same answer for these.
#[must_use]
pub fn of_pool(
    view: &dyn View,
    pool: &VsphereAgentPool,
    children: &[ManagedVm],
    agent_machines: &[&AgentMachine],
    home: &str,
) -> Vec<Arc<Agent>> {
    let identities = children.iter().filter_map(|c| c.identity.as_ref());
    let machines = identities.map(|vm| Word::machine(vm.bios_uuid));
    let sought = agent_machines.iter().flat_map(|am| words::sought_by(am));
    let words: Words = machines.chain(sought).collect();
    let namespaces = namespaces(Some(pool), children).into_iter();
    let named = namespaces.flat_map(|n| view.agents_saying(&n, &words));
    let first_free = |am: &&AgentMachine| {
        let fits = |agent: &Agent| classify::is_free_for(agent, am);
        view.first_agent(home, Word::free_for(am), &fits)
    };
    let free = agent_machines.iter().filter_map(first_free);
    let mut all = BTreeMap::new();
    for agent in named.chain(free) {
        all.entry(ObjectKey::of(agent.as_ref())).or_insert(agent);
    }
    all.into_values().collect()
}

/// Namespaces in which Agents of these may be.
#[must_use]
pub fn namespaces<'a>(
    pool: Option<&VsphereAgentPool>,
    children: impl IntoIterator<Item = &'a ManagedVm>,
) -> BTreeSet<String> {
    let homes = pool.map(candidates).unwrap_or_default().into_iter();
    let mut all: BTreeSet<String> = homes.map(|key| key.namespace).collect();
    for child in children {
        let source = child.identity.as_ref().and_then(|i| i.infra_env.as_ref());
        all.extend(child.agent.as_ref().map(|key| key.namespace.clone()));
        all.extend(source.map(|s| s.namespace.clone()));
    }
    all
}

/// Where an Agent of that VM is, whether or not it is in view: its name is the uuid that its firmware shows, which is
/// the VM's in either byte order.
#[must_use]
pub fn names(pool: Option<&VsphereAgentPool>, child: &ManagedVm) -> Vec<ObjectKey> {
    let Some(identity) = &child.identity else {
        return Vec::new();
    };
    let names = [identity.bios_uuid.swapped(), identity.bios_uuid].map(|u| u.to_string());
    let namespaces = namespaces(pool, [child]).into_iter();
    let each = |namespace: String| names.clone().map(|name| ObjectKey::new(&namespace, name));
    namespaces.flat_map(each).collect()
}

/// Those of them that an Agent can have which the VM's own has to be told from: where the InfraEnv that the VM boots from
/// is on record, in its namespace alone.
#[must_use]
pub fn own_names(pool: Option<&VsphereAgentPool>, child: &ManagedVm) -> Vec<ObjectKey> {
    let identity = child.identity.as_ref();
    let source = identity.and_then(|i| i.infra_env.as_ref());
    let mut all = names(pool, child);
    all.retain(|key| source.is_none_or(|s| s.namespace == key.namespace));
    all
}

/// The InfraEnv, and where it is or would be looked for first; in namespaces that admit the pool alone.
#[must_use]
pub fn find(
    view: &dyn View,
    grants: &Grants,
    pool: &VsphereAgentPool,
) -> (ObjectKey, Option<Arc<InfraEnv>>) {
    let first = candidates(pool)[0].clone();
    grants
        .homes(pool)
        .into_iter()
        .find_map(|key| view.infra_env(&key).map(|found| (key, Some(found))))
        .unwrap_or((first, None))
}
