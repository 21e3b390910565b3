//! Which free host of another pool an AgentMachine gets, and why the others are refused.
//!
//! Guarantees
//! - A pool lends only hosts of its buffer that an AgentMachine of its own could get at once, and only while none asks.
//! - Both pools are of one group, one InfraEnv and one credentials Secret, and the lender's namespace allows the taker.
//! - A host that people hold back in any way is not lent.
//!
//! [`choose`] and the refusals are pure; [`lenders`] reads the facts for them from the cached view.

#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, fmt, sync::Arc};

use agent_forge_crds::{
    agent::{HardwareDifference, VsphereAgent},
    conditions::Reason,
    external::{agent::Agent, agent_machine::AgentMachine},
    names::{AGENT_MACHINE_LABEL, RESERVED_FOR_ANNOTATION},
    pool::VsphereAgentPool,
};
use jiff::Timestamp;
use kube::ResourceExt;

use super::buffer;
use crate::{
    domain::{
        disk, goal, grants,
        hardware::Hardware,
        holds::{Check, Holds, VmMarks},
        index_keys::{IndexKey, IndexKeys},
        machine_state::MachineState,
        managed_vm::ManagedVm,
        names::ObjectKey,
        reassign::{Reservation, Source, Taking},
        recycle::{self, Says, Stage},
        template,
        upstream::{self, WaitingSign},
    },
    iso::infra_env_guards,
    ports::{cluster::View, vcenter::PowerState},
    runtime::holds,
    sessions::secret_ref,
    world::{agents_home, boundary::Grants, host::Host},
};

/// Why a pool lends nothing, or a host is not lent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The namespace of the lender does not allow pools of the taker's.
    NotGranted(String),
    /// It is of another group, or of none.
    OtherGroup,
    /// It uses another InfraEnv, or its InfraEnv does not exist.
    OtherInfraEnv,
    /// It uses another credentials Secret.
    OtherCredentials,
    /// It is being deleted.
    Deleting,
    /// An AgentMachine of its own asks for a host.
    AsksItself,
    /// People hold it back: a pause, a veto, a dry run, or a mark in vCenter.
    Held,
    /// The host is not free and ready.
    NotReady,
    /// It is reserved for another VsphereAgent.
    Reserved(String),
    /// Its disk may have data of another hosted cluster, or the taker wants a new one.
    Disk(String),
    /// It has less, or other, hardware than the taker wants.
    Hardware(Vec<HardwareDifference>),
}

impl Refusal {
    /// Only a change of the pools or of their namespaces ends it.
    #[must_use]
    pub const fn is_lasting(&self) -> bool {
        matches!(
            self,
            Self::NotGranted(_) | Self::OtherGroup | Self::OtherInfraEnv | Self::OtherCredentials
        )
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotGranted(sentence) => f.write_str(sentence),
            Self::OtherGroup => f.write_str("it is of another group, or of none"),
            Self::OtherInfraEnv => {
                f.write_str("it has another InfraEnv, or its InfraEnv does not exist")
            }
            Self::OtherCredentials => f.write_str("it has another credentials Secret"),
            Self::Deleting => f.write_str("it is being deleted"),
            Self::AsksItself => f.write_str("an AgentMachine of its own asks for a host"),
            Self::Held => f.write_str("people hold it back: a pause, a veto, a dry run or a mark"),
            Self::NotReady => f.write_str("it is not free and ready"),
            Self::Reserved(by) => write!(f, "it is reserved for {by}"),
            Self::Disk(why) => f.write_str(why),
            Self::Hardware(rows) => write!(f, "its hardware: {}", template::explain(rows)),
        }
    }
}

/// What decides whether two pools lend each other hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// Namespace of the pool.
    pub namespace: String,
    /// Its InfraEnv, if it exists.
    pub infra_env: Option<ObjectKey>,
    /// Its credentials Secret, if it may be used.
    pub secret: Option<ObjectKey>,
}

/// Why the pool at `lender` lends the one at `taker` nothing. `grant`: the annotation `allow-pools-from` of the lender's
/// namespace.
#[must_use]
pub fn admits(taker: &Side, lender: &Side, grant: Option<&str>) -> Option<Refusal> {
    if !grants_to(&taker.namespace, &lender.namespace, grant) {
        return Some(Refusal::NotGranted(format!(
            "namespace {} does not admit pools of namespace {}",
            lender.namespace, taker.namespace
        )));
    }
    if lender.infra_env.is_none() || lender.infra_env != taker.infra_env {
        return Some(Refusal::OtherInfraEnv);
    }
    (lender.secret.is_none() || lender.secret != taker.secret).then_some(Refusal::OtherCredentials)
}

/// Pools of namespace `lender` lend to pools of namespace `taker`.
fn grants_to(taker: &str, lender: &str, grant: Option<&str>) -> bool {
    lender == taker || grants::allows(grant, taker)
}

/// As [`grants_to`], by what the cache shows of the lender's namespace.
#[must_use]
pub fn is_granted(view: &dyn View, taker: &str, lender: &str) -> bool {
    grants_to(taker, lender, view.namespace_grant(lender).as_deref())
}

/// Why the pool `lender` does not lend to the pool `taker` as both are set up.
#[must_use]
pub fn consents(
    view: &dyn View,
    (taker, lender): (&VsphereAgentPool, &VsphereAgentPool),
    secret_namespaces: &[String],
) -> Option<Refusal> {
    let group = lender.spec.group();
    if group.is_none() || group != taker.spec.group() {
        return Some(Refusal::OtherGroup);
    }
    let grants = Grants::read(view, [taker, lender], std::iter::empty::<AgentMachine>());
    let side = |pool| side(view, &grants, pool, secret_namespaces);
    let (taker, lender) = (side(taker), side(lender));
    let grant = view.namespace_grant(&lender.namespace);
    admits(&taker, &lender, grant.as_deref())
}

/// What a taker does with the host on its record before it changes the mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Take,
    /// It waits: that ends by itself, or people end it.
    Wait(String),
    /// It lets go of the host, if it has not begun to change the mark.
    LetGo(String),
}

/// What decides that, read live but for the grant.
#[derive(Clone, Debug)]
pub struct Taken<'a> {
    /// The VsphereAgent that has the VM.
    pub lender: Option<&'a ManagedVm>,
    /// The record of the taker.
    pub source: &'a Source,
    /// The namespace of the lender allows that of the taker.
    pub granted: bool,
    /// What people hold back of the lender, besides its VM.
    pub held: Option<String>,
    /// The marks on the VM.
    pub marks: VmMarks,
    /// Why its disks are not for the taker's pool.
    pub disk: Option<String>,
    /// The Agent.
    pub agent: Option<&'a Agent>,
    /// What reserves it for the taker.
    pub own: &'a Reservation,
    /// The AgentMachine of the taker claims the Agent.
    pub is_own_claim: bool,
}

/// Decides it.
#[must_use]
pub fn verdict(f: &Taken<'_>) -> Verdict {
    let let_go = |why: &str| Verdict::LetGo(why.to_owned());
    let Some(lender) = f.lender.filter(|lender| lends(lender, f.source)) else {
        return let_go("the VsphereAgent that has it is gone, or needs it");
    };
    if !f.granted {
        return let_go("the lender's namespace does not admit the pool any more");
    }
    if f.marks.skip_delete || lender.skips_delete() {
        return let_go("a person keeps it (skip-delete)");
    }
    if let Some(why) = &f.disk {
        return let_go(why);
    }
    let Some(agent) = f.agent.filter(|agent| !agent.is_deleting()) else {
        return let_go("its Agent is gone");
    };
    let other = reservation(agent).is_some_and(|other| other != *f.own);
    let claimed = agent.claimed_by().is_some() || agent.cluster_order().is_some();
    if other || claimed && !f.is_own_claim {
        return let_go("its Agent serves another one, or is reserved for it");
    }
    if agent.is_claimed_or_bound() || agent.labels().contains_key(AGENT_MACHINE_LABEL) {
        let name = agent.name_any();
        return Verdict::Wait(format!("Agent {name} serves another one, or is about to"));
    }
    if recycle::says(Some(agent), false) != Says::Free {
        let (name, state) = (agent.name_any(), agent.state());
        return Verdict::Wait(format!("Agent {name} shows the state {state:?}"));
    }
    if f.marks.paused {
        return Verdict::Wait("an administrator of vCenter pauses the VM".to_owned());
    }
    match &f.held {
        Some(why) => Verdict::Wait(format!("the lender's host waits: {why}")),
        None => Verdict::Take,
    }
}

/// That VsphereAgent still has the VM that `source` names, and nothing else is planned for it.
#[must_use]
pub fn lends(lender: &ManagedVm, source: &Source) -> bool {
    let attempt = lender.vm().and_then(|vm| vm.attempt);
    lender.uid == source.uid
        && attempt.and_then(|a| u32::try_from(a).ok()) == Some(source.attempt)
        && lender.in_buffer
        && !lender.deleting
        && !lender.given_up
        && lender.identity.is_some()
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
    /// The Agent that runs there.
    pub agent: Option<Arc<Agent>>,
    /// Why it is not lent, whoever asks.
    pub refusal: Option<Refusal>,
}

impl Offer {
    /// For whom its Agent is reserved.
    #[must_use]
    pub fn reservation(&self) -> Option<Reservation> {
        reservation(self.agent.as_deref()?)
    }
}

/// A pool of the same group.
#[derive(Clone, Debug)]
pub struct Lender {
    /// The pool.
    pub key: ObjectKey,
    /// Why it lends nothing.
    pub refusal: Option<Refusal>,
    /// The hosts of its buffer.
    pub hosts: Vec<Offer>,
}

/// For whom that Agent is reserved.
#[must_use]
pub fn reservation(agent: &Agent) -> Option<Reservation> {
    Reservation::parse(agent.annotations().get(RESERVED_FOR_ANNOTATION)?)
}

/// Why that host is not for the VsphereAgent `own`, of a pool that wants `wanted`.
#[must_use]
pub fn refuses(host: &Offer, own: &Reservation, wanted: &Hardware) -> Option<Refusal> {
    if let Some(refusal) = &host.refusal {
        return Some(refusal.clone());
    }
    if let Some(other) = host.reservation().filter(|r| r != own) {
        return Some(Refusal::Reserved(other.to_string()));
    }
    let made = host.child.vm().and_then(template::recorded);
    made.map_or(Some(Refusal::NotReady), |made| suits(&made, wanted))
}

/// The host that the VsphereAgent `own` gets: the one that is reserved for it, else the oldest. `taken`: uids of VsphereAgents
/// whose hosts others get.
#[must_use]
pub fn choose<'a>(
    lenders: &'a [Lender],
    own: &Reservation,
    wanted: &Hardware,
    taken: &BTreeSet<String>,
) -> Option<&'a Offer> {
    let willing = lenders.iter().filter(|l| l.refusal.is_none());
    let hosts = willing.flat_map(|l| &l.hosts);
    hosts
        .filter(|host| !taken.contains(&host.child.uid))
        .filter(|host| refuses(host, own, wanted).is_none())
        .min_by_key(|host| order(host, own))
}

fn order(host: &Offer, own: &Reservation) -> (bool, Option<Timestamp>, String) {
    let reserved = host.reservation().as_ref() == Some(own);
    (
        !reserved,
        buffer::since(&host.child),
        host.child.uid.clone(),
    )
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
            let grant = view.namespace_grant(&lender.namespace);
            let key = ObjectKey::of(other.as_ref());
            let held = || is_held(&holds::of_pool(view, &key), now).then_some(Refusal::Held);
            let deleting = other.metadata.deletion_timestamp.is_some();
            let refusal = admits(&taker, &lender, grant.as_deref())
                .or_else(|| deleting.then_some(Refusal::Deleting))
                .or_else(held)
                .or_else(|| asks_itself(view, grants, &other).then_some(Refusal::AsksItself));
            let hosts = match refusal {
                None if asks => hosts(view, grants, (pool, &other), now),
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

/// An AgentMachine of that pool waits, and none of its VsphereAgents is for it.
fn asks_itself(view: &dyn View, grants: &Grants, pool: &VsphereAgentPool) -> bool {
    let children = view.children(&ObjectKey::of(pool));
    let made: BTreeSet<&str> = children.iter().filter_map(|c| goal::wanted_by(c)).collect();
    let all = view.agent_machines(&pool.spec.control_plane_namespace);
    all.iter().any(|am| {
        let waits = upstream::waiting_sign(am) == WaitingSign::NoSuitableAgents;
        let served = am.agent_ref().is_some()
            || am
                .metadata
                .uid
                .as_ref()
                .is_some_and(|uid| made.contains(uid.as_str()));
        waits && !served && !am.is_deleting() && !am.is_paused() && grants.serves(pool, am)
    })
}

/// Why the disks of `child`, a host of the pool `lender`, are not for the pool `taker`. `lender`: `None` if it is gone.
#[must_use]
pub fn disk_refusal(
    taker: &VsphereAgentPool,
    lender: Option<&VsphereAgentPool>,
    child: &ManagedVm,
) -> Option<Refusal> {
    let reassign = taker.spec.reassign.as_ref();
    let taker = disk::Taker {
        control_plane: &taker.spec.control_plane_namespace,
        new_only: reassign.and_then(|r| r.new_disk) == Some(true),
    };
    let lender = lender.map(|pool| pool.spec.control_plane_namespace.as_str());
    disk::refuses(child.vm()?, lender, taker).map(Refusal::Disk)
}

fn hosts(
    view: &dyn View,
    grants: &Grants,
    (taking, pool): (&VsphereAgentPool, &VsphereAgentPool),
    now: Timestamp,
) -> Vec<Offer> {
    let home = &pool.spec.control_plane_namespace;
    let (machines, agent_machines) = (view.machines(home), view.agent_machines(home));
    let is_reserved = |agent: &Agent| upstream::is_reserved(agent, &agent_machines, &machines);
    let children = view.children(&ObjectKey::of(pool)).into_iter();
    let buffered = children.map(ManagedVm::read).filter(|c| c.in_buffer);
    buffered
        .map(|child| {
            let naming = agents_home::naming(view, Some(pool), &child);
            let host = Host::read(&child, &naming, MachineState::Buffer, &is_reserved);
            let agent = host.approvable.clone();
            let free = agent.as_deref().filter(|_| !host.serves());
            let ready = free.is_some_and(|agent| is_free(view, grants, (pool, &child), agent));
            let held = is_held(&holds::of_vm(view, &child), now)
                || child.marks() != VmMarks::default()
                || child.skips_delete();
            let refusal = if held {
                Some(Refusal::Held)
            } else {
                let free = ready && !child.is_outdated() && taker(view, &child).is_none();
                let refused = (!free).then_some(Refusal::NotReady);
                refused.or_else(|| disk_refusal(taking, Some(pool), &child))
            };
            Offer {
                child,
                agent,
                refusal,
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
    // After a crash it may say that it is reserved, for this very taker.
    let nothing_waits = child.obstacle().is_none_or(|o| o == Reason::HostLent);
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
        && buffer::wait(pool, child, &choosers, approved, agent).is_none()
}

/// The VsphereAgent that has the VM of `child` on record to take it over, or has it by now. Before that, the reservation of
/// the Agent counts ([`reserved_for`]). A record that came back from a backup has another uid, and the same name and VM.
#[must_use]
pub fn taker(view: &dyn View, child: &ManagedVm) -> Option<ManagedVm> {
    let vm = child.identity.as_ref()?.bios_uuid;
    let attempt = child.vm()?.attempt.and_then(|a| u32::try_from(a).ok())?;
    let asking = view.children_asking(&IndexKeys::from([IndexKey::machine(vm)]));
    let takes = |c: &Arc<VsphereAgent>| {
        let vm = c.status.as_ref().and_then(|s| s.vm.as_ref());
        vm.is_some_and(|vm| vm.taken_from.is_some())
    };
    let mut all = asking.into_iter().filter(takes).map(ManagedVm::read);
    all.find(|other| {
        let source = other.taken_from.as_ref();
        let named = source.is_some_and(|s| s.key == child.key && s.attempt == attempt);
        let same = other.identity.as_ref().is_some_and(|i| i.bios_uuid == vm);
        named && same && matches!(other.taking(), Taking::Recorded | Taking::Done)
    })
}

/// Another pool, and its VsphereAgent for which that Agent of `child` is reserved. A pool that is gone, or is going, counts for
/// nothing. Nor does one that the namespace of `child` does not admit.
#[must_use]
pub fn reserved_for(
    view: &dyn View,
    child: &ManagedVm,
    agent: &Agent,
) -> Option<(ObjectKey, ObjectKey)> {
    let reservation = reservation(agent)?;
    let own = ObjectKey::new(&child.key.namespace, &child.object.spec.pool_ref.name);
    let pools = view.pools();
    let pool = pools.iter().find(|pool| {
        pool.metadata.uid.as_ref() == Some(&reservation.pool)
            && pool.metadata.deletion_timestamp.is_none()
    })?;
    let key = ObjectKey::of(pool.as_ref());
    let taker = ObjectKey::new(&key.namespace, &reservation.name);
    let granted = is_granted(view, &key.namespace, &own.namespace);
    (granted && key != own).then_some((key, taker))
}
