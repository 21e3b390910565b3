//! What is planned in a pass: the actions, what waits, and when to look again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use agent_forge_crds::{
    agent::NextLife, conditions::Reason, external::agent_machine::AgentMachine,
};
use kube::ResourceExt;

use super::secrets::SecretPlan;
use crate::{
    demand::lending::Offer,
    domain::{managed_vm::ManagedVm, names::ObjectKey, upstream::MachineFacts},
    lifecycle::ReleaseReason,
    ports::{
        cluster::AgentPatch,
        effect::{Effect, EffectKind, Subject},
    },
    world::classify::Demand,
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
        /// Class of the host.
        class: Option<String>,
    },
    /// Take a free host of another pool for a waiting AgentMachine, after live proof.
    Take {
        /// The host.
        host: Offer,
        /// The AgentMachine that gets it.
        to: Arc<AgentMachine>,
        /// Its Machine.
        machine: MachineFacts,
        /// Class that the host has from then on.
        class: Option<String>,
    },
    /// Take a free host of another pool into the buffer, as a person wishes, after live proof.
    Bring {
        /// The host.
        host: Offer,
        /// Class that the host has from then on.
        class: Option<String>,
    },
    /// Create a VsphereAgent for the buffer.
    CreateForBuffer {
        /// Name of the VsphereAgent.
        name: String,
        /// Class of the host.
        class: Option<String>,
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
        /// The life that its VM is to begin, if its guest ever registered ([`crate::domain::recycle::next`]).
        life: Option<NextLife>,
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
            Self::CreateChild { name, .. } | Self::CreateForBuffer { name, .. } => Effect::new(
                EffectKind::CreateChild,
                Subject::Vm {
                    key: ObjectKey::new(&pool.namespace, name),
                    pool: Some(pool.clone()),
                },
            ),
            Self::Take { host, .. } | Self::Bring { host, .. } => {
                of_vm(EffectKind::ReassignChild, &host.child)
            }
            Self::Reassign { child, .. }
            | Self::MoveToBuffer { child, .. }
            | Self::Recycle { child, .. } => of_vm(EffectKind::ReassignChild, child),
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

impl BufferCount {
    pub(super) fn add(&mut self, more: Self) {
        self.wanted += more.wanted;
        self.ready += more.ready;
        self.making += more.making;
    }
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
    /// The part of it that each class of `spec.classes` has.
    pub buffer_classes: BTreeMap<String, BufferCount>,
    /// uids of the VsphereAgents that stay in the buffer.
    pub buffered: BTreeSet<String>,
    /// How many more hosts of each class may stay in the buffer.
    pub buffer_room: BTreeMap<Option<String>, usize>,
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
    /// The room of the class of `child` in the buffer.
    pub(super) fn room_for(&mut self, child: &ManagedVm) -> &mut usize {
        let class = child.class().map(str::to_owned);
        self.buffer_room.entry(class).or_default()
    }

    pub(super) fn wait(
        &mut self,
        subject: impl Into<String>,
        reason: Reason,
        message: impl Into<String>,
    ) {
        self.waiting.push(Waiting {
            subject: subject.into(),
            reason,
            message: message.into(),
        });
    }

    pub(super) fn look_again(&mut self, after: Duration) {
        self.again = Some(self.again.map_or(after, |a| a.min(after)));
    }
}
