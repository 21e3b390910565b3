//! The VM's decision: the next unmet step from what is recorded and what vCenter shows. Pure.
//!
//! There is no saga: a half-made VM is just an early observation (house.md §2). The chart:
//! ```text
//! alive:    finalizer -> [ISO] -> identity+place -> create -> (task) -> boot order -> tags -> power on -> settled
//!              ^ lookup by uuid+marker whenever an outcome is unknown; re-create only after two empty answers
//! given up: (no Agent by the deadline) recorded -> fenced -> power off -> destroy -> proven absent -> rest -> identity
//! deleting: unbound? -> power off -> destroy -> proven absent twice -> Agent deleted -> finalizer off
//! ```
//! Guarantees: nothing is created before its identity is recorded; nothing is powered off, destroyed or powered on that
//! is not judged ours; nothing is powered on before its tags are attached, or recorded as missing; a bound Agent holds the
//! deletion unless a person forces it.

use std::time::Duration;

use agent_forge_crds::{agent::VmStatus, conditions::reason, pool::CleanupPolicy};

use super::{
    arrival::Arrival,
    ownership::{FoundBy, Ownership},
};
use crate::{
    domain::{
        machine_state::MachineState,
        vanished::{self, Vanished},
    },
    iso::infra_env_guards::Guard,
    ports::{
        effect::EffectKind,
        slots::turns::Errand,
        vcenter::{BootDevice, PowerState, VmObservation},
    },
};

/// How often a foreign VM under our name is looked at again.
pub const CONFLICT_PROBE: Duration = Duration::from_secs(30);
/// How often a VM that serves, and is not there, not switched on or not proven, is looked at again.
pub const MISSING_PROBE: Duration = Duration::from_secs(60);
/// Pause between two proofs of absence: a create whose reply was lost may still be running.
pub const PROOF_PAUSE: Duration = Duration::from_secs(2);
/// Answers needed before a VM counts as absent.
pub const PROOFS: u8 = 2;
/// Answers needed while a create may still be running whose reply and task were lost.
pub const PROOFS_AFTER_LOST_CREATE: u8 = 15;

/// Tries to switch a suspended VM off before a person is asked.
pub const SUSPENDED_TRIES: u8 = 3;

/// What the decision is made from.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// Recorded state of the VM.
    pub vm: Option<&'a VmStatus>,
    /// Recorded BIOS uuid parses.
    pub has_identity: bool,
    /// Whether its record was taken away.
    pub loss: Loss,
    /// Our finalizer is on.
    pub has_finalizer: bool,
    /// deletionTimestamp is set.
    pub deleting: bool,
    /// Made for a VM that existed before.
    pub adopted: bool,
    /// A person forces the deletion.
    pub forced: bool,
    /// The pool exists.
    pub pool_exists: bool,
    /// The recorded cluster id differs from ours.
    pub cluster_changed: bool,
    /// Cleanup policy of the pool, or the one that was recorded where the pool is gone.
    pub policy: Option<CleanupPolicy>,
    /// What about the InfraEnv keeps a VM that does not exist yet from being made.
    pub guard: Option<&'a Guard>,
    /// The discovery ISO lies ready.
    pub iso_ready: bool,
    /// The pool's credentials Secret is confirmed as held (reliability.md: credentials outlive their use).
    pub credentials_held: bool,
    /// What vCenter showed.
    pub seen: &'a Ownership,
    /// Whether the record names the vCenter as it calls itself; `None` before this actor was there.
    pub vcenter_recorded: Option<bool>,
    /// This actor recorded the identity itself, and no create of it has had an effect, or may have one yet.
    pub create_not_sent: bool,
    /// The files of this attempt are there although no VM of ours was.
    pub path_taken: bool,
    /// The recorded VM folder was deleted in vCenter.
    pub folder_deleted: bool,
    /// vCenter has refused often enough to switch the suspended VM off.
    pub stays_suspended: bool,
    /// Whether a VM that does not exist yet still belongs at the recorded place.
    pub site: PlacementCheck,
    /// Tags are attached under the reference that the VM has now, or there are none, or it is not known and its host serves.
    pub tagged: bool,
    /// How its arrival stands.
    pub arrival: Arrival,
    /// This actor switched the VM on itself.
    pub powered_on_by_us: bool,
    /// The last scan of vCenter did not show the recorded VM, or not switched on; or it was not there to be tagged.
    pub missing_in_scan: bool,
    /// An Agent that runs there, or may, serves a Machine or is about to.
    pub agent_bound: bool,
    /// Every Agent that does so matches the VM in part only: which does, and what speaks against it.
    pub unproven: Option<&'a str>,
    /// An Agent that matches the VM was there before that was ever switched on.
    pub early: Option<&'a str>,
    /// An Agent of this VM was bound once, whatever became of it.
    pub has_served: bool,
    /// Its guest may be a node whose Agent is missing, by what a look told once.
    pub guest_may_be_node: bool,
    /// Whether its Machine went and left its Agent bound.
    pub vanished: Vanished,
    /// By the view it did just that, and it is to be proven live.
    pub left_bound: bool,
    /// Nobody has an Agent of it, and its AgentMachine has another host.
    pub machine_has_another: bool,
    /// How its Machine stands.
    pub machine_state: &'a MachineState,
    /// A namespace that the pool needs does not admit it: the sentence for it.
    pub refused: Option<&'a str>,
    /// An Agent that runs there exists.
    pub agent_present: bool,
    /// The predecessor was emptying a drive of it, and was replaced meanwhile.
    pub ejecting: bool,
    /// Its drive is to be emptied: the pool wants that, the Agent there is installed, and it was not done yet.
    pub eject: bool,
    /// A call that is left alone, since the VM was busy lately.
    pub resting: Option<Resting<'a>>,
    /// That Agent carries nothing a selector could match.
    pub agent_fenced: bool,
    /// Its Machine is being deleted and the hook waits for a guest, for longer than the grace (trap G).
    pub stuck_on_guest: bool,
    /// Monotonic now.
    pub now: Duration,
}

/// A call that vCenter would refuse while the VM is busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resting<'a> {
    /// Which.
    pub call: EffectKind,
    /// CamelCase.
    pub reason: &'static str,
    /// Sentence.
    pub why: &'a str,
    /// How long it is left alone yet.
    pub left: Duration,
}

/// What is to be thought of a VsphereAgent that has no identity on record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// It has one, or none was ever recorded.
    None,
    /// Its status was emptied. The first identity follows from its uid, and leads to the VM if one was made of it.
    Restorable,
    /// Its status was emptied, and a VM of it stands in vCenter that is not of the first identity.
    Unrecoverable,
}

/// What is to be thought of the recorded place of a VM that does not exist yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementCheck {
    /// It is where the VM belongs.
    Fits,
    /// vCenter refused to create the VM there: it is placed again.
    Doubtful,
    /// The VM belongs elsewhere: the spec was mended, or placing it again led elsewhere.
    Elsewhere,
}

/// The next thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing now, and why.
    Hold {
        /// CamelCase.
        reason: &'static str,
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
    /// Resolve the place anew, to compare it with the recorded one.
    PlaceAgain,
    /// Create it.
    Create,
    /// Proven absent before its Agent served: a new identity, and a new place.
    NextAttempt,
    /// Its Agent has not registered in time, proven live: record that it is given up, and what is seen of it.
    GiveUp,
    /// Set the boot order to these disks, then CD-ROM.
    SetBootOrder(Vec<i32>),
    /// Power it on.
    PowerOn,
    /// Record what vCenter shows.
    RecordVm,
    /// Record that its Machine went and left its Agent bound, after a live check.
    RecordLeftBound,
    /// Record that its Agent was seen unbound since, so that nothing but that was needed.
    RecordUnbound,
    /// Record what the vCenter calls itself, of a record that does not say so.
    NameVcenter,
    /// Attach the tags.
    AttachTags,
    /// Take the ISO out of its drive, after a live check that its Agent is installed.
    EjectIso,
    /// Finish what the predecessor began: take the ISO on record out of its drive.
    FinishEjection,
    /// Say in its mark that it is left to people.
    Disown,
    /// Take the Agent out of every selection.
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
    /// All is as it should be.
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
            Self::RecordVm => "vm.record",
            Self::RecordLeftBound => "vm.record_left_bound",
            Self::RecordUnbound => "vm.record_unbound",
            Self::NameVcenter => "vm.name_vcenter",
            Self::AttachTags => "vm.attach_tags",
            Self::EjectIso => "vm.eject_iso",
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

    /// What it needs a task slot for.
    #[must_use]
    pub const fn errand(&self) -> Option<Errand> {
        match self {
            Self::Create | Self::TakeOver | Self::EjectIso => Some(Errand::Begin),
            Self::SetBootOrder(_) | Self::PowerOn | Self::FinishEjection => Some(Errand::GoOn),
            Self::PowerOff | Self::Destroy | Self::Disown => Some(Errand::Remove),
            _ => None,
        }
    }

    /// Whether a VM that is half made keeps its slot over it: the next task follows at once.
    #[must_use]
    pub const fn keeps_slot(&self) -> bool {
        matches!(self, Self::FinishTask(_) | Self::AttachTags)
    }

    /// The call that changes a VM in it: vCenter does one at a time.
    pub(super) const fn call(&self) -> Option<EffectKind> {
        match self {
            Self::TakeOver | Self::SetBootOrder(_) | Self::Disown => Some(EffectKind::Reconfigure),
            Self::PowerOn => Some(EffectKind::PowerOn),
            Self::PowerOff => Some(EffectKind::PowerOff),
            Self::Destroy => Some(EffectKind::Destroy),
            Self::EjectIso | Self::FinishEjection => Some(EffectKind::EjectIso),
            _ => None,
        }
    }
}

fn hold(reason: &'static str, message: impl Into<String>, again: Option<Duration>) -> Step {
    Step::Hold {
        reason,
        message: message.into(),
        again,
    }
}

/// Decides.
#[must_use]
pub fn next(f: &Facts<'_>) -> Step {
    let step = wanted(f);
    if let Some(refused) = f.refused.filter(|_| makes_a_host(f, &step)) {
        return hold(reason::NAMESPACE_NOT_ALLOWED, refused, None);
    }
    step.call()
        .and_then(|call| left_alone(f, call))
        .unwrap_or(step)
}

/// It brings a host nearer that is not there yet. A record that was lost is still made anew: it leads to the VM, so that
/// it can go.
fn makes_a_host(f: &Facts<'_>, step: &Step) -> bool {
    match step {
        Step::RecordIdentity => f.loss == Loss::None,
        Step::PlaceAgain | Step::Create | Step::PowerOn => true,
        _ => false,
    }
}

/// The call is not tried yet; meanwhile the VM is looked at again and again, for its task may end.
fn left_alone(f: &Facts<'_>, call: EffectKind) -> Option<Step> {
    let resting = f.resting.filter(|resting| resting.call == call)?;
    // The task that kept it away has done it: there is nothing to send.
    let done = |shown: &VmObservation| shown.cdroms.iter().all(|drive| drive.iso.is_none());
    if call == EffectKind::EjectIso && matches!(f.seen, Ownership::Ours(shown) if done(shown)) {
        return None;
    }
    let again = resting.left.min(MISSING_PROBE);
    Some(hold(resting.reason, resting.why, Some(again)))
}

/// What is to be done to a VM that has time for it.
fn wanted(f: &Facts<'_>) -> Step {
    if f.deleting {
        return if f.has_finalizer {
            deleting(f)
        } else {
            Step::Settled
        };
    }
    if !f.pool_exists {
        return hold(
            reason::POOL_NOT_FOUND,
            "the VsphereAgentPool in spec.poolRef does not exist; nothing is done",
            None,
        );
    }
    if !f.has_finalizer {
        return Step::AddFinalizer;
    }
    if f.cluster_changed {
        return hold(
            reason::CLUSTER_ID_CHANGED,
            "status.clusterID is not this cluster's: the VM's owner cannot be told; check --cluster-id or which hub \
             this object came from",
            None,
        );
    }
    if f.stuck_on_guest {
        return unstick(f);
    }
    alive(f)
}

fn alive(f: &Facts<'_>) -> Step {
    if f.adopted {
        return hold(
            reason::OWNERSHIP_UNPROVEN,
            "an adopted VM was not made by us: it is never touched",
            None,
        );
    }
    if let Some(step) = predecessors(f) {
        return step;
    }
    if f.left_bound {
        return Step::RecordLeftBound;
    }
    if f.vanished == Vanished::Held && !f.forced {
        return hold(reason::MACHINE_VANISHED_PAUSED, vanished::STAYS, None);
    }
    if let Some(step) = ejection(f) {
        return step;
    }
    if let Some(step) = not_wanted(f) {
        return step;
    }
    if f.arrival == Arrival::GivenUp {
        return replace::given_up(f);
    }
    let Some(vm) = f.vm.filter(|_| f.has_identity) else {
        if let Arrival::Resting(left) = f.arrival {
            return hold(
                reason::REPLACEMENT_RESTING,
                "the VM before was given up, see status.lastFailure; the next one is made after a rest",
                Some(left),
            );
        }
        return match f.loss {
            // A new identity would make a second VM.
            Loss::Unrecoverable => record_lost(),
            // Its VM is there, and has its ISO.
            Loss::None if f.guard.is_some() || !f.iso_ready => no_iso(f),
            _ if !f.credentials_held => hold(
                "CredentialsNotHeld",
                "the pool's credentials Secret is not kept from deletion yet; see the pool's conditions",
                None,
            ),
            _ => Step::RecordIdentity,
        };
    };
    if vm.moref.is_none() {
        return match f.seen {
            Ownership::Ours(shown) => made(f, shown),
            Ownership::Several(all) => ambiguous(all.len()),
            Ownership::Foreign {
                what,
                at,
                met: FoundBy::Name(_),
            } if f.site != PlacementCheck::Elsewhere
                && f.now.saturating_sub(*at) < CONFLICT_PROBE =>
            {
                hold(
                    reason::NAME_CONFLICT,
                    format!(
                        "{what} has this name and is not ours; it is left alone. Rename or move it, or delete the AgentMachine's Machine"
                    ),
                    Some(CONFLICT_PROBE.saturating_sub(f.now.saturating_sub(*at))),
                )
            }
            // That name is not wanted any more.
            Ownership::Foreign {
                met: FoundBy::Name(_),
                ..
            } if f.site == PlacementCheck::Elsewhere => Step::Lookup,
            // A VM with our uuid and without our mark may be ours: nothing is made beside it.
            Ownership::Foreign { what, at, .. } if f.now.saturating_sub(*at) < CONFLICT_PROBE => {
                hold(
                    reason::OWNERSHIP_UNPROVEN,
                    format!(
                        "{what} carries our uuid but not our mark; it is left alone, and nothing is made beside it"
                    ),
                    Some(CONFLICT_PROBE.saturating_sub(f.now.saturating_sub(*at))),
                )
            }
            Ownership::Foreign { .. } => Step::Lookup,
            Ownership::Bare { what, at } => bare(f, what, *at),
            Ownership::NotAsked if vm.task_id.is_some() => {
                Step::FinishTask(vm.task_id.clone().unwrap_or_default())
            }
            Ownership::NotAsked
                if !f.create_not_sent || serves(f) || f.site == PlacementCheck::Elsewhere =>
            {
                Step::Lookup
            }
            Ownership::Absent { proofs } if *proofs < proofs_needed(f) => Step::Lookup,
            // Its Agent serves somebody: it is somewhere, and the record is older than the world (a restored hub).
            Ownership::Absent { .. } if serves(f) => missing(f),
            Ownership::Absent { .. } if f.path_taken || f.site == PlacementCheck::Elsewhere => {
                Step::NextAttempt
            }
            _ if f.site == PlacementCheck::Doubtful => Step::PlaceAgain,
            _ if f.iso_ready && f.guard.is_none() => Step::Create,
            _ => no_iso(f),
        };
    }
    // Whoever serves is not replaced, whoever asks.
    let overdue = matches!(f.arrival, Arrival::Overdue { .. }) && !serves(f);
    let asked = matches!(f.arrival, Arrival::Overdue { allowed: true, .. });
    match f.seen {
        Ownership::NotAsked if recorded_on(f) && (overdue || f.missing_in_scan) => Step::Lookup,
        Ownership::NotAsked if recorded_on(f) && f.tagged && !f.eject && unnamed(f) => {
            Step::NameVcenter
        }
        Ownership::NotAsked if recorded_on(f) && f.tagged && !f.eject => Step::Settled,
        Ownership::NotAsked if recorded_on(f) && f.tagged => Step::Lookup,
        Ownership::NotAsked if recorded_on(f) => Step::AttachTags,
        Ownership::NotAsked => Step::Lookup,
        Ownership::Ours(shown) if overdue && (recorded_on(f) || asked) => {
            replace::overdue(f, shown)
        }
        Ownership::Ours(shown) => made(f, shown),
        Ownership::Several(all) => ambiguous(all.len()),
        Ownership::Foreign { what, .. } => hold(
            reason::OWNERSHIP_UNPROVEN,
            format!("{what} is not the recorded VM; it is left alone"),
            Some(CONFLICT_PROBE),
        ),
        Ownership::Bare { what, at } => bare(f, what, *at),
        Ownership::Absent { .. } if serves(f) => missing(f),
        Ownership::Absent { proofs } if *proofs < PROOFS => Step::Lookup,
        Ownership::Absent { .. } if f.agent_present => Step::DeleteAgent,
        Ownership::Absent { .. } => Step::NextAttempt,
    }
}

/// A drive that the predecessor was emptying: while its task waits for an answer, the guest stands still and vCenter does
/// nothing else to the VM. So it is finished first, whoever the VM serves and whatever becomes of it.
fn ejection(f: &Facts<'_>) -> Option<Step> {
    if !f.ejecting || !f.has_identity || f.adopted {
        return None;
    }
    match f.seen {
        Ownership::NotAsked => Some(Step::Lookup),
        Ownership::Ours(_) => Some(Step::FinishEjection),
        _ => None,
    }
}

/// The same of a VM that is to go: it may not be proven yet.
fn unfinished(f: &Facts<'_>) -> Option<Step> {
    let proof = || predecessors(f).filter(|step| *step == Step::TakeOver);
    proof()
        .filter(|_| f.ejecting && !f.adopted)
        .or_else(|| ejection(f))
}

/// A record that cannot be gone by: an unreadable identity, or one of the predecessor's that is still to be proven.
fn predecessors(f: &Facts<'_>) -> Option<Step> {
    let vm = f.vm?;
    if vm.bios_uuid.is_none() && vm.attempt.is_none() && vm.owner_uid.is_some() {
        return Some(hold(
            reason::OWNERSHIP_UNPROVEN,
            format!(
                "the predecessor made VM {} and did not record its uuid: nothing is made beside it and nothing is removed; write \
                 its BIOS UUID to status.vm.biosUUID, or remove the VM by hand and delete the VsphereAgent with the annotation \
                 agent-forge.containeroo.ch/force-delete=true",
                vm.name
            ),
            Some(CONFLICT_PROBE),
        ));
    }
    if !f.has_identity {
        return vm.bios_uuid.as_ref().map(|text| {
            hold(
                reason::RECORD_UNREADABLE,
                format!(
                    "status.vm.biosUUID {text:?} is no uuid, so the VM cannot be told: nothing is made and nothing is removed"
                ),
                None,
            )
        });
    }
    if vm.attempt.is_some() {
        return None;
    }
    Some(match f.seen {
        Ownership::Ours(_) => Step::RecordVm,
        Ownership::Several(all) => ambiguous(all.len()),
        Ownership::Foreign { what, .. } => hold(
            reason::OWNERSHIP_UNPROVEN,
            format!("{what} could not be proven to be the recorded VM; it is left alone"),
            Some(MISSING_PROBE),
        ),
        Ownership::Bare { what, .. } => inaccessible(what, MISSING_PROBE),
        Ownership::Absent { proofs } if *proofs >= PROOFS && f.deleting => Step::RemoveFinalizer,
        Ownership::Absent { proofs } if *proofs >= PROOFS => hold(
            "VMMissing",
            "the VM that the record names is not in vCenter; nothing is created in its place",
            Some(MISSING_PROBE),
        ),
        Ownership::NotAsked | Ownership::Absent { .. } if f.pool_exists => Step::TakeOver,
        Ownership::NotAsked | Ownership::Absent { .. } => hold(
            reason::OWNERSHIP_UNPROVEN,
            "the record names neither vCenter nor folder, and the pool that would tell is gone: remove the VM by hand, \
             then the finalizer",
            None,
        ),
    })
}

/// Nobody is to get a VM from here: nothing more is built, what runs is left as it is.
fn not_wanted(f: &Facts<'_>) -> Option<Step> {
    let (reason, message) = match f.machine_state {
        MachineState::Alive => return None,
        _ if f.vm.is_some_and(|vm| vm.moref.is_some()) && recorded_on(f) => {
            return Some(Step::Settled);
        }
        MachineState::Nobody => (
            "NoAgentMachine",
            "no AgentMachine is recorded: nothing is built for nobody".to_owned(),
        ),
        MachineState::Leaving => (
            "MachineDeleting",
            "its Machine is being deleted: nothing more is built".to_owned(),
        ),
        MachineState::Gone => (
            "MachineDeleted",
            "its Machine is gone: nothing more is built".to_owned(),
        ),
        MachineState::Unknown(why) => (
            reason::MACHINE_STATE_UNKNOWN,
            format!("{why}; nothing is built"),
        ),
    };
    Some(hold(reason, message, None))
}

/// Its host serves a Machine, or did: another VM would not be given to that Machine. The record tells it where Agents are
/// not in view, as after an absence of the API server whose etcd came back from a backup.
fn serves(f: &Facts<'_>) -> bool {
    f.agent_bound || f.has_served
}

/// Its guest is a node for all that is known, so that only a Machine that is proven gone ends it, or a person.
fn may_be_node(f: &Facts<'_>) -> bool {
    f.has_served || f.guest_may_be_node
}

/// It served somebody else than the Machine that it was made for, and is free: its Agent is there and says so, or it is
/// gone itself.
fn is_spare(f: &Facts<'_>) -> bool {
    f.machine_has_another && (f.agent_present || !matches!(f.seen, Ownership::Ours(_)))
}

/// It is recorded as running, with what its Agent is recognised by.
fn recorded_on(f: &Facts<'_>) -> bool {
    f.vm.is_some_and(|v| {
        v.power_state.as_deref() == Some("poweredOn") && !v.mac_addresses.is_empty()
    })
}

/// The record does not say what its vCenter calls itself, and it was not asked yet.
fn unnamed(f: &Facts<'_>) -> bool {
    f.vcenter_recorded.is_none() && f.vm.is_some_and(|v| v.server_instance_uuid.is_none())
}

/// Its tags are on record as missing.
fn lacks_tags(f: &Facts<'_>) -> bool {
    f.vm.is_some_and(|v| v.tags_missing == Some(true))
}

/// A create whose reply was lost may still be running, and nothing but time tells. Where it is repeated, name and path
/// collide and no harm is done; where the VM is given up, only absence for a while is enough.
fn proofs_needed(f: &Facts<'_>) -> u8 {
    let acknowledged = f.vm.is_some_and(|v| v.moref.is_some());
    let given_up = f.deleting || f.path_taken || f.site == PlacementCheck::Elsewhere;
    if acknowledged || f.create_not_sent || !given_up {
        PROOFS
    } else {
        PROOFS_AFTER_LOST_CREATE
    }
}

/// It has a network card that is not on record, as after somebody replaced it: its Agent is told by that.
fn has_new_mac(f: &Facts<'_>, shown: &VmObservation) -> bool {
    let recorded = f.vm.map_or(&[][..], |vm| vm.mac_addresses.as_slice());
    let mut macs = shown.macs.iter().map(ToString::to_string);
    macs.any(|mac| !recorded.contains(&mac))
}

fn made(f: &Facts<'_>, shown: &VmObservation) -> Step {
    // Under the reference that it has now: a vCenter that was restored gives another one.
    let reference = f.vm.and_then(|v| v.moref.as_ref());
    let recorded = recorded_on(f)
        && reference == Some(&shown.moref.id)
        && !has_new_mac(f, shown)
        && f.vcenter_recorded != Some(false);
    match shown.power {
        PowerState::On if recorded && f.tagged && f.eject => Step::EjectIso,
        PowerState::On if recorded && f.tagged => Step::Settled,
        PowerState::On if recorded => Step::AttachTags,
        PowerState::On => Step::RecordVm,
        PowerState::Suspended if serves(f) => hold(
            reason::VM_SUSPENDED,
            "the VM is suspended although its Agent is bound, or was; it is left as it is: resume it in vCenter",
            Some(MISSING_PROBE),
        ),
        // Switching on resumes it; its devices cannot be changed now.
        PowerState::Suspended => Step::PowerOn,
        // A serving VM's power is its owner's business; only a VM that has never served is powered on.
        _ if serves(f) || f.guest_may_be_node => hold(
            "VMPoweredOff",
            "the VM is not powered on although its Agent is bound, or was, or its guest may be a node; it is left as it is",
            Some(MISSING_PROBE),
        ),
        _ if !boots_disk_first(shown) && !shown.disk_keys.is_empty() => {
            Step::SetBootOrder(shown.disk_keys.clone())
        }
        // Its guest cannot have registered: somebody else has, with what this VM will be known by.
        _ if f.early.is_some() => hold(
            reason::RIVAL_AGENTS,
            format!(
                "Agent {} has the identity of this VM and was there before it was ever switched on: it stays off, and that \
                 Agent is not approved. Find out which host that is, stop it and delete its Agent",
                f.early.unwrap_or_default()
            ),
            Some(CONFLICT_PROBE),
        ),
        // Once it runs its Agent may serve before anybody looks again, and a host that serves is left alone.
        _ if !f.tagged && !lacks_tags(f) => Step::AttachTags,
        _ => Step::PowerOn,
    }
}

/// Boot order is every disk, then CD-ROM: an empty disk falls through to the ISO, an installed one never boots it again.
#[must_use]
pub fn boots_disk_first(shown: &VmObservation) -> bool {
    let wanted = shown
        .disk_keys
        .iter()
        .map(|k| BootDevice::Disk(*k))
        .chain([BootDevice::Cdrom]);
    shown.boot_order.iter().cloned().eq(wanted)
}

fn unstick(f: &Facts<'_>) -> Step {
    match f.seen {
        Ownership::NotAsked => Step::Lookup,
        Ownership::Absent { proofs } if *proofs < PROOFS => Step::Lookup,
        Ownership::Absent { .. } => Step::ReleaseHook,
        Ownership::Ours(vm) if vm.power != PowerState::On => Step::ReleaseHook,
        Ownership::Ours(_) => hold(
            "WaitingForGuest",
            "the deletion hook waits for the guest, and the VM runs",
            Some(CONFLICT_PROBE),
        ),
        Ownership::Several(all) => ambiguous(all.len()),
        Ownership::Bare { what, at } => bare(f, what, *at),
        Ownership::Foreign { what, .. } => hold(
            reason::OWNERSHIP_UNPROVEN,
            format!(
                "the deletion hook waits for the guest, and {what} could not be proven to be its VM"
            ),
            Some(CONFLICT_PROBE),
        ),
    }
}

fn deleting(f: &Facts<'_>) -> Step {
    if f.left_bound && !f.forced {
        return Step::RecordLeftBound;
    }
    if let Some(step) = unfinished(f) {
        return step;
    }
    if let Some(agent) = f.unproven.filter(|_| f.agent_bound && !f.forced) {
        return hold(
            reason::AGENT_UNPROVEN,
            format!(
                "Agent {agent} names this VM and serves a Machine: deletion waits, for that may run here. If it is another \
                 host, delete that Agent, or set the annotation agent-forge.containeroo.ch/force-delete=true here"
            ),
            None,
        );
    }
    if f.agent_bound && !f.forced {
        return hold(
            reason::AGENT_BOUND,
            "its Agent serves a Machine: deletion waits until that is gone (or set the annotation \
             agent-forge.containeroo.ch/force-delete=true)",
            None,
        );
    }
    if *f.machine_state == MachineState::Leaving && !f.forced {
        // The node may still be draining, and the hook may wait for this very guest.
        return if f.stuck_on_guest {
            unstick(f)
        } else {
            hold(
                "MachineRemains",
                "its Machine is being deleted: the VM goes when that is gone",
                None,
            )
        };
    }
    // Who deletes a whole namespace deletes Agents and VsphereAgents in any order; the node runs on.
    let held = *f.machine_state == MachineState::Alive && may_be_node(f) && !is_spare(f);
    if held && !f.forced {
        return hold(
            "MachineRemains",
            "its Machine is there and not being deleted, and the VM was given to it: it may be its node. Delete the Machine \
             (or set the annotation agent-forge.containeroo.ch/force-delete=true)",
            None,
        );
    }
    if let Some(step) = after_service(f).filter(|_| !f.forced) {
        return step;
    }
    match f.loss {
        Loss::None => {}
        _ if f.forced || !f.pool_exists || f.policy == Some(CleanupPolicy::Retain) => {}
        // Its VM would be nobody's.
        Loss::Unrecoverable => return record_lost(),
        Loss::Restorable => return Step::RecordIdentity,
    }
    let nameless = f.vm.is_some_and(|vm| vm.bios_uuid.is_none()) && !f.adopted && !f.forced;
    if let Some(step) = predecessors(f).filter(|_| nameless) {
        return step;
    }
    if f.adopted || f.vm.is_none_or(|vm| vm.bios_uuid.is_none()) {
        // Nothing of ours exists: an adopted VM is somebody else's, and before its identity none is made.
        return Step::RemoveFinalizer;
    }
    if f.agent_present && !f.agent_fenced {
        return Step::FenceAgent;
    }
    if f.policy == Some(CleanupPolicy::Retain) {
        return retained(f);
    }
    if let Some(step) = predecessors(f) {
        return step;
    }
    let recorded = f.vm.is_some_and(|v| v.moref.is_some());
    let task = f.vm.and_then(|v| v.task_id.clone()).filter(|_| !recorded);
    match f.seen {
        Ownership::NotAsked if f.create_not_sent && !recorded => Step::RemoveFinalizer,
        Ownership::NotAsked => task.map_or(Step::Lookup, Step::FinishTask),
        // Its Agent is told by the addresses on record: without them it would be left behind.
        Ownership::Ours(vm) if has_new_mac(f, vm) => Step::RecordVm,
        Ownership::Ours(vm) => down(f, vm),
        Ownership::Several(all) => ambiguous(all.len()),
        Ownership::Bare { what, at } => bare(f, what, *at),
        // Somebody has the name that ours was to get: that says nothing of ours.
        Ownership::Foreign {
            met: FoundBy::Name(_),
            ..
        } => Step::Lookup,
        Ownership::Foreign { what, .. } => hold(
            reason::OWNERSHIP_UNPROVEN,
            format!(
                "{what} carries our uuid but is not proven ours: it is left alone; delete it or its copy by hand"
            ),
            Some(CONFLICT_PROBE),
        ),
        Ownership::Absent { proofs } if *proofs < proofs_needed(f) => Step::Lookup,
        Ownership::Absent { .. } if f.agent_present => Step::DeleteAgent,
        Ownership::Absent { .. } => Step::RemoveFinalizer,
    }
}

/// What has to come before a VM goes that may be a node, where its Machine is not there; nothing of it goes where the policy
/// keeps the VM.
fn after_service(f: &Facts<'_>) -> Option<Step> {
    if f.vanished == Vanished::Over {
        return Some(Step::RecordUnbound);
    }
    if !may_be_node(f) || f.policy == Some(CleanupPolicy::Retain) {
        return None;
    }
    if f.vanished == Vanished::Held {
        return Some(hold(reason::MACHINE_VANISHED_PAUSED, vanished::STAYS, None));
    }
    let why = match f.machine_state {
        MachineState::Nobody => "it does not name the AgentMachine that it served",
        MachineState::Unknown(why) => why,
        MachineState::Alive | MachineState::Leaving | MachineState::Gone => return None,
    };
    Some(hold(
        reason::MACHINE_STATE_UNKNOWN,
        format!(
            "{why}: the VM served a Machine, or its guest may be a node, and stays until that Machine is proven gone (or set \
             the annotation agent-forge.containeroo.ch/force-delete=true)"
        ),
        Some(MISSING_PROBE),
    ))
}

/// It is kept although its record goes: its mark says so first, or a scan would call it nobody's. A person who forces the
/// deletion does without, as where its vCenter is gone for good.
fn retained(f: &Facts<'_>) -> Step {
    let vm = f.vm.filter(|vm| vm.attempt.is_some() && f.has_identity);
    let Some(vm) = vm.filter(|_| !f.forced) else {
        return Step::RemoveFinalizer;
    };
    let task = vm.task_id.clone().filter(|_| vm.moref.is_none());
    match f.seen {
        Ownership::NotAsked if f.create_not_sent && vm.moref.is_none() => Step::RemoveFinalizer,
        Ownership::NotAsked => task.map_or(Step::Lookup, Step::FinishTask),
        Ownership::Ours(_) => Step::Disown,
        Ownership::Absent { proofs } if *proofs < proofs_needed(f) => Step::Lookup,
        Ownership::Foreign {
            met: FoundBy::Name(_),
            ..
        } => Step::Lookup,
        Ownership::Bare { what, at } => bare(f, what, *at),
        Ownership::Absent { .. } | Ownership::Several(_) | Ownership::Foreign { .. } => {
            Step::RemoveFinalizer
        }
    }
}

/// The one way down: switched off, whether it runs or is suspended, then destroyed.
fn down(f: &Facts<'_>, shown: &VmObservation) -> Step {
    match shown.power {
        PowerState::Off => Step::Destroy,
        PowerState::Suspended if f.stays_suspended => hold(
            reason::VM_SUSPENDED,
            "the VM is suspended, and vCenter refuses to switch it off: power it off in vCenter, or resume it",
            Some(MISSING_PROBE),
        ),
        PowerState::Suspended | PowerState::On => Step::PowerOff,
    }
}

fn missing(f: &Facts<'_>) -> Step {
    let why = "although its Agent is bound, or was; if nobody brings it back, delete its Machine";
    if f.folder_deleted {
        let message =
            format!("the VM's folder was deleted in vCenter, and the VM is not there {why}");
        return hold(reason::VM_FOLDER_DELETED, message, Some(MISSING_PROBE));
    }
    let message = format!("the VM is not in vCenter {why}");
    hold("VMMissing", message, Some(MISSING_PROBE))
}

/// A VM that may be this one shows no configuration: nothing is decided from it, and it is looked at again.
fn bare(f: &Facts<'_>, what: &str, at: Duration) -> Step {
    match CONFLICT_PROBE.saturating_sub(f.now.saturating_sub(at)) {
        Duration::ZERO => Step::Lookup,
        left => inaccessible(what, left),
    }
}

fn inaccessible(what: &str, again: Duration) -> Step {
    hold(
        reason::VM_INACCESSIBLE,
        format!(
            "{what} may be this VM, and vCenter shows no configuration of it: nothing is made, switched or removed until it does. \
             See its host and datastore; a VM that is lost for good: remove it from the inventory"
        ),
        Some(again),
    )
}

fn record_lost() -> Step {
    hold(
        "RecordLost",
        "a VM with our mark stands in vCenter and status.vm is gone: restore it, or remove the VM by hand and delete the \
         VsphereAgent (set the annotation agent-forge.containeroo.ch/force-delete=true)",
        Some(CONFLICT_PROBE),
    )
}

/// There is nothing to boot a new VM from, or it is not to be booted.
fn no_iso(f: &Facts<'_>) -> Step {
    if let Some(guard) = f.guard {
        return hold(guard.reason, guard.message.clone(), None);
    }
    hold(
        "IsoNotReady",
        "the pool's discovery ISO is not on its datastore yet; see the pool's condition ISOReady",
        None,
    )
}

fn ambiguous(count: usize) -> Step {
    hold(
        reason::AMBIGUOUS_VM,
        format!(
            "{count} VMs carry our marker and none is the recorded one: remove the copies, nothing is touched until then"
        ),
        Some(CONFLICT_PROBE),
    )
}

mod replace;
#[cfg(test)]
mod tests;
