//! Which free host of another pool an AgentMachine gets, and why the others are refused.
//!
//! Guarantees
//! - A pool gives only hosts of its buffer that an AgentMachine of its own could get at once, and only while none asks.
//! - Both pools are of one group, one InfraEnv and one credentials Secret, and the namespaces of both admit each other's pools. So does
//!   that of the pool that made the host.
//! - A host that people hold back in any way is not given.
//!
//! [`for_pool`] and the refusals are pure; [`lenders`] reads the facts for them from the cached view.

mod limit;
mod people;
mod refusal;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use agent_forge_crds::{
    external::{agent::Agent, agent_machine::AgentMachine},
    pool::VsphereAgentPool,
};
use jiff::Timestamp;
use kube::ResourceExt;

use self::{
    limit::{asks_itself, left, limit},
    people::gives,
};
pub use self::{
    people::{class_for, is_for},
    refusal::Refusal,
};
use super::buffer;
use crate::{
    domain::{
        disk, grants,
        hardware::Hardware,
        holds::{Check, Holds, VmMarks},
        machine_state::MachineState,
        managed_vm::ManagedVm,
        moving,
        names::ObjectKey,
        recycle::{self, Says, Stage},
        sizes::Sizes,
        template, upstream,
    },
    iso::infra_env_guards,
    ports::{cluster::View, vcenter::PowerState},
    runtime::holds,
    sessions::secret_ref,
    world::{agents_home, boundary::Grants, half_moved, host::Host},
};

/// What decides whether two pools give each other hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// Namespace of the pool.
    pub namespace: String,
    /// Its InfraEnv, if it exists.
    pub infra_env: Option<ObjectKey>,
    /// Its credentials Secret, if it may be used.
    pub secret: Option<ObjectKey>,
}

/// Why the pool at `lender` gives the one at `taker` nothing. `grant`: the annotation `allow-pools-from` of a namespace. Both have to
/// admit the other one's pools, since what the editors of one write on a shared host counts in the other.
#[must_use]
pub fn admits(
    taker: &Side,
    lender: &Side,
    grant: impl Fn(&str) -> Option<String>,
) -> Option<Refusal> {
    let refusing = grants::refusing(&lender.namespace, &taker.namespace, grant);
    if let Some(refusing) = refusing {
        return Some(Refusal::not_granted(refusing));
    }
    if lender.infra_env.is_none() || lender.infra_env != taker.infra_env {
        return Some(Refusal::OtherInfraEnv);
    }
    (lender.secret.is_none() || lender.secret != taker.secret).then_some(Refusal::OtherCredentials)
}

/// Why the pool `lender` does not give `child` to the pool `taker`, by what both are now.
#[must_use]
pub fn still(
    view: &dyn View,
    (taker, lender): (&VsphereAgentPool, &VsphereAgentPool),
    child: &ManagedVm,
    secret_namespaces: &[String],
) -> Option<Refusal> {
    let grants = Grants::read(view, [taker, lender], std::iter::empty::<AgentMachine>());
    let side = |pool| side(view, &grants, pool, secret_namespaces);
    let grant = |name: &str| view.namespace_grant(name);
    let same = lender.spec.group().is_some() && lender.spec.group() == taker.spec.group();
    (!same)
        .then_some(Refusal::OtherGroup)
        .or_else(|| admits(&side(taker), &side(lender), grant))
        .or_else(|| limit(left(view, &grants, taker, child), child))
        .or_else(|| disk_refusal(taker, lender, child))
}

/// Why a VM with the hardware `made` is not for a pool that wants `wanted`: it has less of something, or another kind of it.
#[must_use]
pub fn suits(made: &Hardware, wanted: &Hardware) -> Option<Refusal> {
    let mut enough = made.clone();
    if made.num_cpus >= wanted.num_cpus {
        enough.num_cpus = wanted.num_cpus;
    }
    if made.memory_mib >= wanted.memory_mib {
        enough.memory_mib = wanted.memory_mib;
    }
    if made.disk_gib >= wanted.disk_gib {
        enough.disk_gib = wanted.disk_gib;
    }
    let differences = template::changes(&enough, wanted);
    (!differences.is_empty()).then_some(Refusal::Hardware(differences))
}

/// A host of another pool's buffer.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Its VsphereAgent.
    pub child: ManagedVm,
    /// The Agents that run there, or may.
    pub agents: BTreeSet<ObjectKey>,
    /// Why it is given to no pool.
    pub refusal: Option<Refusal>,
    /// How many hosts of its maker the taker may get yet. `None`: as many as there are.
    pub left: Option<usize>,
}

/// A pool of the same group.
#[derive(Clone, Debug)]
pub struct Lender {
    /// The pool.
    pub key: ObjectKey,
    /// Why it gives nothing.
    pub refusal: Option<Refusal>,
    /// The hosts of its buffer.
    pub hosts: Vec<Offer>,
}

/// Why that host is not for a pool that wants `wanted`.
#[must_use]
pub fn refuses(host: &Offer, wanted: &Hardware) -> Option<Refusal> {
    if let Some(refusal) = &host.refusal {
        return Some(refusal.clone());
    }
    let made = host.child.vm().and_then(template::recorded);
    made.map_or(Some(Refusal::NotReady), |made| suits(&made, wanted))
}

/// The free hosts of the group. The smallest is the last, and of equal ones the oldest: a large host is for those that need it.
#[must_use]
pub fn for_pool(lenders: &[Lender]) -> Vec<&Offer> {
    let willing = lenders.iter().filter(|l| l.refusal.is_none());
    let hosts = willing.flat_map(|l| &l.hosts);
    let mut all: Vec<&Offer> = hosts.filter(|host| host.refusal.is_none()).collect();
    let size = |host: &Offer| {
        let made = host.child.vm().and_then(template::recorded);
        made.map(|made| (made.memory_mib, made.num_cpus, made.disk_gib))
    };
    all.sort_by_cached_key(|host| {
        (
            size(host),
            buffer::since(&host.child),
            host.child.uid.clone(),
        )
    });
    all.reverse();
    all
}

/// The other pools of the pool's group. `asks`: with the hosts of their buffers.
#[must_use]
pub fn lenders(
    view: &dyn View,
    grants: &Grants,
    (pool, asks): (&VsphereAgentPool, bool),
    secret_namespaces: &[String],
    now: Timestamp,
) -> Vec<Lender> {
    let Some(group) = pool.spec.group() else {
        return Vec::new();
    };
    let taker = side(view, grants, pool, secret_namespaces);
    let others = view.pools().into_iter().filter(|other| {
        other.spec.group() == Some(group) && ObjectKey::of(other.as_ref()) != ObjectKey::of(pool)
    });
    let mut all: Vec<Lender> = others
        .map(|other| {
            let lender = side(view, grants, &other, secret_namespaces);
            let key = ObjectKey::of(other.as_ref());
            let held = || is_held(&holds::of_pool(view, &key), now).then_some(Refusal::Held);
            let deleting = other.metadata.deletion_timestamp.is_some();
            let refusal = admits(&taker, &lender, |name| view.namespace_grant(name))
                .or_else(|| deleting.then_some(Refusal::Deleting))
                .or_else(held)
                .or_else(|| asks_itself(view, grants, &other).then_some(Refusal::AsksItself));
            let both = (pool, &other);
            let hosts = match refusal {
                None if asks => hosts(view, grants, both, now),
                // What a person gives away, its own AgentMachines do not get either.
                None | Some(Refusal::AsksItself) if gives(view, both, now) => {
                    let mut all = hosts(view, grants, both, now);
                    all.retain(|host| is_for(&host.child, pool, now));
                    all
                }
                _ => Vec::new(),
            };
            Lender {
                key,
                refusal,
                hosts,
            }
        })
        .collect();
    all.sort_by(|a, b| a.key.cmp(&b.key));
    all
}

fn side(
    view: &dyn View,
    grants: &Grants,
    pool: &VsphereAgentPool,
    secret_namespaces: &[String],
) -> Side {
    let (key, found) = agents_home::find(view, grants, pool);
    Side {
        namespace: pool.namespace().unwrap_or_default(),
        infra_env: found.map(|_| key),
        secret: secret_ref::secret(pool, secret_namespaces).ok(),
    }
}

fn is_held(holds: &Holds, now: Timestamp) -> bool {
    let mut vetoes = holds
        .vetoes(Check::Delete)
        .chain(holds.vetoes(Check::PowerOn));
    holds::stop(holds, now).is_some() || vetoes.next().is_some()
}

/// Why the disks of `child`, a host of the pool `lender`, are not for the pool `taker`.
fn disk_refusal(
    taker: &VsphereAgentPool,
    lender: &VsphereAgentPool,
    child: &ManagedVm,
) -> Option<Refusal> {
    let reassign = taker.spec.reassign.as_ref();
    let taker = disk::Taker {
        control_plane: taker.control_plane(),
        new_only: reassign.and_then(|r| r.new_disk) == Some(true),
    };
    let lender = lender.control_plane();
    disk::refuses(child.vm()?, Some(lender), taker).map(Refusal::Disk)
}

fn hosts(
    view: &dyn View,
    grants: &Grants,
    (taking, pool): (&VsphereAgentPool, &Arc<VsphereAgentPool>),
    now: Timestamp,
) -> Vec<Offer> {
    let (home, sizes) = (pool.control_plane(), Sizes::of(pool));
    let mut lefts: BTreeMap<ObjectKey, Option<usize>> = BTreeMap::new();
    let (machines, agent_machines) = (view.machines(home), view.agent_machines(home));
    let is_reserved = |agent: &Agent| upstream::is_reserved(agent, &agent_machines, &machines);
    let children = view.children(&ObjectKey::of(pool.as_ref())).into_iter();
    let buffered = children.map(ManagedVm::read).filter(|c| c.in_buffer);
    buffered
        .map(|child| {
            let naming = agents_home::naming(view, Some(pool), &child);
            let host = Host::read(&child, &naming, MachineState::Buffer, &is_reserved);
            let free = host.approvable.as_deref().filter(|_| !host.serves());
            let seen = sizes.pool(child.class());
            let ready = free.is_some_and(|agent| is_free(view, grants, (seen, &child), agent));
            let held = is_held(&holds::of_vm(view, &child), now)
                || child.marks() != VmMarks::default()
                || child.skips_delete();
            let free =
                || ready && !child.is_outdated() && half_moved::taker(view, &child).is_none();
            let there = taking.metadata.namespace.as_deref().unwrap_or_default();
            let left = *lefts
                .entry(child.maker())
                .or_insert_with(|| left(view, grants, taking, &child));
            let grant = |name: &str| view.namespace_grant(name);
            let refusal = grants::refusing(&child.key.namespace, there, grant)
                .map(Refusal::not_granted)
                .or_else(|| limit(left, &child))
                .or_else(|| {
                    let to = moving::to(&child.object, now)?;
                    (to != ObjectKey::of(taking)).then_some(Refusal::Reserved(to))
                })
                .or_else(|| held.then_some(Refusal::Held))
                .or_else(|| (!free()).then_some(Refusal::NotReady))
                .or_else(|| disk_refusal(taking, pool, &child));
            let shown = host.possible.iter().map(|a| ObjectKey::of(a.as_ref()));
            let named = agents_home::names(Some(pool), &child).into_iter();
            Offer {
                agents: named.chain(shown).chain(child.agent.clone()).collect(),
                child,
                refusal,
                left,
            }
        })
        .collect()
}

/// Nothing is under way with it, and its Agent is as one in the buffer has to be.
fn is_free(
    view: &dyn View,
    grants: &Grants,
    (pool, child): (&VsphereAgentPool, &ManagedVm),
    agent: &Agent,
) -> bool {
    let settled = child.vm().is_some_and(|vm| {
        vm.attempt.is_some()
            && vm.moref.is_some()
            && vm.instance_uuid.is_some()
            && vm.vm_path.is_some()
            && vm.task_id.is_none()
            && vm.power_state.as_deref() == Some(PowerState::On.as_str())
            && vm.hardware_drift.is_empty()
    });
    let nothing_waits = child.obstacle().is_none();
    let (_, infra_env) = agents_home::find(view, grants, pool);
    let approved = infra_env_guards::approves(infra_env.as_deref(), agent);
    let choosers = view.all_agent_machines();
    settled
        && nothing_waits
        && !child.deleting
        && !child.adopted
        && !child.given_up
        && !child.has_served(&[])
        && child.recycling() == Stage::No
        && !child.is_taking()
        && recycle::says(Some(agent), false) == Says::Free
        && buffer::is_ready(pool, child, agent)
        && buffer::wait(pool, child, &choosers, approved, true, agent).is_none()
}
