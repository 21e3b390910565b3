//! What can be done for a VM: fourteen operations, and two ways to do nothing.

use std::time::Duration;

use agent_forge_crds::conditions::Reason;

use crate::ports::{effect::EffectKind, slots::turns::Errand};

/// The next thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing now, and why.
    Hold {
        /// Why, as one word.
        reason: Reason,
        /// Sentence.
        message: String,
        /// When to look again; `None`: an event or the resync.
        again: Option<Duration>,
    },
    /// Nothing is left to do.
    Settled,
    /// Look the VM up by uuid and marker.
    Look,
    /// The predecessor's record: prove the VM by its uuid at the recorded folder, then stamp the marker.
    Prove,
    /// Resolve the place again, to compare it with the recorded one.
    Place,
    /// Record which VM the VsphereAgent is about.
    Attempt(Attempt),
    /// Record what is known of that VM and is not on record.
    Record(Entry),
    /// Create it.
    Create,
    /// Wait for the recorded task.
    Await(String),
    /// Change the configuration of the VM.
    Configure(Change),
    /// Switch the VM.
    Power(Power),
    /// Attach the tags.
    Tag,
    /// Destroy it, after a live check that its Agent is unbound.
    Destroy,
    /// Change or delete its Agent.
    Agent(AgentWork),
    /// Put our finalizer on, or take it off.
    Finalizer(Finalizer),
    /// Another VsphereAgent has the VM: remove this one, and leave VM and Agent alone.
    HandOver,
}

/// Which VM a VsphereAgent is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// One with this identity and place. The place is resolved first.
    Identity,
    /// Another one: the VM was proven absent before its Agent served.
    Next,
    /// The VM is given up, with how it looks: a live check proved that no Machine can have its Agent.
    GivenUp,
    /// It did not get the VM that it was to take over: an own one is made.
    NotTaken,
}

/// What is recorded of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// What vCenter shows.
    Seen,
    /// How an administrator of vCenter has marked it.
    Marks,
    /// Its Machine disappeared and left its Agent bound, by a live check.
    LeftBound,
    /// Its Agent has been seen unbound since.
    Unbound,
    /// It is to begin another life.
    NextLife,
    /// It was made ready, and is in that life.
    Begun(u32),
    /// The life that the VM is in: the record is older, or vCenter came back from a backup.
    Life(u32),
    /// The VM that it was to take over has its mark.
    Stamped,
    /// Its guest has started again in the new life.
    Restarted,
    /// Its Agent is back in the new life.
    Back,
    /// The instance UUID of the vCenter, in a record that has none.
    Vcenter,
    /// It is about to be reset, so that its guest boots from its disk.
    Reset,
}

/// How the configuration of a VM is changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It boots these disks, then its CD-ROM.
    BootOrder(Vec<i32>),
    /// It says that it may serve its AgentMachine, before its Agent is prepared for that.
    MayServe,
    /// Disk and ISO of that life, after a live check that its Agent is free.
    NewLife(u32),
    /// It is left to people.
    Release,
    /// Its drive has no ISO, after a live check that its Agent is installed.
    Eject,
    /// The same, as the predecessor began it and recorded it.
    FinishEjection,
}

/// How a VM is switched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// On.
    On,
    /// On although it has served: the pool wants that.
    OnAgain,
    /// Off, after a live check that its Agent is unbound.
    Off,
    /// Reset as recorded, after a live check of its Agent.
    Reset,
}

/// What is done to the Agent of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentWork {
    /// No selector matches it any more.
    Fence,
    /// It goes on without its Node being taken out of the hosted cluster, which is proven gone.
    SkipCleanup,
    /// It is deleted.
    Delete,
    /// It is deleted: its VM is dead, and a deletion hook waits for it.
    ReleaseHook,
}

/// What is done with our finalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finalizer {
    /// It is put on.
    On,
    /// It is taken off.
    Off,
}

impl Step {
    /// Its name in traces.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Hold { .. } => "vm.hold",
            Self::Settled => "vm.settled",
            Self::Look => "vm.lookup",
            Self::Prove => "vm.take_over",
            Self::Place => "vm.place_again",
            Self::Attempt(attempt) => attempt.name(),
            Self::Record(entry) => entry.name(),
            Self::Create => "vm.submit_create",
            Self::Await(_) => "vm.finish_task",
            Self::Configure(change) => change.name(),
            Self::Power(Power::On) => "vm.submit_power_on",
            Self::Power(Power::OnAgain) => "vm.power_on_again",
            Self::Power(Power::Off) => "vm.power_off",
            Self::Power(Power::Reset) => "vm.reset",
            Self::Tag => "vm.attach_tags",
            Self::Destroy => "vm.submit_destroy",
            Self::Agent(AgentWork::Fence) => "agent.fence",
            Self::Agent(AgentWork::SkipCleanup) => "agent.skip_cleanup",
            Self::Agent(AgentWork::Delete) => "agent.delete",
            Self::Agent(AgentWork::ReleaseHook) => "agent.release_hook",
            Self::Finalizer(Finalizer::On) => "vm.add_finalizer",
            Self::Finalizer(Finalizer::Off) => "vm.remove_finalizer",
            Self::HandOver => "vm.hand_over",
        }
    }

    /// The task for which the step needs a slot.
    #[must_use]
    pub const fn errand(&self) -> Option<Errand> {
        match self {
            Self::Create => Some(Errand::Create),
            Self::Prove | Self::Power(Power::Reset) => Some(Errand::Begin),
            Self::Configure(change) => Some(change.errand()),
            Self::Power(Power::On | Power::OnAgain) => Some(Errand::GoOn),
            Self::Power(Power::Off) | Self::Destroy => Some(Errand::Remove),
            _ => None,
        }
    }

    /// Whether the step makes the VM run, or says what it boots. It may follow a look after a long wait.
    #[must_use]
    pub const fn starts_vm(&self) -> bool {
        matches!(
            self,
            Self::Configure(Change::BootOrder(_)) | Self::Power(Power::On | Power::OnAgain)
        )
    }

    /// Whether a half-made VM keeps its slot during the step: the next task follows at once.
    #[must_use]
    pub const fn keeps_slot(&self) -> bool {
        matches!(
            self,
            Self::Await(_) | Self::Tag | Self::Record(Entry::Begun(_))
        )
    }

    /// What the step changes or begins to change. `None`: it only reads.
    pub(in crate::vm) const fn effect(&self) -> Option<EffectKind> {
        match self {
            Self::Hold { .. } | Self::Settled | Self::Look | Self::Place => None,
            // It promises that the VM goes.
            Self::Attempt(Attempt::GivenUp) => Some(EffectKind::Destroy),
            Self::Attempt(_) => Some(EffectKind::RecordIdentity),
            // It counts a reset.
            Self::Record(Entry::Reset) => Some(EffectKind::Reset),
            Self::Record(_) => Some(EffectKind::RecordObservation),
            Self::Create => Some(EffectKind::CreateVm),
            Self::Await(_) => Some(EffectKind::RecordTask),
            Self::Tag => Some(EffectKind::AttachTags),
            Self::Agent(AgentWork::Fence) => Some(EffectKind::FenceAgent),
            Self::Agent(AgentWork::SkipCleanup) => Some(EffectKind::SkipCleanup),
            Self::Agent(AgentWork::Delete | AgentWork::ReleaseHook) => {
                Some(EffectKind::DeleteAgent)
            }
            Self::Finalizer(Finalizer::On) => Some(EffectKind::AddFinalizer),
            Self::Finalizer(Finalizer::Off) => Some(EffectKind::RemoveChildFinalizer),
            Self::HandOver => Some(EffectKind::DeleteChild),
            Self::Prove | Self::Configure(_) | Self::Power(_) | Self::Destroy => self.call(),
        }
    }

    /// The call of the step that changes a VM: vCenter runs one at a time.
    pub(in crate::vm) const fn call(&self) -> Option<EffectKind> {
        match self {
            Self::Prove => Some(EffectKind::Reconfigure),
            Self::Configure(change) => Some(change.kind()),
            Self::Power(Power::On | Power::OnAgain) => Some(EffectKind::PowerOn),
            Self::Power(Power::Off) => Some(EffectKind::PowerOff),
            Self::Power(Power::Reset) => Some(EffectKind::Reset),
            Self::Destroy => Some(EffectKind::Destroy),
            _ => None,
        }
    }
}

impl Attempt {
    const fn name(self) -> &'static str {
        match self {
            Self::Identity => "vm.record_identity",
            Self::Next => "vm.next_attempt",
            Self::GivenUp => "vm.give_up",
            Self::NotTaken => "vm.not_taken",
        }
    }
}

impl Entry {
    const fn name(self) -> &'static str {
        match self {
            Self::Seen => "vm.record",
            Self::Marks => "vm.record_marks",
            Self::LeftBound => "vm.record_left_bound",
            Self::Unbound => "vm.record_unbound",
            Self::NextLife => "vm.record_recycle",
            Self::Begun(_) => "vm.begin_life",
            Self::Life(_) => "vm.record_life",
            Self::Stamped => "vm.record_stamped",
            Self::Restarted => "vm.record_restart",
            Self::Back => "vm.record_back",
            Self::Vcenter => "vm.name_vcenter",
            Self::Reset => "vm.record_boot_repair",
        }
    }
}

impl Change {
    const fn name(&self) -> &'static str {
        match self {
            Self::BootOrder(_) => "vm.set_boot_order",
            Self::MayServe => "vm.mark_may_serve",
            Self::NewLife(_) => "vm.renew",
            Self::Release => "vm.release_mark",
            Self::Eject => "vm.eject_iso",
            Self::FinishEjection => "vm.finish_ejection",
        }
    }

    const fn errand(&self) -> Errand {
        match self {
            Self::MayServe | Self::Eject => Errand::Begin,
            Self::BootOrder(_) | Self::FinishEjection => Errand::GoOn,
            Self::NewLife(_) | Self::Release => Errand::Remove,
        }
    }

    const fn kind(&self) -> EffectKind {
        match self {
            Self::BootOrder(_) | Self::MayServe | Self::Release => EffectKind::Reconfigure,
            Self::NewLife(_) => EffectKind::Renew,
            Self::Eject | Self::FinishEjection => EffectKind::EjectIso,
        }
    }
}
