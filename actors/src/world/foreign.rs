//! Foreign hosts: Agents of a pool's InfraEnv that are not VMs of agent-forge. How many there are, and which AgentMachine
//! each free one counts for. Pure functions of the cache.
//!
//! Guarantees
//! - The operator reads foreign Agents and never writes them. Nothing here leads to an effect.
//! - One Agent counts for one AgentMachine at most. All pools of an InfraEnv compute the same assignment from the same cache:
//!   the oldest AgentMachine gets the first Agent that fits.
//! - A pass looks at a running count and at the first Agents that fit. It does not go through all Agents.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use agent_forge_crds::{
    external::{
        agent::{Agent, INFRA_ENV_LABEL},
        agent_machine::AgentMachine,
    },
    pool::VsphereAgentPool,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt as _;

use super::{agents_home, boundary::Grants};
use crate::{
    domain::{
        belonging, goal,
        host_class::ByClass,
        identity::BiosUuid,
        index_keys::{self, IndexKey, IndexKeys},
        names::ObjectKey,
        selector::Labels,
        tally::Tally,
        upstream::{self, WaitingSign},
    },
    ports::cluster::View,
};

/// What a pool knows of the foreign hosts of its InfraEnv.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForeignHosts {
    /// How many there are. `None`: not known, because the namespace does not admit the pool, or because the cache does not keep
    /// all of it.
    pub classes: Option<ByClass>,
    /// The name of the Agent that counts for an AgentMachine, by the uid of the AgentMachine, over all pools of the InfraEnv.
    /// Empty unless the pool has `spec.hosts.countForeign`.
    counted: BTreeMap<String, String>,
    /// The names in `counted`.
    taken: BTreeSet<String>,
}

impl ForeignHosts {
    /// The Agent that counts for that AgentMachine: no VM is made for it.
    #[must_use]
    pub fn of(&self, am: &AgentMachine) -> Option<&str> {
        let agent = self.counted.get(am.metadata.uid.as_deref()?);
        agent.map(String::as_str)
    }

    /// Whether the Agent counts for an AgentMachine, so that it keeps no other one waiting.
    #[must_use]
    pub fn counts(&self, agent: &Agent) -> bool {
        let name = agent.metadata.name.as_ref();
        name.is_some_and(|name| self.taken.contains(name))
    }
}

/// The foreign hosts of the InfraEnv `home` of that pool, one of `pools`.
#[must_use]
pub fn observe(
    view: &dyn View,
    grants: &Grants,
    pools: &[Arc<VsphereAgentPool>],
    pool: &VsphereAgentPool,
    home: &ObjectKey,
) -> ForeignHosts {
    if !grants.admit(&home.namespace, pool) || view.over_bound(&home.namespace).is_some() {
        return ForeignHosts::default();
    }
    let own = own_agents(view, home);
    let labels = Labels::from([(INFRA_ENV_LABEL.to_owned(), home.name.clone())]);
    let mut classes = view.count_agents(&home.namespace, &labels).classes;
    for agent in &own {
        classes -= Tally::of(agent, &labels).classes;
    }
    let mut counted = BTreeMap::new();
    if pool.spec.counts_foreign() && classes.total().free > 0 {
        let source = Source {
            view,
            grants,
            pools,
            home,
        };
        counted = source.assign(&own);
    }
    ForeignHosts {
        classes: Some(classes),
        taken: counted.values().cloned().collect(),
        counted,
    }
}

/// The Agents in the InfraEnv's namespace that name a VM on record. Whether they run on it is another question: each may, so
/// none is foreign.
#[must_use]
pub fn own_agents(view: &dyn View, home: &ObjectKey) -> Vec<Arc<Agent>> {
    let mut keys = IndexKeys::new();
    for child in view.all_children() {
        let vm = child.status.as_ref().and_then(|s| s.vm.as_ref());
        // Most VMs boot from other InfraEnvs. Older records do not say from which.
        let source = vm.and_then(|vm| vm.infra_env_ref.as_ref()?.namespace.as_deref());
        let is_of_home = source.is_none_or(|n| n.is_empty() || n == home.namespace);
        let uuid = vm
            .filter(|_| is_of_home)
            .and_then(|vm| vm.bios_uuid.as_deref());
        let machine = uuid.and_then(BiosUuid::parse).map(IndexKey::machine);
        keys.extend(machine);
    }
    view.agents_with(&home.namespace, &keys)
}

/// The InfraEnv of pools, as it is in the cache.
struct Source<'a> {
    view: &'a dyn View,
    grants: &'a Grants,
    pools: &'a [Arc<VsphereAgentPool>],
    home: &'a ObjectKey,
}

impl Source<'_> {
    /// The Agent for each AgentMachine that may wait for one, by uid.
    fn assign(&self, own: &[Arc<Agent>]) -> BTreeMap<String, String> {
        let waiting = self.waiting();
        if waiting.is_empty() {
            return BTreeMap::new();
        }
        let mut excluded: HashSet<String> = own.iter().map(|a| a.name_any()).collect();
        excluded.extend(self.reserved());
        let mut offers: Vec<(Option<&LabelSelector>, std::vec::IntoIter<String>)> = Vec::new();
        let mut taken = HashSet::new();
        let mut counted = BTreeMap::new();
        for am in &waiting {
            // Whether an Agent fits depends on the selector alone, and a NodePool has one selector.
            let selector = am.spec.agent_label_selector.as_ref();
            let known = offers.iter().position(|(of, _)| *of == selector);
            let place = known.unwrap_or_else(|| {
                let fit = self.fitting(am, waiting.len(), &excluded);
                offers.push((selector, fit.into_iter()));
                offers.len() - 1
            });
            let next = offers[place].1.find(|name| !taken.contains(name));
            if let Some((uid, name)) = am.uid().zip(next) {
                taken.insert(name.clone());
                counted.insert(uid, name);
            }
        }
        counted
    }

    /// The AgentMachines of all pools that count foreign hosts of the InfraEnv, the oldest first. It asks only what every pool
    /// sees alike, and no clock.
    fn waiting(&self) -> Vec<Arc<AgentMachine>> {
        let counting = self.pools.iter().filter(|pool| {
            pool.spec.counts_foreign()
                && pool.metadata.deletion_timestamp.is_none()
                && self.grants.admit(&self.home.namespace, pool)
                && agents_home::find(self.view, self.grants, pool).0 == *self.home
        });
        let mut all = BTreeMap::new();
        for pool in counting {
            let there = self.view.agent_machines(pool.control_plane());
            for am in there.into_iter().filter(|am| asks(am)) {
                if self.grants.serves(pool, &am) {
                    let created = am.metadata.creation_timestamp.as_ref().map(|t| t.0);
                    all.insert((created, ObjectKey::of(am.as_ref())), am);
                }
            }
        }
        if all.is_empty() {
            return Vec::new();
        }
        let children = self.view.all_children();
        let with_vm: HashSet<&str> = children.iter().filter_map(|c| goal::wanted_by(c)).collect();
        let sought = all.values().flat_map(|am| index_keys::sought_by(am));
        let claimed = self
            .view
            .agents_with(&self.home.namespace, &sought.collect());
        let claimants: HashSet<&str> = claimed.iter().filter_map(|a| a.claimed_by()).collect();
        all.retain(|(_, key), am| {
            let uid = am.metadata.uid.as_deref();
            let has_agent = claimants.contains(key.name.as_str())
                && claimed.iter().any(|agent| upstream::claims(agent, am));
            !has_agent && uid.is_some_and(|uid| !with_vm.contains(uid))
        });
        all.into_values().collect()
    }

    /// Names of Agents that an AgentMachine has in its status. The provider may not have labelled them yet.
    fn reserved(&self) -> Vec<String> {
        let all = self.view.all_agent_machines();
        let named = all.iter().filter_map(|am| am.agent_ref());
        let here = named.filter(|r| r.namespace == self.home.namespace);
        here.map(|r| r.name.clone()).collect()
    }

    /// The first free foreign Agents of the InfraEnv that fit the AgentMachine, by name, and no more than `most`.
    fn fitting(&self, am: &AgentMachine, most: usize, excluded: &HashSet<String>) -> Vec<String> {
        let found = RefCell::new(Vec::new());
        let is_enough = |agent: &Agent| {
            let name = agent.name_any();
            let mut found = found.borrow_mut();
            if agent.infra_env() == Some(&self.home.name)
                && belonging::is_free_for(agent, am)
                && !excluded.contains(&name)
            {
                found.push(name);
            }
            found.len() >= most
        };
        let key = IndexKey::free_for(am);
        let _last = self.view.first_agent(&self.home.namespace, key, &is_enough);
        found.into_inner()
    }
}

/// Whether the AgentMachine waits for an Agent that the provider may choose freely. One that is pinned waits for its VM.
fn asks(am: &AgentMachine) -> bool {
    !am.is_deleting()
        && !am.is_paused()
        && am.agent_ref().is_none()
        && belonging::pinned(am).is_none()
        && am.has_provider_finalizer()
        && am.owner_machine().is_some()
        && upstream::waiting_sign(am) != WaitingSign::Other
}

#[cfg(test)]
mod tests;
