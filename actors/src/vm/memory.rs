//! What a VM actor remembers between passes: a cache, rebuilt from record and vCenter when lost.

use std::{sync::Arc, time::Duration};

use agent_forge_crds::{
    agent::{Milestone, VmStatus, VsphereAgent, VsphereAgentStatus},
    conditions::reason,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::{
    arrival,
    ownership::Ownership,
    reached::Reached,
    step::{MISSING_PROBE, PROOFS, Resting, Step},
};
use crate::{
    domain::{
        failure::{Class, ErrorSource, ReconcileError},
        identity::BiosUuid,
        names::ObjectKey,
        trace::TraceId,
    },
    ports::{
        clock::Clock,
        effect::EffectKind,
        slots::{Slot, Ticket},
        vcenter::{Place, PowerState, VmObservation},
    },
    runtime::{announcer::Announcer, backoff, status_writer::StatusWriter},
};

/// What Events of a VsphereAgent are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    /// A step is held.
    Hold,
    /// vCenter rejects an operation on the VM.
    Vcenter,
    /// The host makes no progress, or is gone.
    Host,
}

/// The cache.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// uid of the VsphereAgent that it is about.
    uid: Option<String>,
    /// Judged view of the VM.
    pub seen: Ownership,
    /// The vCenter that the last step led to.
    pub reached: Option<Reached>,
    /// This actor recorded the identity, and no create of it has had an effect, or may have one yet.
    pub create_not_sent: bool,
    /// The record was found to be taken away, and no identity has been recorded since.
    pub lost: bool,
    /// The identity that was on record when it was last there.
    pub recorded: Option<BiosUuid>,
    /// When the last create was sent, there was none before it that may still have an effect.
    pub only_create: bool,
    /// The files of this attempt are there although no VM of ours is: another create of it may still be running.
    pub path_taken: bool,
    /// vCenter refused to create it, and nothing was made.
    pub create_refused: Option<Refused>,
    /// Task slot of this pass: kept from a create through power-on, from power-off through destroy.
    pub slot: Option<Arc<Slot>>,
    /// Its place in the line for one.
    pub ticket: Option<Arc<Ticket>>,
    /// Slot of the recorded create that runs while no pass awaits it.
    pub running: Option<Arc<Slot>>,
    /// Which tags were attached in this actor's life, and under which reference.
    pub tagged: Option<Tagged>,
    /// It was not there under its reference when its tags could not be attached.
    pub missed: bool,
    /// This actor switched this VM on.
    pub powered_on: bool,
    /// When this actor sent the first request to do so that may have had an effect, by the API server's clock, and no later
    /// than it really was.
    pub switched_on_at: Option<jiff::Timestamp>,
    /// Since when (monotonic) this actor has known of the VsphereAgent.
    pub known_since: Option<Duration>,
    /// An Agent that runs on this VM, or may, was in sight.
    pub agent_seen: bool,
    /// The discovery deadline that this actor set, and when (monotonic) it is over.
    pub discovery: Option<(Time, Duration)>,
    /// Its AgentMachine was paused when last seen.
    pub paused: bool,
    /// A guest that this actor did not start told its name: it may be a node.
    pub guest_may_be_node: bool,
    /// Since when (monotonic) its Agent is lost, where this actor saw that begin.
    pub lost_since: Option<Duration>,
    /// The VM was looked at since its Agent is overdue.
    pub looked_late: bool,
    /// When (monotonic) the view of a VM that is recorded as running was begun.
    pub seen_since: Option<Duration>,
    /// Since when (monotonic) a deletion hook has waited for the guest.
    pub stuck_since: Option<Duration>,
    /// The recorded VM folder was deleted in vCenter, by the last look.
    pub folder_deleted: bool,
    /// How often vCenter refused in a row to switch the VM off as it is suspended.
    pub suspended: u8,
    /// When (monotonic) absence was last confirmed.
    pub proof_at: Option<Duration>,
    /// Writes the status.
    pub status: StatusWriter<VsphereAgentStatus>,
    /// What happened to the machine of that trace, with what is not written yet.
    pub timeline: Option<(TraceId, Vec<Milestone>)>,
    /// The step that failed last, and how often in a row.
    pub failed_step: Option<(&'static str, u32)>,
    /// The VM was busy with a task when it was to be changed.
    pub busy: Option<Busy>,
    /// The machine of that trace has a bound Agent that was not installed when last seen.
    pub installing: Option<TraceId>,
    /// What was announced in Events.
    pub announcer: Announcer<Topic>,
    /// How much of that trace has left: entries of the timeline, and whether installation and readiness.
    pub traced: Option<(TraceId, usize, [bool; 2])>,
}

/// Tags that are attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tagged {
    /// Reference of the VM.
    pub moref: String,
    /// The tags, as the pool named them then.
    pub tags: Vec<String>,
}

/// A create that vCenter refused, so that nothing was made. What only a changed input mends is not sent again before
/// something changed, or a while went by; in any case the VM is placed again first.
#[derive(Clone, Debug)]
pub struct Refused {
    /// When (monotonic).
    pub at: Duration,
    /// For which generation of the pool.
    pub generation: Option<i64>,
    /// Why.
    pub trouble: ReconcileError,
    /// Where placing it again led.
    pub placed_again: Option<Place>,
}

impl Refused {
    /// It is not tried again yet.
    #[must_use]
    pub fn rests(&self, generation: Option<i64>, now: Duration) -> bool {
        self.trouble.class == Class::Blocked
            && self.generation == generation
            && now.saturating_sub(self.at) < backoff::SLOW_PROBE
    }
}

/// A task works on the VM and does not end: ours, or another that keeps ours away. vCenter would refuse each try meanwhile,
/// so that the same call is left alone for a while; the VM is looked at. Another call is tried at once: of a VM that asks a
/// question instead of starting, it may be the way out.
#[derive(Clone, Debug)]
pub struct Busy {
    call: EffectKind,
    /// CamelCase.
    reason: &'static str,
    /// Sentence.
    why: String,
    /// When (monotonic) it was first met.
    since: Duration,
    /// When it was last met.
    at: Duration,
    /// It is no passing thing.
    for_long: bool,
}

impl Busy {
    /// How long the call is left alone.
    const REST: Duration = Duration::from_secs(300);
    /// Other tasks end sooner, as a rule: until then the call is tried again as after any failure.
    const SHORT: Duration = Duration::from_secs(30);
    /// Not met for that long, it is a matter of the past.
    const PAST: Duration = Duration::from_secs(600);

    /// `call` waits no more for its task, or not again for another.
    #[must_use]
    pub fn for_long(call: EffectKind, reason: &'static str, why: String, now: Duration) -> Self {
        Self {
            call,
            reason,
            why,
            since: now,
            at: now,
            for_long: true,
        }
    }

    /// vCenter refuses `call` since another task works on the VM. `before`: what was known of that so far.
    #[must_use]
    pub fn again(before: Option<Self>, call: EffectKind, why: String, now: Duration) -> Self {
        let Some(before) = before else {
            return Self {
                for_long: false,
                ..Self::for_long(call, reason::VM_BUSY, why, now)
            };
        };
        let for_long = before.for_long || now.saturating_sub(before.since) >= Self::SHORT;
        // What was said of the same call stays said.
        let (reason, why) = if before.call == call {
            (before.reason, before.why)
        } else {
            (reason::VM_BUSY, why)
        };
        Self {
            call,
            reason,
            why,
            since: before.since,
            at: now,
            for_long,
        }
    }

    /// It is no passing thing: the call rests.
    #[must_use]
    pub fn is_for_long(&self) -> bool {
        self.for_long
    }

    /// What people are told, from the failure on until it is over.
    #[must_use]
    pub fn trouble(&self) -> ReconcileError {
        ReconcileError::transient(ErrorSource::Vsphere, self.reason, &self.why)
    }

    /// The call that is left alone yet, and for how long.
    #[must_use]
    pub fn rests(&self, now: Duration) -> Option<Resting<'_>> {
        let left = Self::REST.saturating_sub(now.saturating_sub(self.at));
        (self.for_long && !left.is_zero()).then_some(Resting {
            call: self.call,
            reason: self.reason,
            why: &self.why,
            left,
        })
    }

    /// Nothing was heard of it for long.
    #[must_use]
    pub fn is_past(&self, now: Duration) -> bool {
        now.saturating_sub(self.at) >= Self::PAST
    }
}

impl Memory {
    /// What is known of the way of this VM, recorded or not yet.
    #[must_use]
    pub fn told(&self) -> &[Milestone] {
        self.timeline
            .as_ref()
            .map_or(&[], |(_, all)| all.as_slice())
    }

    /// What the time is for the discovery deadline of `vm`. A wall clock that was set ahead brings none nearer that this actor
    /// remembers to have set.
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

    /// Forgets everything where it is about another object of that name.
    pub fn is_about(&mut self, shown: &VsphereAgent) {
        if self.uid != shown.uid() {
            *self = Self {
                uid: shown.uid(),
                ..Self::default()
            };
        }
    }

    /// Takes in a fresh view of the VM.
    pub fn look(&mut self, seen: Ownership) {
        let suspended = |vm: &VmObservation| vm.power == PowerState::Suspended;
        if matches!(&seen, Ownership::Ours(vm) if !suspended(vm)) {
            self.suspended = 0;
        }
        self.seen = seen;
    }

    /// Keeps what a look at the VM tells of its guest, for good: it may not tell that again.
    pub fn note_guest(&mut self) {
        let told = matches!(&self.seen, Ownership::Ours(shown) if arrival::may_serve(shown));
        self.guest_may_be_node |= told && !self.powered_on;
    }

    /// Forgets how a busy VM looked: what works on it may have ended.
    pub fn look_at_busy(&mut self, now: Duration) {
        self.busy.take_if(|busy| busy.is_past(now));
        if self.busy.is_some() && matches!(self.seen, Ownership::Ours(_)) {
            self.seen = Ownership::NotAsked;
        }
    }

    /// Forgets a view of a VM that is held as it stands (`held`): a request whose reply was lost may have arrived since, or a
    /// person may have put it right.
    pub fn look_again_at(&mut self, held: bool) {
        if held && matches!(self.seen, Ownership::Ours(_)) {
            self.seen = Ownership::NotAsked;
        }
    }

    /// Forgets a view of a running VM that is too old to go on.
    pub fn refresh(&mut self, now: Duration) {
        if self.seen == Ownership::NotAsked {
            self.seen_since = None;
            return;
        }
        if self.is_old(now) {
            self.seen = Ownership::NotAsked;
        }
    }

    /// Forgets, after a while, what stood in the way of a deletion or of a proof: a person may have put it right.
    /// `absence` as well, but for one answer, so that the next one confirms it.
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

    /// Whether the view was begun a while ago; the clock starts anew then.
    fn is_old(&mut self, now: Duration) -> bool {
        let since = *self.seen_since.get_or_insert(now);
        let old = now.saturating_sub(since) >= MISSING_PROBE;
        if old {
            self.seen_since = None;
        }
        old
    }

    /// Gives back what is not needed for `step`: others wait for it.
    pub fn keep_slots(&mut self, step: &Step) {
        // Whatever else comes first, nobody waits for the create meanwhile.
        if !matches!(step, Step::FinishTask(_)) {
            self.running = None;
        }
        let errand = step.errand();
        self.ticket.take_if(|t| Some(t.errand()) != errand);
        let serves = |slot: &Slot| errand.map_or(step.keeps_slot(), |e| slot.serves(e));
        self.slot.take_if(|slot| !serves(slot));
    }

    /// Forgets everything about a VM: another attempt begins.
    pub fn forget_vm(&mut self) {
        self.announcer.keep(|topic| *topic == Topic::Vcenter);
        *self = Self {
            uid: self.uid.take(),
            known_since: self.known_since,
            status: self.status.with_write_only(),
            recorded: self.recorded,
            paused: self.paused,
            stuck_since: self.stuck_since,
            timeline: self.timeline.take(),
            announcer: std::mem::take(&mut self.announcer),
            traced: self.traced,
            ..Self::default()
        };
    }
}

/// Who a pass is for; short for messages.
#[must_use]
pub fn subject(key: &ObjectKey) -> String {
    format!("VsphereAgent/{key}")
}
