//! Machines as people see them. The commands and the web page select, sort and print what is here.

pub mod chain;
pub mod decide;
pub mod explain;
pub mod found;
pub mod join;
mod progress;
pub mod row;
pub mod state;
#[cfg(test)]
mod tests;
pub mod waits;

use std::collections::{BTreeMap, BTreeSet};

use agent_forge_actors::{
    domain::{goal, names::ObjectKey},
    ports::cluster::View as _,
    world::boundary::Grants,
};
use jiff::Timestamp;

use self::{
    join::Join,
    row::{Machine, OfPool},
};
use crate::cluster::view::Caches;

/// All machines.
pub struct Machines {
    /// By pool. A VsphereAgent whose pool is gone still has a VM.
    pub pools: Vec<OfPool>,
    /// Which pools are admitted by the namespaces that pools and AgentMachines name.
    pub grants: Grants,
}

impl Machines {
    /// The Agents that run on VMs of agent-forge.
    #[must_use]
    pub fn agents(&self) -> BTreeSet<ObjectKey> {
        let all = self.pools.iter().flat_map(|p| &p.machines);
        let all = all.filter(|m| m.found.child.is_some());
        let agents = all.filter_map(|m| m.found.agent.as_deref());
        agents.map(ObjectKey::of).collect()
    }
}

/// One row for each machine, by pool. A pure function of the caches. It takes time in proportion to the number of objects.
#[must_use]
pub fn machines(caches: &Caches, now: Timestamp) -> Machines {
    let join = Join::new(caches);
    let mut by_pool: BTreeMap<ObjectKey, Vec<Machine>> = BTreeMap::new();
    let mut served = BTreeSet::new();
    for child in join.children() {
        let found = join.of_child(child.clone());
        // The record of the VM says so some seconds later.
        if let Some(am) = found.agent_machine.as_ref().filter(|_| found.is_reserved()) {
            served.extend(am.metadata.uid.clone());
        }
        let row = Machine::of_child(found, child);
        // A host is shown where both namespaces admit that, else with the pool that made it.
        let refused = goal::refusing(&child.object, |name| caches.namespace_grant(name));
        let pool = refused.map_or_else(|| child.pool.clone(), |_| child.maker());
        by_pool.entry(pool).or_default().push(row);
    }
    for pool in caches.pools() {
        let rows = by_pool.entry(ObjectKey::of(pool.as_ref())).or_default();
        for am in caches.agent_machines(pool.control_plane()) {
            let is_served = am.metadata.uid.as_ref().is_some_and(|u| served.contains(u));
            if !is_served && let Some(found) = join.of_demand(&pool, &am) {
                rows.push(Machine::of_demand(found, &am));
            }
        }
    }
    let pools = by_pool.into_iter();
    let pools = pools.map(|(key, rows)| OfPool::of(caches, key, rows, now));
    let pools = pools.collect();
    let grants = join.into_grants();
    Machines { pools, grants }
}
