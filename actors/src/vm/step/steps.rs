//! The steps in the life of a VM.

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
    /// Put our finalizer on.
    AddFinalizer,
    /// Resolve the place and record identity and place.
    RecordIdentity,
    /// Wait for the recorded task.
    FinishTask(String),
    /// Look the VM up by uuid and marker.
    Lookup,
    /// The predecessor's record: prove the VM by its uuid at the recorded folder, then stamp the marker.
    TakeOver,
    /// Resolve the place again, to compare it with the recorded one.
    PlaceAgain,
    /// Create it.
    Create,
    /// The VM was proven absent before its Agent served: use a new identity and a new place.
    NextAttempt,
    /// A live check proved that its Agent has not registered in time: record that the VM is given up, and how it looks.
    GiveUp,
    /// Set the boot order to these disks, then CD-ROM.
    SetBootOrder(Vec<i32>),
    /// Power it on.
    PowerOn,
    /// Power it on although it has served: the pool wants that.
    PowerOnAgain,
    /// Record what vCenter shows.
    RecordVm,
    /// Record how an administrator of vCenter has marked it.
    RecordMarks,
    /// Record that its Machine disappeared and left its Agent bound, after a live check.
    RecordLeftBound,
    /// Record that its Agent has been seen unbound since.
    RecordUnbound,
    /// Record that it is to begin another life.
    RecordRecycle,
    /// Make it ready for that life: disk and ISO, after a live check that its Agent is free.
    Renew(u32),
    /// It is ready: record that it is in that life.
    BeginLife(u32),
    /// Record the life that the VM is in: the record is older, or vCenter came back from a backup.
    RecordLife(u32),
    /// Record the VM that it takes over from a VsphereAgent of another pool.
    RecordTaken,
    /// Write its mark onto that VM, after a live check that the Agent is free.
    Stamp,
    /// Write into it that it may serve its AgentMachine, before its Agent is prepared for that.
    MarkMayServe,
    /// Record that the VM has its mark.
    RecordStamped,
    /// Record that it did not get that VM: an own one is made.
    NotTaken,
    /// Another VsphereAgent has the VM: remove this one, and leave VM and Agent alone.
    HandOver,
    /// Record that its guest has started anew in the new life.
    RecordRestart,
    /// Let its Agent go on without its Node being taken out of the hosted cluster, which is proven gone.
    SkipCleanup,
    /// Record that its Agent is back in the new life.
    RecordBack,
    /// Record the instance UUID of the vCenter in a record that has none.
    NameVcenter,
    /// Attach the tags.
    AttachTags,
    /// Take the ISO out of its drive, after a live check that its Agent is installed.
    EjectIso,
    /// Record that it is about to be reset, so that its guest boots from its disk.
    RecordBootRepair,
    /// Reset it as recorded, after a live check of its Agent.
    ResetVm,
    /// Finish what the predecessor began: take the ISO on record out of its drive.
    FinishEjection,
    /// Write into its mark that it is left to people.
    Disown,
    /// Make sure that no selector matches the Agent.
    FenceAgent,
    /// Power it off, after a live check that its Agent is unbound.
    PowerOff,
    /// Destroy it, after the same check.
    Destroy,
    /// Delete the Agent.
    DeleteAgent,
    /// Delete the Agent of a dead VM that a deletion hook waits for.
    ReleaseHook,
    /// Take our finalizer off.
    RemoveFinalizer,
    /// Nothing is left to do.
    Settled,
}

impl Step {
    /// Its name in traces.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Hold { .. } => "vm.hold",
            Self::AddFinalizer => "vm.add_finalizer",
            Self::RecordIdentity => "vm.record_identity",
            Self::FinishTask(_) => "vm.finish_task",
            Self::Lookup => "vm.lookup",
            Self::TakeOver => "vm.take_over",
            Self::PlaceAgain => "vm.place_again",
            Self::Create => "vm.submit_create",
            Self::NextAttempt => "vm.next_attempt",
            Self::GiveUp => "vm.give_up",
            Self::SetBootOrder(_) => "vm.set_boot_order",
            Self::PowerOn => "vm.submit_power_on",
            Self::PowerOnAgain => "vm.power_on_again",
            Self::RecordVm => "vm.record",
            Self::RecordMarks => "vm.record_marks",
            Self::RecordLeftBound => "vm.record_left_bound",
            Self::RecordUnbound => "vm.record_unbound",
            Self::RecordRecycle => "vm.record_recycle",
            Self::Renew(_) => "vm.renew",
            Self::BeginLife(_) => "vm.begin_life",
            Self::RecordLife(_) => "vm.record_life",
            Self::RecordTaken => "vm.record_taken",
            Self::Stamp => "vm.stamp",
            Self::MarkMayServe => "vm.mark_may_serve",
            Self::RecordStamped => "vm.record_stamped",
            Self::NotTaken => "vm.not_taken",
            Self::HandOver => "vm.hand_over",
            Self::RecordRestart => "vm.record_restart",
            Self::SkipCleanup => "agent.skip_cleanup",
            Self::RecordBack => "vm.record_back",
            Self::NameVcenter => "vm.name_vcenter",
            Self::AttachTags => "vm.attach_tags",
            Self::EjectIso => "vm.eject_iso",
            Self::RecordBootRepair => "vm.record_boot_repair",
            Self::ResetVm => "vm.reset",
            Self::FinishEjection => "vm.finish_ejection",
            Self::Disown => "vm.release_mark",
            Self::FenceAgent => "agent.fence",
            Self::PowerOff => "vm.power_off",
            Self::Destroy => "vm.submit_destroy",
            Self::DeleteAgent => "agent.delete",
            Self::ReleaseHook => "agent.release_hook",
            Self::RemoveFinalizer => "vm.remove_finalizer",
            Self::Settled => "vm.settled",
        }
    }

    /// The task for which the step needs a slot.
    #[must_use]
    pub const fn errand(&self) -> Option<Errand> {
        match self {
            Self::Create => Some(Errand::Create),
            Self::TakeOver | Self::Stamp | Self::MarkMayServe | Self::EjectIso | Self::ResetVm => {
                Some(Errand::Begin)
            }
            Self::SetBootOrder(_) | Self::PowerOn | Self::PowerOnAgain | Self::FinishEjection => {
                Some(Errand::GoOn)
            }
            Self::PowerOff | Self::Destroy | Self::Disown | Self::Renew(_) => Some(Errand::Remove),
            _ => None,
        }
    }

    /// Whether the step makes the VM run, or says what it boots. It may follow a look after a long wait.
    #[must_use]
    pub const fn starts_vm(&self) -> bool {
        matches!(
            self,
            Self::SetBootOrder(_) | Self::PowerOn | Self::PowerOnAgain
        )
    }

    /// Whether a half-made VM keeps its slot during the step: the next task follows at once.
    #[must_use]
    pub const fn keeps_slot(&self) -> bool {
        matches!(
            self,
            Self::FinishTask(_) | Self::AttachTags | Self::BeginLife(_)
        )
    }

    /// What the step changes or begins to change. `None`: it only reads.
    pub(in crate::vm) const fn effect(&self) -> Option<EffectKind> {
        match self {
            Self::AddFinalizer => Some(EffectKind::AddFinalizer),
            Self::Create => Some(EffectKind::CreateVm),
            Self::AttachTags => Some(EffectKind::AttachTags),
            Self::FenceAgent => Some(EffectKind::FenceAgent),
            Self::SkipCleanup => Some(EffectKind::SkipCleanup),
            // It promises that the VM goes.
            Self::GiveUp => Some(EffectKind::Destroy),
            // It counts a reset.
            Self::RecordBootRepair => Some(EffectKind::Reset),
            Self::DeleteAgent | Self::ReleaseHook => Some(EffectKind::DeleteAgent),
            Self::RemoveFinalizer => Some(EffectKind::RemoveChildFinalizer),
            Self::RecordIdentity | Self::NextAttempt | Self::RecordTaken | Self::NotTaken => {
                Some(EffectKind::RecordIdentity)
            }
            Self::HandOver => Some(EffectKind::DeleteChild),
            Self::FinishTask(_) => Some(EffectKind::RecordTask),
            Self::RecordVm
            | Self::RecordMarks
            | Self::RecordLeftBound
            | Self::RecordUnbound
            | Self::RecordRecycle
            | Self::RecordStamped
            | Self::BeginLife(_)
            | Self::RecordLife(_)
            | Self::RecordRestart
            | Self::RecordBack
            | Self::NameVcenter => Some(EffectKind::RecordObservation),
            _ => self.call(),
        }
    }

    /// The call of the step that changes a VM: vCenter runs one at a time.
    pub(in crate::vm) const fn call(&self) -> Option<EffectKind> {
        match self {
            Self::TakeOver
            | Self::Stamp
            | Self::MarkMayServe
            | Self::SetBootOrder(_)
            | Self::Disown => Some(EffectKind::Reconfigure),
            Self::PowerOn | Self::PowerOnAgain => Some(EffectKind::PowerOn),
            Self::PowerOff => Some(EffectKind::PowerOff),
            Self::ResetVm => Some(EffectKind::Reset),
            Self::Destroy => Some(EffectKind::Destroy),
            Self::Renew(_) => Some(EffectKind::Renew),
            Self::EjectIso | Self::FinishEjection => Some(EffectKind::EjectIso),
            _ => None,
        }
    }
}
