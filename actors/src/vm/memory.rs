//! What a VM actor remembers between passes: a cache, rebuilt from record and vCenter when lost.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use agent_forge_crds::{
    agent::{RecycleStatus, VmStatus, VsphereAgent, VsphereAgentStatus},
    conditions::Reason,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::{
    arrival, boot_repair,
    ownership::Ownership,
    power_policy::OffSeen,
    refused::{Busy, Refused},
    step::{MISSING_PROBE, PROOFS, Step},
};
use crate::{
    domain::{identity::BiosUuid, names::ObjectKey},
    ports::{
        clock::Clock,
        slots::{Slot, Ticket},
        vcenter::{Fault, PowerState, VcError, VmObservation},
    },
    report::vm::Told,
    runtime::status_writer::StatusWriter,
    sessions::of_vm::Reached,
};

/// How long this actor does not ask again whether the hosted cluster is gone.
const CLUSTER_PAUSE: Duration = Duration::from_secs(300);

/// The unit in which tries to make a VM ready are recorded.
const HOUR: Duration = Duration::from_secs(3600);

/// The cache.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// uid of the VsphereAgent that it is about.
    uid: Option<String>,
    /// What the last look showed of the VM.
    pub seen: Ownership,
    /// When (monotonic) vCenter showed that, at the latest.
    pub looked_at: Option<Duration>,
    /// The vCenter that the last step led to.
    pub reached: Option<Reached>,
    /// This actor recorded the identity, and no create for it had an effect, or may still have one.
    pub create_not_sent: bool,
    /// The record was found to be taken away, and no identity has been recorded since.
    pub lost: bool,
    /// The identity that was on record when the record was last there.
    pub recorded: Option<BiosUuid>,
    /// When the last create was sent, no earlier create could still have an effect.
    pub only_create: bool,
    /// The files of this attempt exist, although no VM of ours does: another create may still be running.
    pub path_taken: bool,
    /// vCenter refused to create the VM, and nothing was made.
    pub create_refused: Option<Refused>,
    /// Task slot of this pass: kept from a create through power-on, from power-off through destroy.
    pub slot: Option<Arc<Slot>>,
    /// The place of this VM in the line for a slot.
    pub ticket: Option<Arc<Ticket>>,
    /// Slot of the recorded create that runs while no pass awaits it.
    pub running: Option<Arc<Slot>>,
    /// Which tags this actor has attached, and under which reference.
    pub tagged: Option<Tagged>,
    /// The VM was missing under its reference when its tags could not be attached.
    pub missed: bool,
    /// The number of the last news of this VM that this actor has looked for.
    pub news: u64,
    /// This actor switched this VM on.
    pub powered_on: bool,
    /// This actor had this VM switched off, and has not seen it on since.
    pub switched_off: bool,
    /// When this actor sent the first power-on request that may have had an effect. By the API server's clock, and no
    /// later than it really was.
    pub switched_on_at: Option<jiff::Timestamp>,
    /// Since when (monotonic) this actor has known of the VsphereAgent.
    pub known_since: Option<Duration>,
    /// The cache has shown an Agent that runs on this VM, or may.
    pub agent_seen: bool,
    /// The discovery deadline that this actor set, and when (monotonic) it is over.
    pub discovery: Option<(Time, Duration)>,
    /// When (monotonic) this actor asked whether the hosted cluster is gone.
    pub cluster_seen: Option<Duration>,
    /// The AgentMachine was paused when last seen.
    pub paused: bool,
    /// This actor has seen the Agent of the VM bound in its present life. No record that changes back takes that away.
    pub seen_bound: bool,
    /// This actor has looked at the VM, and the record has what that showed.
    pub looked: bool,
    /// How often the caches were in doubt when this actor last looked ([`View::history`]).
    ///
    /// [`View::history`]: crate::ports::cluster::View::history
    pub history: u64,
    /// A guest that this actor did not start reported a name of its own: it may be a node.
    pub guest_may_be_node: bool,
    /// Since when (monotonic) the Agent is lost, if this actor saw that begin.
    pub lost_since: Option<Duration>,
    /// When (monotonic) people were last seen to hold or keep the VM on its way into another life.
    pub held_at: Option<Duration>,
    /// Since when (monotonic) the present hour of tries to make it ready counts.
    pub trying_since: Option<Duration>,
    /// That life, and how many hours of tries it has by now.
    pub hours_tried: Option<(i32, i32)>,
    /// The VM was looked at after its Agent became overdue.
    pub looked_late: bool,
    /// Since when (monotonic) the current view of a VM that is recorded as running is used.
    pub seen_since: Option<Duration>,
    /// Since when (monotonic) a deletion hook has waited for the guest.
    pub stuck_since: Option<Duration>,
    /// The last look showed that the recorded VM folder was deleted in vCenter.
    pub folder_deleted: bool,
    /// Looks in a row that showed the VM switched off.
    pub off_seen: Option<OffSeen>,
    /// What this actor knows of the resets of this VM.
    pub reset: Option<boot_repair::Own>,
    /// Steps that failed and stop nothing else, with a sentence. They stay until they succeed, or are not wanted any more.
    pub failed_steps: BTreeMap<&'static str, String>,
    /// Which of them were tried in this pass.
    pub tried: BTreeSet<&'static str>,
    /// How often in a row vCenter refused to switch the VM off because it is suspended.
    pub suspended: u8,
    /// When (monotonic) absence was last confirmed.
    pub proof_at: Option<Duration>,
    /// Writes the status.
    pub status: StatusWriter<VsphereAgentStatus>,
    /// vCenter refused the last call that was to change the VM: the call changed nothing.
    pub call_refused: bool,
    /// How often in a row somebody had changed the VM between the look and our change of it.
    pub outrun: u8,
    /// The VM was busy with a task when it was to be changed.
    pub busy: Option<Busy>,
    /// What was reported.
    pub told: Told,
    /// What the log has of the next step, in a dry run.
    rehearsed: Option<String>,
}

/// Tags that are attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tagged {
    /// Reference of the VM.
    pub moref: String,
    /// The tags, as the pool named them then.
    pub tags: Vec<String>,
}

/// So often a change may come too late before it counts as a failure.
const OUTRUN: u8 = 3;

impl Memory {
    /// Notes that vCenter refused our change because somebody has changed the VM since it was seen. `true`: the VM is looked at
    /// again, and the change repeated. `false`: it is another refusal, or the third of this kind in a row, which people learn of.
    pub fn note_outrun(&mut self, refusal: &VcError) -> bool {
        if refusal.fault() != Some(&Fault::ConcurrentAccess) {
            return false;
        }
        self.seen = Ownership::NotAsked;
        self.outrun = self.outrun.saturating_add(1);
        self.outrun < OUTRUN
    }

    /// The time that counts for the discovery deadline of `vm`. If the wall clock was set ahead, a deadline that this
    /// actor set itself does not come nearer.
    #[must_use]
    pub fn discovery_time(&self, vm: &VmStatus, clock: &dyn Clock) -> Timestamp {
        let wall = clock.wall();
        let set = self.discovery.as_ref();
        let Some((deadline, over)) = set.filter(|(d, _)| vm.discovery_deadline.as_ref() == Some(d))
        else {
            return wall;
        };
        let left = over.saturating_sub(clock.monotonic());
        let left = SignedDuration::try_from(left).unwrap_or_default();
        wall.min(deadline.0.saturating_sub(left).unwrap_or(wall))
    }

    /// Forgets the failures of steps that were not tried in a pass that ends settled: they have succeeded, or are not wanted.
    /// A VM whose record is outdated wants none.
    pub fn forget_failures(&mut self, last: &Step) {
        let outdated =
            matches!(last, Step::Hold { reason, .. } if *reason == Reason::RecordOutdated);
        if outdated || *last == Step::Settled {
            self.failed_steps
                .retain(|step, _| self.tried.contains(step));
        }
    }

    /// Logs what would be done next in a dry run, when it is new.
    pub fn rehearse(&mut self, key: &ObjectKey, hold: &Reason, message: &str) {
        if *hold != Reason::DryRun {
            self.rehearsed = None;
        } else if self.rehearsed.as_deref() != Some(message) {
            tracing::info!(object = %key, "dry run: {message}");
            self.rehearsed = Some(message.to_owned());
        }
    }

    /// Forgets everything if it is about another object of that name.
    pub fn is_about(&mut self, shown: &VsphereAgent) {
        if self.uid != shown.uid() {
            *self = Self {
                uid: shown.uid(),
                ..Self::default()
            };
        }
    }

    /// Forgets what it has followed, if the caches were in doubt since: something may have happened that it did not see.
    pub fn follow(&mut self, history: u64) {
        if self.history != history {
            self.history = history;
            self.powered_on = false;
            self.looked = false;
        }
    }

    /// Takes in a fresh view of the VM, from `now`.
    pub fn look(&mut self, seen: Ownership, now: Duration) {
        let off = matches!(&seen, Ownership::Ours(vm) if vm.power == PowerState::Off);
        let first = self.off_seen.map_or(now, |off| off.first);
        self.off_seen = off.then_some(OffSeen { first, last: now });
        let suspended = |vm: &VmObservation| vm.power == PowerState::Suspended;
        if matches!(&seen, Ownership::Ours(vm) if !suspended(vm)) {
            self.suspended = 0;
        }
        self.looked_at = Some(now);
        self.seen_since = Some(now);
        self.seen = seen;
    }

    /// Keeps for good what a look at the VM shows of its guest. A later look may not show it again. `recorded`: what the record
    /// has of the VM's mark that it may serve.
    pub fn note_guest(&mut self, recorded: Option<&str>) {
        let says = |shown: &VmObservation| shown.may_serve.as_ref().map(ToString::to_string);
        self.looked |=
            matches!(&self.seen, Ownership::Ours(shown) if says(shown).as_deref() == recorded);
        let on = matches!(&self.seen, Ownership::Ours(shown) if shown.power != PowerState::Off);
        self.switched_off &= !on;
        let told = matches!(&self.seen, Ownership::Ours(shown) if arrival::may_serve(shown));
        self.guest_may_be_node |= told && !self.powered_on;
    }

    /// Forgets the view of a busy VM: the task may have ended.
    pub fn look_at_busy(&mut self, now: Duration) {
        self.busy.take_if(|busy| busy.is_past(now));
        if self.busy.is_some() && matches!(self.seen, Ownership::Ours(_)) {
            self.seen = Ownership::NotAsked;
        }
    }

    /// Forgets the view of the VM if the actor holds because of that view (`held`). A request whose reply was lost may
    /// have reached vCenter since, or a person may have solved the problem.
    pub fn look_again_at(&mut self, held: bool) {
        if held && matches!(self.seen, Ownership::Ours(_)) {
            self.seen = Ownership::NotAsked;
        }
    }

    /// Forgets a view of a running VM that is too old to be used.
    pub fn refresh(&mut self, now: Duration) {
        if self.seen == Ownership::NotAsked {
            self.seen_since = None;
            return;
        }
        if self.is_old(now) {
            self.seen = Ownership::NotAsked;
        }
    }

    /// Forgets, after a while, what blocked a deletion or a proof: a person may have solved it. With `absence` it also
    /// forgets an absence, except for one answer, so that the next answer confirms it.
    pub fn doubt(&mut self, absence: bool, now: Duration) {
        let after = match &self.seen {
            Ownership::Foreign { .. } | Ownership::Several(_) | Ownership::Bare { .. } => {
                Ownership::NotAsked
            }
            Ownership::Absent { proofs } if absence && *proofs >= PROOFS => {
                Ownership::Absent { proofs: PROOFS - 1 }
            }
            _ => {
                self.seen_since = None;
                return;
            }
        };
        if self.is_old(now) {
            self.seen = after;
        }
    }

    /// Whether the view is old. If so, its clock starts again.
    fn is_old(&mut self, now: Duration) -> bool {
        let since = *self.seen_since.get_or_insert(now);
        let old = now.saturating_sub(since) >= MISSING_PROBE;
        if old {
            self.seen_since = None;
        }
        old
    }

    /// Gives back slots that `step` does not need, because others wait for them.
    pub fn keep_slots(&mut self, step: &Step) {
        // During any other step the actor does not wait for the create.
        if !matches!(step, Step::Await(_)) {
            self.running = None;
        }
        let errand = step.errand();
        self.ticket.take_if(|t| Some(t.errand()) != errand);
        let serves = |slot: &Slot| errand.map_or(step.keeps_slot(), |e| slot.serves(e));
        self.slot.take_if(|slot| !serves(slot));
    }

    /// Forgets what it remembers of the guest, because the VM begins another life.
    pub fn forget_guest(&mut self) {
        self.powered_on = false;
        self.seen_bound = false;
        self.switched_on_at = None;
        self.agent_seen = false;
        self.discovery = None;
        self.guest_may_be_node = false;
        self.lost_since = None;
        self.looked_late = false;
        self.stuck_since = None;
        self.off_seen = None;
        self.reset = None;
        self.told.installing = None;
    }

    /// Counts the time in which this actor tries to make the VM ready for another life, in whole hours. `way`: what is recorded
    /// of that, if the VM is in the life before. `held`: nothing is done now. However late a pass comes, it adds one hour at most:
    /// nobody knows what was between.
    pub fn count_tries(&mut self, way: Option<&RecycleStatus>, held: bool, now: Duration) {
        let Some(way) = way.filter(|_| !held) else {
            self.trying_since = None;
            return;
        };
        let since = *self.trying_since.get_or_insert(now);
        if now.saturating_sub(since) >= HOUR {
            self.trying_since = Some(now);
            let hours = way.hours_tried.unwrap_or(0).saturating_add(1);
            self.hours_tried = Some((way.generation, hours));
        }
    }

    /// Whether it is time to ask whether the hosted cluster is gone.
    #[must_use]
    pub fn looks_for_cluster(&self, now: Duration) -> bool {
        let seen = self.cluster_seen;
        seen.is_none_or(|at| now.saturating_sub(at) >= CLUSTER_PAUSE)
    }

    /// Forgets everything about a VM, because another attempt begins.
    pub fn forget_vm(&mut self) {
        *self = Self {
            uid: self.uid.take(),
            history: self.history,
            known_since: self.known_since,
            status: self.status.with_write_only(),
            recorded: self.recorded,
            paused: self.paused,
            stuck_since: self.stuck_since,
            told: self.told.for_another_vm(),
            ..Self::default()
        };
    }
}

/// The object of a pass, in short form for messages.
#[must_use]
pub fn subject(key: &ObjectKey) -> String {
    format!("VsphereAgent/{key}")
}
