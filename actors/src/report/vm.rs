//! What is reported of one VsphereAgent and its VM. Pure, except for its own memory.
//!
//! Guarantee: a phase is exported only from what the status records. So a process that dies takes no knowledge along,
//! and the next process exports the same phase.

use std::time::Duration;

use agent_forge_crds::{
    WaitingOn,
    agent::{Milestone, VsphereAgentStatus},
    conditions::{Policy, Reason, event},
    external::agent::{Agent, INSTALLED},
};
use jiff::Timestamp;

use super::{
    Reports,
    exports::{Exported, export, recorded},
    timeline::{self, Moments},
};
use crate::{
    domain::{managed_vm::ManagedVm, template, trace::TraceId},
    ports::{
        cluster::{Notice, Regarding},
        tracer::Under,
    },
    runtime::announcer::{Announcer, Due, Pace},
};

/// Subject in `waitingOn` for what vCenter refuses or fails.
pub const VSPHERE: &str = "vSphere";

/// What Events of a VsphereAgent are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    /// A step is held.
    Hold,
    /// vCenter rejects an operation on the VM.
    Vcenter,
    /// The host makes no progress, or is gone.
    Host,
    /// Somebody has changed the hardware of the VM.
    Drift,
}

/// What was reported, and what was seen of the milestones. No decision about the VM depends on it, except for
/// [`Self::milestones`].
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// What was announced in Events.
    pub announcer: Announcer<Topic>,
    /// The milestones of the machine with that trace, including those that are not written yet.
    pub timeline: Option<(TraceId, Vec<Milestone>)>,
    /// The machine of that trace has a bound Agent that was not installed when last seen.
    pub installing: Option<TraceId>,
    /// How much of that trace was exported: entries of the timeline, and whether installation and readiness were.
    pub exported: Exported,
    /// The step that failed last, and how often in a row.
    pub failed_step: Option<(&'static str, u32)>,
}

impl Told {
    /// The milestones of this VM, recorded or not yet.
    #[must_use]
    pub fn milestones(&self) -> &[Milestone] {
        self.timeline.as_ref().map_or(&[], |(_, all)| all)
    }

    /// Notes what has happened by now. `recorded`: the milestones on record. `seen`: the rest that is known.
    pub fn note(&mut self, trace: TraceId, recorded: &[Milestone], seen: &Moments<'_>) {
        let noted = self
            .timeline
            .take()
            .filter(|(of, noted)| *of == trace && noted.starts_with(recorded));
        let base = noted.map_or_else(|| recorded.to_vec(), |(_, noted)| noted);
        if let Some(agent) = seen.agent.filter(|a| a.is_claimed_or_bound()) {
            let installed = agent.condition(INSTALLED).is_some_and(|c| c.is_true());
            self.installing = (!installed).then_some(trace);
        }
        let moments = Moments {
            installing: self.installing == Some(trace),
            ..*seen
        };
        self.timeline = Some((trace, timeline::extend(&base, &moments)));
    }

    /// Notes that the VM is proven absent. Returns whether that must still be recorded.
    pub fn note_end(&mut self, child: &ManagedVm, now: Timestamp) -> bool {
        if let Some((_, noted)) = &mut self.timeline
            && let Some(ended) = timeline::ended(noted, now)
        {
            *noted = ended;
        }
        timeline::has_ended(self.milestones())
            && !timeline::has_ended(recorded(child, child.object.status.as_ref()))
    }

    /// The span under which present work belongs.
    #[must_use]
    pub fn under(&self, trace: TraceId) -> Under {
        timeline::under(trace, self.milestones())
    }

    /// The memory for another VM of the same object.
    #[must_use]
    pub fn for_another_vm(&mut self) -> Self {
        self.announcer.keep(|topic| *topic == Topic::Vcenter);
        Self {
            installing: None,
            failed_step: None,
            ..std::mem::take(self)
        }
    }
}

/// What the difference of two statuses does not show.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The VsphereAgent, as the pass read it.
    pub child: &'a ManagedVm,
    /// The Agent that runs on its VM.
    pub agent: Option<&'a Agent>,
    /// When its AgentMachine became ready.
    pub ready: Option<Timestamp>,
    /// The pass ended with a hold, which is the first row of `waitingOn`.
    pub held: bool,
    /// Wall clock.
    pub now: Timestamp,
    /// Monotonic.
    pub monotonic: Duration,
}

/// What is due at the end of a pass. `recorded`: the VsphereAgent with the status that is on record then; `None`: it is
/// gone. `now`: the status as the pass rendered it, written or not.
#[must_use]
pub fn report(
    recorded: Option<&ManagedVm>,
    now: &VsphereAgentStatus,
    facts: &Facts<'_>,
    told: &mut Told,
) -> Reports {
    let mut reports = Reports::default();
    let mut events = Events {
        facts,
        announcer: &mut told.announcer,
        reports: &mut reports,
    };
    let first = now.waiting_on.first();
    if let Some(row) = first.filter(|_| facts.held) {
        events.hold(row);
    }
    events.vcenter(first);
    events.host(first);
    events.drift(now);
    if let Some(child) = recorded {
        let of_agent = (facts.agent, facts.ready);
        export(child, of_agent, facts.now, &mut told.exported, &mut reports);
    }
    reports
}

/// Decides on the Events of a pass.
struct Events<'a> {
    facts: &'a Facts<'a>,
    announcer: &'a mut Announcer<Topic>,
    reports: &'a mut Reports,
}

impl Events<'_> {
    fn warn(&mut self, reason: &'static str, action: &'static str, words: &str) {
        let event = notice(self.facts.child, true, reason, action, words);
        self.reports.events.push(event);
    }

    /// Whether the state of `topic` is announced now. If it is later, the reports say when.
    fn is_due(&mut self, topic: Topic, reason: &str, pace: Pace) -> bool {
        let due = self
            .announcer
            .announce(topic, reason, self.facts.monotonic, pace);
        if let Due::In(left) = due {
            self.reports.wake(left);
        }
        due == Due::Now
    }

    /// A hold begins that people must know about.
    fn hold(&mut self, row: &WaitingOn) {
        let news = match &row.reason {
            Reason::AgentBound | Reason::MachineStateUnknown if self.facts.child.deleting => {
                Some((event::AGENT_DELETE_DEFERRED, "DeleteAgent"))
            }
            Reason::MachineVanishedPaused => Some((event::AGENT_DELETE_DEFERRED, "DeleteAgent")),
            Reason::PoolNotFound => Some((event::POOL_NOT_FOUND, "ProvideHost")),
            Reason::VmInaccessible => Some((event::VSPHERE_TROUBLE, "LookUpVM")),
            _ => None,
        };
        let Some((event, action)) = news else {
            self.announcer.over(&Topic::Hold);
            return;
        };
        if self.is_due(Topic::Hold, row.reason.as_str(), Pace::NEWS) {
            self.warn(event, action, &row.message);
        }
    }

    /// vCenter has rejected an operation on this VM for a while. If vCenter does not answer at all, the pool sends one
    /// Event for all VMs.
    fn vcenter(&mut self, first: Option<&WaitingOn>) {
        let of_vm = |w: &&WaitingOn| w.subject == VSPHERE && !w.reason.says_nothing_of_its_object();
        let row = first.filter(of_vm);
        self.lasting(Topic::Vcenter, row, event::VSPHERE_TROUBLE, "ChangeVM");
    }

    /// The host makes no progress for a while, or is gone.
    fn host(&mut self, first: Option<&WaitingOn>) {
        let row = first.filter(|w| w.reason.has(Policy::Told));
        self.lasting(Topic::Host, row, event::HOST_TROUBLE, "ProvideHost");
    }

    fn lasting(
        &mut self,
        topic: Topic,
        row: Option<&WaitingOn>,
        event: &'static str,
        action: &'static str,
    ) {
        let Some(row) = row else {
            self.announcer.over(&topic);
            return;
        };
        if self.is_due(topic, row.reason.as_str(), Pace::OBSTACLE) {
            self.warn(event, action, &format!("{}: {}", row.reason, row.message));
        }
    }

    /// Somebody has changed the hardware of the VM.
    fn drift(&mut self, now: &VsphereAgentStatus) {
        let vm = now.vm.as_ref();
        let drift = vm.map_or(&[][..], |vm| vm.hardware_drift.as_slice());
        if drift.is_empty() {
            self.announcer.over(&Topic::Drift);
            return;
        }
        let words = template::explain(drift);
        if self.is_due(Topic::Drift, &words, Pace::NEWS) {
            let note =
                format!("somebody has changed the VM in vCenter ({words}); it is left as it is");
            self.warn(event::HARDWARE_DRIFT, "CompareVM", &note);
        }
    }
}

/// An Event about that VsphereAgent, with its trace.
#[must_use]
pub fn notice(
    child: &ManagedVm,
    warning: bool,
    reason: &'static str,
    action: &'static str,
    words: &str,
) -> Notice {
    Notice {
        regarding: Regarding {
            api_version: agent_forge_crds::names::API_VERSION.to_owned(),
            kind: "VsphereAgent".to_owned(),
            key: child.key.clone(),
            uid: child.uid.clone(),
        },
        warning,
        reason,
        action,
        note: format!("{words} (trace {})", child.trace()),
    }
}

#[cfg(test)]
mod tests;
