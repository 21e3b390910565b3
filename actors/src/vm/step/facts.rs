//! What the decision about a VM is made from, grouped by where each fact comes from.

use std::time::Duration;

use agent_forge_crds::{agent::VmStatus, conditions::Reason};
use jiff::Timestamp;

use crate::{
    domain::{
        machine_state::MachineState,
        names::ObjectKey,
        reassign::Taking,
        recycle::{Says, Stage},
        vanished::Vanished,
    },
    iso::infra_env_guards::Guard,
    lifecycle::Policy,
    ports::effect::EffectKind,
    vm::{arrival::Arrival, boot_repair::Repair, ownership::Ownership, power_policy::Again},
};

/// All facts of one decision.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The VsphereAgent.
    pub object: ObjectState,
    /// What its status says of the VM.
    pub record: Record<'a>,
    /// Its pool.
    pub pool: PoolState<'a>,
    /// The VM.
    pub vm: VmState<'a>,
    /// How far the create of the VM is.
    pub create: CreateState,
    /// The Agent of the VM.
    pub agent: AgentState<'a>,
    /// The Machine that the VM is for.
    pub owner: OwnerState<'a>,
    /// Whether the Agent of the VM is awaited, overdue, or given up.
    pub arrival: Arrival,
    /// How far the VM is on its way into another life.
    pub recycle: RecycleState,
    /// How far the VM is on its way to another VsphereAgent, or from one.
    pub reassign: ReassignState<'a>,
    /// What the VM says in vCenter of its guest.
    pub mark: MarkState,
    /// Monotonic now.
    pub now: Duration,
}

/// The VsphereAgent itself.
#[derive(Clone, Copy, Debug)]
pub struct ObjectState {
    /// It has our finalizer.
    pub has_finalizer: bool,
    /// It has a deletionTimestamp.
    pub deleting: bool,
    /// It names a VM that the operator did not make and has not adopted.
    pub adopted: bool,
    /// A person asks to adopt that VM.
    pub adopting: bool,
    /// A person forces the deletion: it is being deleted, and the annotation says so.
    pub forced: bool,
    /// The recorded cluster id differs from ours.
    pub cluster_changed: bool,
}

/// What the status of the VsphereAgent says of the VM.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The recorded VM.
    pub vm: Option<&'a VmStatus>,
    /// The recorded BIOS UUID is valid.
    pub has_identity: bool,
    /// Whether somebody removed the record.
    pub loss: Loss,
    /// Whether the record names the vCenter that the last step used; `None`: no step used one yet.
    pub vcenter: Option<bool>,
    /// The predecessor began to empty a drive of the VM, and was replaced before it had finished.
    pub ejecting: bool,
}

/// The pool of the VsphereAgent.
#[derive(Clone, Copy, Debug)]
pub struct PoolState<'a> {
    /// The pool exists.
    pub exists: bool,
    /// How it wants its VMs to end, or what is recorded of that where the pool is gone.
    pub policy: Policy,
    /// What about the InfraEnv forbids a new VM.
    pub guard: Option<&'a Guard>,
    /// The discovery ISO is ready.
    pub iso_ready: bool,
    /// The credentials Secret has our finalizer.
    pub credentials_held: bool,
    /// A namespace that the pool needs does not admit it: the sentence for people.
    pub refused: Option<&'a str>,
    /// When its VMs may be switched on, and how long until then. `None`: now.
    pub power_on_after: Option<(Timestamp, Duration)>,
    /// Why they are not switched on yet: another pool starts before.
    pub start_after: Option<&'a str>,
}

/// The VM, as far as this actor has looked.
#[derive(Clone, Copy, Debug)]
pub struct VmState<'a> {
    /// What the last look in vCenter showed.
    pub seen: &'a Ownership,
    /// The last scan did not show the recorded VM as running, vCenter has told a change of it, or its tags could not be
    /// attached as it was not there.
    pub missing_in_scan: bool,
    /// The recorded VM folder was deleted in vCenter.
    pub folder_deleted: bool,
    /// vCenter has refused [`super::SUSPENDED_TRIES`] times to switch off the suspended VM.
    pub stays_suspended: bool,
    /// This actor switched it on, and saw no Agent of it since, or only one that is lost. Or the VM is in a new life, and says
    /// that its host was offered to nobody in that.
    pub powered_on_by_us: bool,
    /// This actor has switched it off, after proof that nobody needs it, and no look has shown it on since.
    pub switched_off_by_us: bool,
    /// Nothing is to be done for its tags: they are attached, there are none, or its host serves.
    pub tagged: bool,
    /// The ISO is to be taken out of its drive: the pool wants that and its Agent is installed, or its guest booted it
    /// again.
    pub eject: bool,
    /// What becomes of it if somebody has switched it off.
    pub again: Again,
    /// What is to be done because its guest booted the discovery ISO instead of its disk.
    pub repair: Repair,
    /// A call that is not tried now, since the VM was busy.
    pub resting: Option<Resting<'a>>,
}

/// How far the create of the VM is.
#[derive(Clone, Copy, Debug)]
pub struct CreateState {
    /// This actor recorded the identity itself, and no create of it had an effect, or may still have one.
    pub not_sent: bool,
    /// The files of this attempt exist, although no VM of ours does.
    pub path_taken: bool,
    /// Whether the recorded place is still the right one.
    pub place: PlacementCheck,
}

/// The Agent of the VM.
#[derive(Clone, Copy, Debug)]
pub struct AgentState<'a> {
    /// An Agent that runs there exists.
    pub present: bool,
    /// No selector matches that Agent.
    pub fenced: bool,
    /// An Agent that runs there, or may run there, serves a Machine or is about to.
    pub bound: bool,
    /// Each Agent that serves matches the VM only in part: which one, and what is different.
    pub unproven: Option<&'a str>,
    /// An Agent that matches the VM existed before the VM was switched on for the first time.
    pub early: Option<&'a str>,
    /// An Agent of this VM was bound once.
    pub has_served: bool,
    /// An Agent that may run there registered once. It may be gone.
    pub registered: bool,
    /// The service hears from the Agent that runs there.
    pub answers: bool,
    /// A look showed a guest that may be a node whose Agent is missing.
    pub guest_may_be_node: bool,
}

/// The Machine that the VM is for.
#[derive(Clone, Copy, Debug)]
pub struct OwnerState<'a> {
    /// Whether it exists.
    pub state: &'a MachineState,
    /// Whether it disappeared and left its Agent bound.
    pub vanished: Vanished,
    /// The cache says that it just did so. A live check has to prove it.
    pub left_bound: bool,
    /// Its AgentMachine has another host, and the Agent of this VM serves no Machine.
    pub has_another_host: bool,
    /// Its deletion hook has waited for the guest for longer than the grace.
    pub stuck_on_guest: bool,
}

/// How far the VM is on its way into another life.
#[derive(Clone, Copy, Debug)]
pub struct RecycleState {
    /// How far.
    pub stage: Stage,
    /// It could not be made ready in a day of tries.
    pub overdue: bool,
    /// What its Agent says about touching the VM.
    pub says: Says,
    /// Its Agent has reported again in the new life.
    pub back: bool,
    /// Its Agent is claimed or bound.
    pub claimed: bool,
    /// Its Agent shows that its guest has started again. The record does not say so yet.
    pub restarted: bool,
    /// Its Agent shows the state of the life before, because its Node cannot be taken out of the hosted cluster.
    pub cleanup_hangs: bool,
    /// Its disk stays, or stayed, with the data of a life before. Until its Agent is back, the VM boots its CD-ROM first then.
    pub keeps_disk: bool,
    /// A deletion hook that waits for its dead guest is freed by another life, not by the deletion of the Agent.
    pub frees_hook: bool,
}

/// What another VsphereAgent does with the host, that a release before 1.0 was moving.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Lent {
    /// Nothing.
    #[default]
    No,
    /// That VsphereAgent takes it over.
    Taken(ObjectKey),
    /// That VsphereAgent has it.
    Over(ObjectKey),
}

/// How far the VM is on its way to another VsphereAgent, or from one.
#[derive(Clone, Copy, Debug)]
pub struct ReassignState<'a> {
    /// How far this VsphereAgent is with the VM that it takes over.
    pub taking: Taking,
    /// A request of the process that began it may still change the mark of the VM.
    pub may_change: bool,
    /// What another VsphereAgent does with the VM.
    pub lent: &'a Lent,
}

/// What the VM says in vCenter of its guest ([`crate::domain::marker::MayServe`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MarkState {
    /// It may serve an AgentMachine that the record does not know of: the record is older than that.
    pub forgotten: bool,
    /// The host was offered to nobody in its present life.
    pub offered_to_nobody: bool,
    /// The VM says nothing of its present life: an older release made it, or made it ready for that.
    pub unsaid: bool,
    /// It is to say that it may serve its AgentMachine, and the record does not show that it does.
    pub missing: bool,
    /// A host of the buffer that this process has not looked at.
    pub unseen: bool,
    /// The record shows what the last look showed.
    pub recorded: bool,
}

impl Facts<'_> {
    /// The host registered once, the service does not hear from it, and nothing proves that it never served: neither
    /// what the VM says in vCenter, nor this process, which has followed it since it first ran. A restored record shows a
    /// node like this. A guest that this process has ended falls silent by that.
    pub(super) fn may_be_silent_node(&self) -> bool {
        self.agent.registered
            && !self.agent.answers
            && !self.vm.powered_on_by_us
            && !self.vm.switched_off_by_us
            && !self.mark.offered_to_nobody
            && matches!(self.vm.seen, Ownership::Ours(_))
    }

    /// As [`Self::may_be_silent_node`], and the VM says nothing at all in vCenter. A record that shows it on its way into another
    /// life proves nothing then: it may be older than the Machine that the VM serves.
    pub(super) fn is_silent_and_unsaid(&self) -> bool {
        self.mark.unsaid && self.may_be_silent_node()
    }

    /// The host serves a Machine, or did: no other VM can replace it there. The record counts as well, as Agents may be
    /// missing after etcd came back from a backup.
    pub(super) fn serves(&self) -> bool {
        self.agent.bound || self.agent.has_served
    }

    /// The guest may be a node. Then only a Machine that is proven gone, or a person, ends the VM.
    pub(super) fn may_be_node(&self) -> bool {
        self.agent.has_served || self.agent.guest_may_be_node
    }

    /// The VM served another Machine than the one it was made for, and is free now. Its Agent shows that, or it is gone.
    pub(super) fn is_spare(&self) -> bool {
        let gone = !matches!(self.vm.seen, Ownership::Ours(_));
        self.owner.has_another_host && (self.agent.present || gone)
    }

    /// The record has a reference of the VM. A new VM gets one when it is first seen to run.
    pub(super) fn is_made(&self) -> bool {
        self.record.vm.is_some_and(|vm| vm.moref.is_some())
    }

    /// The record says that the VM runs, and has the addresses that identify its Agent.
    pub(super) fn runs_by_record(&self) -> bool {
        self.record.vm.is_some_and(|vm| {
            vm.power_state.as_deref() == Some("poweredOn") && !vm.mac_addresses.is_empty()
        })
    }

    /// The recorded task that makes the VM.
    pub(super) fn create_task(&self) -> Option<String> {
        let vm = self.record.vm.filter(|vm| vm.moref.is_none());
        vm.and_then(|vm| vm.task_id.clone())
    }
}

/// A call that vCenter would refuse while the VM is busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resting<'a> {
    /// The call.
    pub call: EffectKind,
    /// Why, as one word.
    pub reason: &'a Reason,
    /// Sentence.
    pub why: &'a str,
    /// How long the call still rests.
    pub left: Duration,
}

/// Why a VsphereAgent has no identity on record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// It has one, or none was ever recorded.
    None,
    /// Its status was emptied. The first identity follows from its uid, and finds the VM if one was made.
    Restorable,
    /// Its status was emptied, and vCenter has a VM of it with another identity than the first one.
    Unrecoverable,
}

/// Whether the recorded place of a VM that does not exist yet is still right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementCheck {
    /// The VM belongs there.
    Fits,
    /// vCenter refused to create the VM there: the place is resolved again.
    Doubtful,
    /// The VM belongs elsewhere: the spec was corrected, or the place resolves to another one.
    Elsewhere,
}
