//! The pool's decision: from one [`Observed`] to one [`Plan`]. Pure: the same facts give the same plan.
//!
//! Guarantees
//! - An AgentMachine has at most one VsphereAgent: one that exists or is being deleted holds back the next.
//! - An Agent is prepared only if the identity rule says that it runs on a VM of ours, and its AgentMachine waits.
//! - An Agent whose Machine is being deleted is fenced before anything else is decided about its VM.
//! - A VsphereAgent is released only if its Agent is fenced and unbound. The executor first proves by live reads that
//!   the Machine is gone.

mod buffer;
mod caps;
mod demand;
pub mod iso;
mod lend;
#[cfg(test)]
mod tests;
mod vm;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use agent_forge_crds::{
    conditions::Reason,
    external::{agent::Agent, agent_machine::AgentMachine},
    names::{AGENT_MACHINE_LABEL, POOL_FINALIZER},
};
use kube::ResourceExt;

pub(super) use self::{buffer::BUFFER, vm::fence};
use super::{
    observed::Observed,
    secret_finalizers::{self, SecretPlan},
};
use crate::{
    domain::{
        managed_vm::{ManagedVm, Recorded},
        names::ObjectKey,
        upstream::{self, MachineFacts},
    },
    lifecycle::ReleaseReason,
    ports::{
        cluster::AgentPatch,
        effect::{Effect, EffectKind, Subject},
    },
    sessions::secret_ref,
    world::{
        agents_home,
        classify::{self, Demand},
    },
};

/// One action on a machine or on the pool. The executor does not decide anything more about it.
#[derive(Clone, Debug)]
pub enum Action {
    /// Put our finalizer on the pool.
    AddFinalizer,
    /// Write `status.closed`: no new children from here on.
    Close,
    /// Pin the AgentMachine to the host that will be made for it.
    Pin {
        /// AgentMachine.
        agent_machine: Arc<AgentMachine>,
        /// Pin value.
        pin: String,
    },
    /// Create the VsphereAgent for a waiting AgentMachine.
    CreateChild {
        /// AgentMachine.
        agent_machine: Arc<AgentMachine>,
        /// Its Machine.
        machine: MachineFacts,
        /// Name of the VsphereAgent.
        name: String,
    },
    /// Take a free host of another pool for a waiting AgentMachine: reserve its Agent, and create the VsphereAgent that takes
    /// the VM over.
    Borrow {
        /// AgentMachine.
        agent_machine: Arc<AgentMachine>,
        /// Its Machine.
        machine: MachineFacts,
        /// Name of the VsphereAgent.
        name: String,
        /// VsphereAgent of the other pool.
        lender: ManagedVm,
        /// The Agent that runs there.
        agent: Arc<Agent>,
    },
    /// Take off an Agent that it is reserved: that means nothing any more.
    Unreserve {
        /// What is removed from the Agent.
        patch: AgentPatch,
        /// VsphereAgent.
        child: ManagedVm,
    },
    /// Create a VsphereAgent for the buffer.
    CreateForBuffer {
        /// Name of the VsphereAgent.
        name: String,
    },
    /// Record that a VsphereAgent whose VM no AgentMachine needs is in the buffer now, after live proof.
    MoveToBuffer {
        /// VsphereAgent.
        child: ManagedVm,
        /// Why no AgentMachine needs it.
        why: ReleaseReason,
    },
    /// Keep a VM whose Machine is gone: record that its VsphereAgent is in the buffer now, after live proof.
    Recycle {
        /// VsphereAgent.
        child: ManagedVm,
        /// The life that its VM is to begin, if its guest ever registered ([`crate::domain::recycle::request`]).
        request: Option<String>,
    },
    /// Record that a VsphereAgent is for another AgentMachine now.
    Reassign {
        /// VsphereAgent.
        child: ManagedVm,
        /// AgentMachine.
        agent_machine: Arc<AgentMachine>,
        /// Its Machine, if known.
        machine: Option<MachineFacts>,
    },
    /// Prepare an Agent, after a live look at the VsphereAgent whose VM it runs on.
    Prepare {
        /// What the Agent gets.
        patch: AgentPatch,
        /// VsphereAgent.
        child: ManagedVm,
    },
    /// Fence an Agent. If it is bound, only after a live look at the Machine that it serves.
    Fence {
        /// What is removed from the Agent.
        patch: AgentPatch,
        /// VsphereAgent.
        child: ManagedVm,
    },
    /// Delete a VsphereAgent, after live proof.
    Release {
        /// VsphereAgent.
        child: ManagedVm,
        /// Why it may go.
        why: ReleaseReason,
    },
    /// Take our finalizer off the pool, after a live list of its children came back empty.
    RemoveFinalizer,
}

impl Action {
    /// What it changes, in the pool of that key.
    #[must_use]
    pub fn effect(&self, pool: &ObjectKey) -> Effect {
        let of_pool = |kind| Effect::new(kind, Subject::Pool(pool.clone()));
        let of_vm = |kind, child: &ManagedVm| Effect::new(kind, Subject::vm(&child.object));
        match self {
            Self::AddFinalizer => of_pool(EffectKind::AddFinalizer),
            Self::Close => of_pool(EffectKind::PoolStatus),
            Self::Pin { agent_machine, .. } => Effect::new(
                EffectKind::PinSelector,
                // Its VsphereAgent will have that name.
                Subject::Vm {
                    key: ObjectKey::new(&pool.namespace, agent_machine.name_any()),
                    pool: Some(pool.clone()),
                },
            ),
            Self::CreateChild { name, .. }
            | Self::Borrow { name, .. }
            | Self::CreateForBuffer { name } => Effect::new(
                EffectKind::CreateChild,
                Subject::Vm {
                    key: ObjectKey::new(&pool.namespace, name),
                    pool: Some(pool.clone()),
                },
            ),
            Self::Reassign { child, .. }
            | Self::MoveToBuffer { child, .. }
            | Self::Recycle { child, .. } => of_vm(EffectKind::ReassignChild, child),
            Self::Unreserve { child, .. } => of_vm(EffectKind::ReserveAgent, child),
            Self::Prepare { child, .. } => of_vm(EffectKind::PrepareAgent, child),
            Self::Fence { child, .. } => of_vm(EffectKind::FenceAgent, child),
            Self::Release { child, .. } => of_vm(EffectKind::DeleteChild, child),
            Self::RemoveFinalizer => of_pool(EffectKind::RemovePoolFinalizer),
        }
    }
}

/// Something that is not done now, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// AgentMachine, VsphereAgent or other subject.
    pub subject: String,
    /// Why, as one word.
    pub reason: Reason,
    /// Sentence.
    pub message: String,
}

/// Hosts in the buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferCount {
    /// How many there are to be.
    pub wanted: usize,
    /// How many an AgentMachine could get at once.
    pub ready: usize,
    /// How many are on their way.
    pub making: usize,
}

/// What to do, what to leave, and when to look again.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Every AgentMachine of the pool, and whether it asks for a host.
    pub demands: Vec<Demand>,
    /// To be carried out in this order.
    pub actions: Vec<Action>,
    /// What does not happen, and why.
    pub waiting: Vec<Waiting>,
    /// When the answer changes by time alone.
    pub again: Option<Duration>,
    /// uids of the VsphereAgents whose VMs are offered to the next AgentMachine that waits.
    pub spare: BTreeSet<String>,
    /// The buffer, if the pool has one.
    pub buffer: BufferCount,
    /// uids of the VsphereAgents that stay in the buffer.
    pub buffered: BTreeSet<String>,
    /// How many more hosts may stay in the buffer.
    pub buffer_room: usize,
    /// uids of the AgentMachines that a limit of the pool keeps from getting a VM now.
    pub capped: BTreeSet<String>,
    /// uids of the AgentMachines that get their pin.
    pub pins: BTreeSet<String>,
    /// How much longer a VM that no Machine needs is kept for those that ask.
    pub wait_left: Option<Duration>,
    /// What is done with the Secrets of the pool.
    pub secrets: SecretPlan,
    /// The pool no longer asks for an ISO, or all work on it stops from now on: a transfer for it ends.
    pub leave_iso: bool,
}

impl Plan {
    fn wait(&mut self, subject: impl Into<String>, reason: Reason, message: impl Into<String>) {
        self.waiting.push(Waiting {
            subject: subject.into(),
            reason,
            message: message.into(),
        });
    }

    fn look_again(&mut self, after: Duration) {
        self.again = Some(self.again.map_or(after, |a| a.min(after)));
    }
}

/// Decides.
#[must_use]
pub fn plan(s: &Observed) -> Plan {
    let mut plan = Plan::default();
    let deleting = s.pool.metadata.deletion_timestamp.is_some();
    let stop_begins = s.stop().is_some() && !s.was_stopped;
    plan.leave_iso = deleting || s.may_have_lost_source() || stop_begins;
    let guard = s.guard();
    let has_finalizer = s.pool.finalizers().iter().any(|f| f == POOL_FINALIZER);
    plan.demands = classify::classify(&classify::Facts {
        pool: &s.pool,
        grants: &s.grants,
        other_pools: &s.other_pools,
        agent_machines: &s.agent_machines,
        machines: &s.machines,
        agents: &s.agents,
        agent_namespace: &s.infra_env_key.namespace,
        in_flight: &|am| {
            let made = am.metadata.uid.as_ref();
            s.child_for(am).is_some() || made.is_some_and(|uid| s.was_served(uid))
        },
        on_record: &|am| s.child_for(am).is_some_and(|c| c.identity.is_some()),
        made_by_others: &s.made_by_others,
        guard: guard.as_ref(),
        waiting_since: &s.waiting_since,
        now: s.now,
        wall: s.wall,
    });
    if deleting {
        if !has_finalizer {
            return plan;
        }
        if s.pool.status.as_ref().and_then(|st| st.closed) != Some(true) {
            plan.actions.push(Action::Close);
        } else if s.children.is_empty() && secret_ref::on_record(&s.pool).is_empty() {
            plan.actions.push(Action::RemoveFinalizer);
        }
    } else if !has_finalizer {
        plan.actions.push(Action::AddFinalizer);
    }
    let records = Records::of(&plan.demands);
    let reassigned = if deleting {
        BTreeSet::new()
    } else {
        let mut reassigned = demand::assign_hosts(s, &records, &mut plan);
        caps::apply(s, &mut plan);
        buffer::fill(s, &mut reassigned, &mut plan);
        reassigned
    };
    // An AgentMachine that a limit holds back waits for exactly such a VM to go.
    let others = plan.demands.iter();
    let others = others.filter(|c| !plan.capped.contains(&c.uid()));
    plan.wait_left = others.filter_map(|c| vm::keeps(s, c)).max();
    for child in s.children.iter().filter(|c| !reassigned.contains(&c.key)) {
        vm::plan_vm(s, child, &records, deleting, &mut plan);
    }
    plan.secrets = secret_finalizers::plan(s);
    plan
}

/// Finds the demand of the AgentMachine that a VsphereAgent records.
struct Records {
    names: HashMap<String, usize>,
    uids: HashMap<String, usize>,
}

impl Records {
    fn of(demands: &[Demand]) -> Self {
        let (mut names, mut uids) = (HashMap::new(), HashMap::new());
        for (at, demand) in demands.iter().enumerate() {
            names.entry(demand.name()).or_insert(at);
            uids.entry(demand.uid()).or_insert(at);
        }
        Self { names, uids }
    }

    /// The demand of the AgentMachine on record.
    fn find<'a>(&self, demands: &'a [Demand], record: Option<&Recorded>) -> Option<&'a Demand> {
        let record = record?;
        let at = match &record.uid {
            Some(uid) => self.uids.get(uid),
            None => self.names.get(&record.name),
        };
        demands.get(*at?)
    }

    /// The demand of the AgentMachine that has claimed that Agent.
    fn served_by<'a>(&self, demands: &'a [Demand], agent: &Agent) -> Option<&'a Demand> {
        let demand = demands.get(*self.names.get(agent.claimed_by()?)?)?;
        upstream::claims(agent, &demand.agent_machine).then_some(demand)
    }
}

/// The child was made for this AgentMachine.
fn is_for(child: &ManagedVm, am: &AgentMachine) -> bool {
    child
        .agent_machine
        .as_ref()
        .is_some_and(|r| r.is_object(&am.metadata))
}

/// Agents to read live before the child's VM may be removed. They are those that may run there, the one that was last
/// seen there, and those with a name of the VM's Agents.
#[must_use]
pub fn agents_to_ask(s: &Observed, child: &ManagedVm) -> BTreeSet<ObjectKey> {
    s.host(child)
        .possible
        .iter()
        .map(|a| ObjectKey::of(a.as_ref()))
        .chain(child.agent.clone())
        .chain(agents_home::names(Some(&s.pool), child))
        .collect()
}

/// The Agent of the AgentMachine is the one on this child's VM, or may be.
fn served_by_child(s: &Observed, demand: &Demand, child: &ManagedVm) -> bool {
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
