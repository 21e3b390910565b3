//! Finds the namespace of a pool's InfraEnv, and of its Agents. Agents are in the InfraEnv's namespace, which may differ
//! from the pool's.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use agent_forge_crds::{
    external::{agent::Agent, agent_machine::AgentMachine, infra_env::InfraEnv},
    pool::VsphereAgentPool,
};

use super::boundary::Grants;
use crate::{
    domain::{
        belonging,
        index_keys::{self, IndexKey, IndexKeys},
        managed_vm::ManagedVm,
        names::ObjectKey,
    },
    ports::cluster::View,
};

/// The Agents that name the VM of that VsphereAgent, in key order. No other Agent may run there. The search covers:
/// - Each namespace in which the InfraEnv may be. It may have been deleted or moved while its Agents serve.
/// - The namespace of the InfraEnv that the VM boots from.
/// - The namespace where its Agent was seen before.
#[must_use]
pub fn naming(
    view: &dyn View,
    pool: Option<&VsphereAgentPool>,
    child: &ManagedVm,
) -> Vec<Arc<Agent>> {
    let Some(identity) = &child.identity else {
        return Vec::new();
    };
    let keys = IndexKeys::from([IndexKey::machine(identity.bios_uuid)]);
    let namespaces = namespaces(pool, [child]).into_iter();
    namespaces
        .flat_map(|n| view.agents_with(&n, &keys))
        .collect()
}

/// The Agents that a decision about the pool may use, in key order:
/// - Those that name a VM of its VsphereAgents.
/// - Those that one of these AgentMachines names, or that name it.
/// - For each of these AgentMachines, the first Agent of the namespace `home` that it could get now and that is not
///   taken.
///
/// A question about all Agents has the same answer for these.
#[must_use]
pub fn of_pool(
    view: &dyn View,
    pool: &VsphereAgentPool,
    children: &[ManagedVm],
    agent_machines: &[&AgentMachine],
    (home, is_taken): (&str, &dyn Fn(&Agent) -> bool),
) -> Vec<Arc<Agent>> {
    let identities = children.iter().filter_map(|c| c.identity.as_ref());
    let machines = identities.map(|vm| IndexKey::machine(vm.bios_uuid));
    let sought = agent_machines
        .iter()
        .flat_map(|am| index_keys::sought_by(am));
    let keys: IndexKeys = machines.chain(sought).collect();
    let namespaces = namespaces(Some(pool), children).into_iter();
    let named = namespaces.flat_map(|n| view.agents_with(&n, &keys));
    let first_free = |am: &&AgentMachine| {
        let fits = |agent: &Agent| belonging::is_free_for(agent, am) && !is_taken(agent);
        view.first_agent(home, IndexKey::free_for(am), &fits)
    };
    let free = agent_machines.iter().filter_map(first_free);
    let mut all = BTreeMap::new();
    for agent in named.chain(free) {
        all.entry(ObjectKey::of(agent.as_ref())).or_insert(agent);
    }
    all.into_values().collect()
}

/// Namespaces in which Agents of these VsphereAgents may be.
#[must_use]
pub fn namespaces<'a>(
    pool: Option<&VsphereAgentPool>,
    children: impl IntoIterator<Item = &'a ManagedVm>,
) -> BTreeSet<String> {
    let homes = pool
        .map(belonging::infra_envs)
        .unwrap_or_default()
        .into_iter();
    let mut all: BTreeSet<String> = homes.map(|key| key.namespace).collect();
    for child in children {
        let source = child.identity.as_ref().and_then(|i| i.infra_env.as_ref());
        all.extend(child.agent.as_ref().map(|key| key.namespace.clone()));
        all.extend(source.map(|s| s.namespace.clone()));
    }
    all
}

/// Keys that an Agent of that VM can have, in view or not. Its name is the uuid that its firmware shows: the VM's, in either
/// byte order.
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

/// The keys among them of Agents that could be confused with the VM's own. If the InfraEnv that the VM boots from is on
/// record, only the keys in its namespace.
#[must_use]
pub fn own_names(pool: Option<&VsphereAgentPool>, child: &ManagedVm) -> Vec<ObjectKey> {
    let identity = child.identity.as_ref();
    let source = identity.and_then(|i| i.infra_env.as_ref());
    let mut all = names(pool, child);
    all.retain(|key| source.is_none_or(|s| s.namespace == key.namespace));
    all
}

/// The InfraEnv, and its key or the key that is tried first. The search covers only namespaces that allow the pool.
#[must_use]
pub fn find(
    view: &dyn View,
    grants: &Grants,
    pool: &VsphereAgentPool,
) -> (ObjectKey, Option<Arc<InfraEnv>>) {
    let first = belonging::infra_envs(pool)[0].clone();
    grants
        .homes(pool)
        .into_iter()
        .find_map(|key| view.infra_env(&key).map(|found| (key, Some(found))))
        .unwrap_or((first, None))
}
