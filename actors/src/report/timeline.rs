//! The machine's timeline: which moments are recorded, and which phases of its trace follow from them. Pure.
//!
//! Each entry ends a phase that began with the entry before it. So each phase that has work under it ends, and has its
//! parent. Every process computes the same phases, at any time.
//!
//! Assumption: entries are only appended, and a written entry never changes.
//!
//! Caveat: `agent.install` ends with a condition of the Agent and is not recorded, because that would cost a write for every
//! machine. The Agent keeps the condition while it serves. An installation without success is recorded with the deletion, by
//! a process that saw the Agent serve without the condition. `node.ready` ends with a condition of the AgentMachine, for the
//! same reason. Upstream never lowers that condition once it is true, so every process reads the same time.

use agent_forge_crds::{
    agent::{MAX_TIMELINE_ROWS, Milestone, VmStatus},
    external::agent::Agent,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use crate::{
    domain::{
        recycle::{self, Stage},
        trace::TraceId,
    },
    ports::tracer::Under,
};

/// Entries and the phases that they end, in the order in which they happen.
const CHART: [(&str, &str); 8] = [
    (ACCEPTED, ROOT),
    ("ISOReady", "iso.wait"),
    ("Placed", "vm.place"),
    ("Created", "vm.create"),
    ("PoweredOn", "vm.power_on"),
    ("Discovered", "agent.discovery"),
    ("Prepared", "agent.prepare"),
    (BOUND, "agent.bind"),
];
/// First phase: parent of all others.
pub const ROOT: &str = "machine.demand";
/// Bound Agent to installed Agent.
pub const INSTALL: &str = "agent.install";
/// Installed Agent to ready AgentMachine: then the Node has its place in the cluster.
pub const NODE: &str = "node.ready";
/// From the deletion of the VsphereAgent until its VM is absent.
pub const DESTROY: &str = "vm.destroy";
/// A reason in `status.waitingOn`, from its first moment to its last, in pieces.
pub const WAIT: &str = "machine.wait";
const DEMANDED: &str = "Demanded";
const ACCEPTED: &str = "Accepted";
pub(super) const BOUND: &str = Milestone::BOUND;
pub(super) const DELETING: &str = "Deleting";
/// After the deletion: the VM is proven absent.
const ABSENT: &str = "Absent";
/// The deletion came before the Agent was installed.
pub(super) const UNFINISHED: &str = "InstallAbandoned";
/// The operator makes another VM for the same request.
const REPLACED: &str = "Replaced";
/// The VM began another life.
const RECYCLED: &str = Milestone::RECYCLED;
/// These entries are always recorded, even in a full timeline: only its entry shows that a VM has served.
const KEPT_A_ROW: [&str; 5] = [BOUND, UNFINISHED, RECYCLED, DELETING, ABSENT];

/// What is known of a machine, with times if there are any.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moments<'a> {
    /// The AgentMachine was created.
    pub demanded: Option<Timestamp>,
    /// The VsphereAgent was created.
    pub accepted: Option<Timestamp>,
    /// The discovery ISO is ready.
    pub iso_ready: bool,
    /// The recorded VM.
    pub vm: Option<&'a VmStatus>,
    /// vCenter shows it as ours; the value: whether it is powered on.
    pub shown: Option<bool>,
    /// Its Agent.
    pub agent: Option<&'a Agent>,
    /// The Agent is prepared for its AgentMachine.
    pub prepared: bool,
    /// Its Agent serves, or served when last seen, and is not installed.
    pub installing: bool,
    /// The VsphereAgent's deletionTimestamp.
    pub deleting: Option<Timestamp>,
    /// Now.
    pub now: Timestamp,
}

/// The attempt that the facts are about, counted from 1.
fn attempt(vm: Option<&VmStatus>) -> i32 {
    let recorded = vm.and_then(|v| v.attempt).unwrap_or(0);
    let has_identity = vm.is_some_and(|v| v.bios_uuid.is_some());
    if has_identity {
        recorded.max(1)
    } else {
        recorded + 1
    }
}

pub(super) fn micro(t: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(t.as_microsecond()).unwrap_or(t)
}

impl Moments<'_> {
    /// When `event` happened; `None` while it has not. An event without a time of its own gets the time at which it is seen.
    fn at(&self, event: &str) -> Option<Timestamp> {
        let recorded = |holds: fn(&VmStatus) -> bool| self.vm.is_some_and(holds);
        let is_on = |v: &VmStatus| v.power_state.as_deref() == Some("poweredOn");
        let seen = match event {
            ACCEPTED => return self.accepted,
            "Discovered" => {
                let created = self.agent?.metadata.creation_timestamp.as_ref();
                return Some(created.map_or(self.now, |t| t.0));
            }
            DELETING => return self.deleting,
            "ISOReady" => self.iso_ready,
            "Placed" => recorded(|v| v.bios_uuid.is_some()),
            "Created" => self.shown.is_some() || recorded(|v| v.moref.is_some()),
            "PoweredOn" => self.shown == Some(true) || recorded(is_on),
            "Prepared" => self.agent.is_some() && self.prepared,
            BOUND => self.agent.is_some_and(Agent::is_claimed_or_bound),
            REPLACED => attempt(self.vm) > 1,
            RECYCLED => recorded(|v| recycle::stage(v, None) == Stage::Begun),
            _ => false,
        };
        seen.then_some(self.now)
    }
}

/// The rank of an event. Events of the request or of its end have none.
fn rank(event: &str) -> Option<usize> {
    CHART.iter().position(|(e, _)| *e == event)
}

/// The timeline as it should be now: the recorded entries, and what has happened since.
#[must_use]
pub fn extend(recorded: &[Milestone], m: &Moments<'_>) -> Vec<Milestone> {
    let mut all = recorded.to_vec();
    let attempt = attempt(m.vm);
    let mut note = |event: &str, attempt: i32, at: Option<Timestamp>| {
        let Some(at) = at else { return };
        let over = |e: &Milestone| {
            let later = rank(&e.event) >= rank(event) && rank(event).is_some();
            e.event == DELETING || (e.attempt == attempt && (e.event == event || later))
        };
        let room = if KEPT_A_ROW.contains(&event) {
            MAX_TIMELINE_ROWS
        } else {
            MAX_TIMELINE_ROWS - KEPT_A_ROW.len()
        };
        if all.iter().any(over) || all.len() >= room {
            return;
        }
        // Clocks differ, and some times are whole seconds. So the order is kept.
        let last = all.iter().filter_map(|e| e.at.as_ref()).map(|t| t.0).max();
        let at = micro(at.min(m.now)).max(last.unwrap_or(Timestamp::MIN));
        all.push(Milestone {
            event: event.to_owned(),
            attempt,
            at: Some(MicroTime(at)),
        });
    };
    note(DEMANDED, 1, m.accepted.and(m.demanded.or(m.accepted)));
    note(ACCEPTED, 1, m.at(ACCEPTED));
    if attempt == 1 {
        note("ISOReady", 1, m.at("ISOReady"));
    }
    note(REPLACED, attempt, m.at(REPLACED));
    for (event, _) in CHART.iter().skip(2) {
        note(event, attempt, m.at(event));
    }
    note(RECYCLED, attempt, m.at(RECYCLED));
    if m.installing && recorded.last().is_some_and(|e| e.event == BOUND) {
        note(UNFINISHED, attempt, m.deleting);
    }
    note(DELETING, attempt, m.at(DELETING));
    all
}

/// The timeline of a VsphereAgent in deletion, now that its VM is proven absent. `None` if there is nothing to add, or no
/// room. The end of [`DESTROY`] is recorded before its span is sent, so that every process sends the same span.
#[must_use]
pub fn ended(noted: &[Milestone], now: Timestamp) -> Option<Vec<Milestone>> {
    let last = noted.last().filter(|e| e.event == DELETING)?;
    let begun = last.at.as_ref()?.0;
    (noted.len() < MAX_TIMELINE_ROWS).then(|| {
        let mut all = noted.to_vec();
        all.push(Milestone {
            event: ABSENT.to_owned(),
            attempt: last.attempt,
            at: Some(MicroTime(micro(now).max(begun))),
        });
        all
    })
}

/// Whether the timeline has its end.
#[must_use]
pub fn has_ended(timeline: &[Milestone]) -> bool {
    timeline.last().is_some_and(|e| e.event == ABSENT)
}

/// The phase that `event` ends.
pub(super) fn ended_by(event: &str) -> Option<&'static str> {
    if event == ABSENT {
        return Some(DESTROY);
    }
    rank(event)
        .and_then(|i| CHART.get(i))
        .map(|(_, phase)| *phase)
}

/// The phase that runs after `event`; `None` if that phase gets no span.
pub(super) fn begun_by(event: &str) -> Option<&'static str> {
    match event {
        DEMANDED => Some(ROOT),
        REPLACED => Some("vm.place"),
        // What follows the end is sent with it.
        DELETING | ABSENT => Some(DESTROY),
        // What a host gets while it serves is not worth a span of months.
        BOUND => None,
        _ => CHART.get(rank(event)? + 1).map(|(_, phase)| *phase),
    }
}

pub(super) fn attempt_of(timeline: &[Milestone]) -> i32 {
    timeline.last().map_or(1, |e| e.attempt)
}

/// The span under which present work belongs.
#[must_use]
pub fn under(trace: TraceId, timeline: &[Milestone]) -> Under {
    let open = timeline
        .last()
        .and_then(|e| Some((begun_by(&e.event)?, e.attempt)));
    let (phase, attempt) = open.unwrap_or((ROOT, 1));
    Under {
        trace,
        span: trace.phase(phase, u32::try_from(attempt).unwrap_or(1)),
    }
}

/// An entry of the timeline that is new.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct News<'a> {
    /// What happened.
    pub event: &'a str,
    /// Seconds from the demand to it.
    pub seconds: f64,
    /// No earlier VM of the machine had reached this. So a machine counts once, however often its VM is replaced.
    pub first: bool,
}

/// The entries of `new` that `old` lacks.
pub fn news<'a>(old: &[Milestone], new: &'a [Milestone]) -> impl Iterator<Item = News<'a>> {
    let demanded = new.first().and_then(|e| e.at.as_ref()).map(|t| t.0);
    let added = new.iter().enumerate().skip(old.len());
    added.filter_map(move |(i, e)| {
        let took = e.at.as_ref()?.0.duration_since(demanded?);
        let mut before = new.iter().take(i);
        Some(News {
            event: &e.event,
            seconds: took.as_secs_f64(),
            first: !before.any(|b| b.event == e.event),
        })
    })
}

#[cfg(test)]
mod tests;
