//! The phases of a machine's trace that are sent, each once. Pure.

use agent_forge_crds::{
    WaitingOn,
    agent::{Milestone, VsphereAgentStatus},
    external::agent::Agent,
};
use jiff::Timestamp;

use super::{
    Metric, Reports,
    spans::{self, SpanSubject},
    timeline,
};
use crate::{
    domain::{managed_vm::ManagedVm, recycle, trace::TraceId},
    ports::tracer::PhaseSpan,
};

/// The milestones of `status` that belong to the trace of `child`.
#[must_use]
pub fn recorded<'a>(child: &ManagedVm, status: Option<&'a VsphereAgentStatus>) -> &'a [Milestone] {
    let trace = child.trace().to_string();
    // If the VM was given to another machine, the timeline of that machine begins now.
    let own = status.filter(|s| s.trace_id.as_ref().is_none_or(|t| *t == trace));
    own.map_or(&[], |s| s.timeline.as_slice())
}

fn about(child: &ManagedVm) -> SpanSubject<'_> {
    SpanSubject {
        trace: child.trace(),
        namespace: &child.key.namespace,
        name: &child.key.name,
        pool: &child.pool.name,
        // A host in the buffer has the same trace in each of its lives, so its first phase may not differ.
        before: child
            .vm()
            .filter(|_| child.agent_machine.is_some())
            .and_then(|vm| recycle::trace_before(vm, child.trace())),
    }
}

/// What was exported of a VM: its trace, how many entries of its timeline, and the two phases that are not in it.
pub type Exported = Option<(TraceId, usize, [bool; 2])>;

/// The finished phases, and the waits up to now, from what is recorded in `child`. `agent`: the one that runs on its VM.
/// `ready`: when its AgentMachine became ready.
pub(super) fn export(
    child: &ManagedVm,
    (agent, ready): (Option<&Agent>, Option<Timestamp>),
    now: Timestamp,
    exported: &mut Exported,
    reports: &mut Reports,
) {
    let Some(status) = child.object.status.as_ref() else {
        return;
    };
    let (about, timeline) = (about(child), recorded(child, Some(status)));
    // If the VM belonged to another machine, its waits belong to the trace of that machine.
    if status.trace_id.as_deref() == Some(about.trace.to_string().as_str()) {
        let (all, rows) = (&status.timeline, &status.waiting_on);
        let waits = spans::waits_lasting(&about, all, rows, now);
        reports.spans.extend(waits);
    }
    let installation = agent.and_then(|a| spans::installation(&about, timeline, a));
    let ready = agent
        .zip(ready)
        .and_then(|(a, at)| spans::readiness(&about, timeline, a, at));
    let others = [installation.is_some(), ready.is_some()];
    let state = (child.trace(), timeline.len(), others);
    let before = exported.replace(state);
    if before == Some(state) {
        return;
    }
    reports.spans.extend(spans::phases(&about, timeline));
    // An actor that saw the phase unfinished counts its end, once.
    let unfinished = before.is_some_and(|(trace, _, [told, _])| trace == about.trace && !told);
    let demanded = timeline.first().and_then(|e| e.at.as_ref());
    if let (Some(span), Some(demanded), true) = (&installation, demanded, unfinished) {
        let all = span.end.duration_since(demanded.0).as_secs_f64();
        let metric = Metric::Milestone(child.pool.clone(), "Installed".to_owned(), all);
        reports.metrics.push(metric);
    }
    reports.spans.extend(installation.into_iter().chain(ready));
}

/// What a status write made new: `new` replaced the status of `child`. Each machine counts once for each milestone. The trace of
/// the machine that had the VM before ends. If the reply to the write is lost, this is not reported.
#[must_use]
pub fn written(child: &ManagedVm, new: &VsphereAgentStatus, now: Timestamp) -> Reports {
    let old = child.object.status.as_ref();
    let mut reports = Reports {
        spans: waits_over(child, &new.waiting_on, now),
        ..Reports::default()
    };
    for news in timeline::news(recorded(child, old), &new.timeline) {
        let (event, seconds) = (news.event.to_owned(), news.seconds);
        if news.first {
            let metric = Metric::Milestone(child.pool.clone(), event.clone(), seconds);
            reports.metrics.push(metric);
        }
        reports.lines.push((child.key.clone(), event, seconds));
    }
    let old = old.filter(|s| s.trace_id != new.trace_id);
    if let Some((old, trace)) = old.and_then(|old| Some((old, trace_of(old)?))) {
        let about = SpanSubject {
            trace,
            // Its first phase was sent while it had the VM.
            before: None,
            ..about(child)
        };
        let span = spans::handed_over(&about, &old.timeline, now);
        reports.spans.extend(span);
        reports.ended.push(trace);
    }
    reports
}

fn trace_of(status: &VsphereAgentStatus) -> Option<TraceId> {
    status.trace_id.as_deref().and_then(TraceId::parse)
}

/// The waits on record that are over when only `new` lasts. The actor that wrote the end exports it, so each wait is exported
/// once.
fn waits_over(child: &ManagedVm, new: &[WaitingOn], now: Timestamp) -> Vec<PhaseSpan> {
    let Some(old) = child.object.status.as_ref() else {
        return Vec::new();
    };
    let about = SpanSubject {
        trace: trace_of(old).unwrap_or_else(|| child.trace()),
        ..about(child)
    };
    spans::waits_over(&about, &old.timeline, &old.waiting_on, new, now)
}

/// All phases whose end is recorded in `child`. They are sent before its finalizer goes.
#[must_use]
pub fn ending(child: &ManagedVm) -> Reports {
    let timeline = recorded(child, child.object.status.as_ref());
    Reports {
        spans: spans::phases(&about(child), timeline),
        ..Reports::default()
    }
}

/// The object is released. Its phases are exported by now ([`ending`]), except for an end that could not be recorded.
/// The actor that took the finalizer off exports that end. If the reply was lost, the end is not exported: missing is
/// better than twice.
#[must_use]
pub fn gone(child: &ManagedVm, timeline: &[Milestone], now: Timestamp) -> Reports {
    let about = about(child);
    let mut spans = waits_over(child, &[], now);
    spans.extend(spans::phases(&about, timeline));
    spans.extend(spans::destruction(&about, timeline, now));
    let destroyed = spans
        .iter()
        .filter(|s| s.name == timeline::DESTROY && !s.abandoned);
    let seconds = destroyed.map(|s| s.end.duration_since(s.start).as_secs_f64());
    Reports {
        metrics: seconds
            .map(|s| Metric::Destroyed(child.pool.clone(), s))
            .collect(),
        spans,
        ended: vec![child.trace()],
        ..Reports::default()
    }
}
