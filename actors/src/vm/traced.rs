//! Tracing of a VM pass: the timeline of its machine, the finished phases, and the steps as spans under them.
//!
//! Guarantee: a phase is exported only from what the status records. So a process that dies takes no knowledge along,
//! and the next process exports the same phase.

use std::sync::Arc;

use agent_forge_crds::{
    WaitingOn,
    agent::{Milestone, VsphereAgent, VsphereAgentStatus},
    external::agent::INSTALLED,
};
use tracing::{Instrument as _, field::Empty};

use super::{
    act::{self, StepOutcome},
    memory::Memory,
    observed::Observed,
    ownership::Ownership,
    pass, status,
    step::Step,
};
use crate::{
    context::Context,
    domain::{
        failure::ReconcileError, managed_vm::ManagedVm, names::ObjectKey, recycle, trace::TraceId,
    },
    iso::of_pool,
    ports::{
        cluster::ClusterResult,
        effect::{Effect, EffectKind, Subject},
        tracer,
        vcenter::PowerState,
    },
    runtime::timeline::{self, About, Moments},
};

fn recorded_timeline<'a>(
    child: &ManagedVm,
    status: Option<&'a VsphereAgentStatus>,
) -> &'a [Milestone] {
    match status {
        // The VM was given to another machine, whose timeline begins now.
        Some(s)
            if s.trace_id
                .as_deref()
                .is_some_and(|t| t != child.trace().to_string()) =>
        {
            &[]
        }
        Some(s) => &s.timeline,
        None => &[],
    }
}

/// Notes what has happened by now.
pub fn note(context: &Context, observed: &Observed, memory: &mut Memory) {
    note_recorded(context, observed, &observed.child.object, memory);
}

/// The same, with the status of `object` as the record.
pub fn note_recorded(
    context: &Context,
    observed: &Observed,
    object: &VsphereAgent,
    memory: &mut Memory,
) {
    let child = &observed.child;
    let recorded = recorded_timeline(child, object.status.as_ref());
    let noted = memory
        .timeline
        .take()
        .filter(|(trace, noted)| *trace == child.trace() && noted.starts_with(recorded));
    let base = noted.map_or_else(|| recorded.to_vec(), |(_, noted)| noted);
    let meta = &child.object.metadata;
    if let Some(agent) = observed
        .host
        .agent
        .as_deref()
        .filter(|a| a.is_claimed_or_bound())
    {
        let installed = agent.condition(INSTALLED).is_some_and(|c| c.is_true());
        memory.installing = (!installed).then(|| child.trace());
    }
    let moments = Moments {
        demanded: observed.demanded(),
        accepted: meta.creation_timestamp.as_ref().map(|t| t.0),
        iso_ready: observed
            .pool
            .as_ref()
            .is_some_and(|p| of_pool::iso_path(p).is_some()),
        vm: object.status.as_ref().and_then(|s| s.vm.as_ref()),
        shown: match &memory.seen {
            Ownership::Ours(vm) => Some(vm.power == PowerState::On),
            _ => None,
        },
        agent: observed.host.agent.as_deref(),
        prepared: observed
            .host
            .agent
            .as_ref()
            .is_some_and(|a| status::prepared(a, child)),
        installing: memory.installing == Some(child.trace()),
        deleting: meta.deletion_timestamp.as_ref().map(|t| t.0),
        now: context.clock.wall(),
    };
    memory.timeline = Some((child.trace(), timeline::extend(&base, &moments)));
}

/// A span of work with that name, under the current phase of the machine's trace.
fn span_under_phase(
    context: &Context,
    observed: &Observed,
    memory: &Memory,
    name: &'static str,
) -> tracing::Span {
    let child = &observed.child;
    let noted = memory.timeline.as_ref();
    let noted = noted.map_or(&[][..], |(_, t)| t.as_slice());
    // The lines of the pass name their object at every log level.
    let span = tracing::error_span!(
        "vm.step",
        otel.name = name,
        object = %child.key,
        uid = %child.uid,
        trace_id = %child.trace(),
        otel.status_code = Empty,
        error.type = Empty,
    );
    let under = timeline::under(child.trace(), noted);
    context.tracer.place(&span, under);
    span
}

/// Writes the status that the pass found, as a span of its own. If the write fails, the next pass writes it. This is no
/// failure of the machine.
///
/// # Errors
/// As [`pass::write`].
pub async fn publish(
    context: &Context,
    observed: &Observed,
    status: VsphereAgentStatus,
    memory: &mut Memory,
) -> ClusterResult<()> {
    let span = span_under_phase(context, observed, memory, "vm.publish");
    let effect = Effect::new(
        EffectKind::RecordObservation,
        Subject::vm(&observed.child.object),
    );
    let write = pass::write(context, &effect, &observed.child.object, status, memory);
    let result = write.instrument(span.clone()).await;
    if result.is_err() {
        span.record("otel.status_code", "ERROR");
    }
    result.map(drop)
}

/// Carries `step` out as a span of the machine's trace, under the current phase.
///
/// # Errors
/// As [`act::perform`].
pub async fn perform(
    context: &Context,
    observed: &Observed,
    memory: &mut Memory,
    step: Step,
) -> Result<StepOutcome, ReconcileError> {
    let span = span_under_phase(context, observed, memory, step.name());
    let name = step.name();
    // Other steps may come between: after an unknown outcome the actor looks at the VM first.
    let failed = memory.failed_step.filter(|(step, _)| *step == name);
    let failed = failed.map_or(0, |(_, times)| times);
    let work = act::perform(context, observed, memory, step);
    let result = tracer::attempt(span, failed, work).await;
    if result.is_err() {
        memory.failed_step = Some((name, failed.saturating_add(1)));
    } else if failed > 0 {
        memory.failed_step = None;
    }
    result
}

fn about<'a>(child: &'a ManagedVm, key: &'a ObjectKey) -> About<'a> {
    About {
        trace: child.trace(),
        namespace: &key.namespace,
        name: &key.name,
        pool: &child.object.spec.pool_ref.name,
        // A host in the buffer has the same trace in each of its lives, so its first phase may not differ.
        before: child
            .vm()
            .filter(|_| child.agent_machine.is_some())
            .and_then(|vm| recycle::trace_before(vm, child.trace())),
    }
}

/// Exports the finished phases, and the waits up to now, from what is recorded in `object`.
pub fn export(
    context: &Context,
    object: &Arc<VsphereAgent>,
    observed: &Observed,
    memory: &mut Memory,
) {
    let child = ManagedVm::read(object.clone());
    let Some(status) = object.status.as_ref() else {
        return;
    };
    let timeline = recorded_timeline(&child, Some(status));
    let about = about(&child, &child.key);
    tell_lasting(context, &about, status);
    let agent = observed.host.agent.as_deref();
    let installation = agent.and_then(|a| timeline::installation(&about, timeline, a));
    let ready = agent
        .zip(observed.ready())
        .and_then(|(a, at)| timeline::readiness(&about, timeline, a, at));
    let others = [installation.is_some(), ready.is_some()];
    let state = (child.trace(), timeline.len(), others);
    if memory.traced == Some(state) {
        return;
    }
    for span in timeline::phases(&about, timeline) {
        context.tracer.phase(span);
    }
    if let Some(span) = installation {
        // An actor that saw the phase unfinished counts its end, once.
        let unfinished =
            |(trace, _, [told, _]): (_, usize, [bool; 2])| trace == span.trace && !told;
        let demanded = timeline.first().and_then(|e| e.at.as_ref());
        if let (true, Some(demanded)) = (memory.traced.is_some_and(unfinished), demanded) {
            let pool = ObjectKey::new(&child.key.namespace, &object.spec.pool_ref.name);
            let all = span.end.duration_since(demanded.0).as_secs_f64();
            context.instruments.milestone(&pool, "Installed", all);
        }
        context.tracer.phase(span);
    }
    if let Some(span) = ready {
        context.tracer.phase(span);
    }
    memory.traced = Some(state);
}

/// Handles a status write that replaced the status of `object` by `new`. Exports what is new in its timeline, and
/// counts it once for each machine. Ends the trace of the machine that had the VM before.
pub fn recorded(context: &Context, object: &Arc<VsphereAgent>, new: &VsphereAgentStatus) {
    let child = ManagedVm::read(object.clone());
    let old = object.status.as_ref();
    let pool = ObjectKey::new(&child.key.namespace, &object.spec.pool_ref.name);
    for news in timeline::news(recorded_timeline(&child, old), &new.timeline) {
        let (event, seconds) = (news.event, news.seconds);
        tracing::info!(object = %child.key, event, seconds, "milestone");
        if news.first {
            context.instruments.milestone(&pool, event, seconds);
        }
    }
    tell_waits(context, &child, old, &new.waiting_on);
    let Some(old) = old.filter(|s| s.trace_id.is_some() && s.trace_id != new.trace_id) else {
        return;
    };
    let Some(trace) = old.trace_id.as_deref().and_then(TraceId::parse) else {
        return;
    };
    let about = About {
        trace,
        // Its first phase was sent while it had the VM.
        before: None,
        ..about(&child, &child.key)
    };
    if let Some(span) = timeline::handed_over(&about, &old.timeline, context.clock.wall()) {
        context.tracer.phase(span);
    }
    context.tracer.forget(trace);
}

/// Exports the waits that are not over. The tracer drops what it has exported before.
fn tell_lasting(context: &Context, about: &About<'_>, status: &VsphereAgentStatus) {
    // If the VM belonged to another machine, its waits belong to the trace of that machine.
    if status.trace_id.as_deref() != Some(about.trace.to_string().as_str()) {
        return;
    }
    let (rows, now) = (&status.waiting_on, context.clock.wall());
    for span in timeline::waits_lasting(about, &status.timeline, rows, now) {
        context.tracer.phase(span);
    }
}

/// Exports the waits of `old` that are over. The actor that wrote the end exports it, so each wait is exported once. If
/// the reply to the write is lost, the wait is not exported.
fn tell_waits(
    context: &Context,
    child: &ManagedVm,
    old: Option<&VsphereAgentStatus>,
    new: &[WaitingOn],
) {
    let Some(old) = old else { return };
    let recorded = old.trace_id.as_deref().and_then(TraceId::parse);
    let about = About {
        trace: recorded.unwrap_or_else(|| child.trace()),
        ..about(child, &child.key)
    };
    let now = context.clock.wall();
    for span in timeline::waits_over(&about, &old.timeline, &old.waiting_on, new, now) {
        context.tracer.phase(span);
    }
}

/// Notes that the VM is proven absent. Returns whether that must still be recorded.
pub fn note_end(context: &Context, child: &ManagedVm, memory: &mut Memory) -> bool {
    if let Some((_, noted)) = &mut memory.timeline
        && let Some(ended) = timeline::ended(noted, context.clock.wall())
    {
        *noted = ended;
    }
    let noted = memory.timeline.as_ref();
    let recorded = recorded_timeline(child, child.object.status.as_ref());
    noted.is_some_and(|(_, noted)| timeline::has_ended(noted)) && !timeline::has_ended(recorded)
}

/// Exports all phases whose end is recorded in `object`.
pub fn ending(context: &Context, object: &Arc<VsphereAgent>) {
    let child = ManagedVm::read(object.clone());
    let about = about(&child, &child.key);
    let timeline = recorded_timeline(&child, object.status.as_ref());
    for span in timeline::phases(&about, timeline) {
        context.tracer.phase(span);
    }
}

/// The object is released. Its phases are exported by now ([`ending`]), except for an end that could not be recorded.
/// The actor that took the finalizer off exports that end. If the reply was lost, the end is not exported: missing is
/// better than twice.
pub fn gone(context: &Context, object: &Arc<VsphereAgent>, timeline: &[Milestone]) {
    let child = ManagedVm::read(object.clone());
    tell_waits(context, &child, object.status.as_ref(), &[]);
    let about = about(&child, &child.key);
    let mut spans = timeline::phases(&about, timeline);
    spans.extend(timeline::destruction(
        &about,
        timeline,
        context.clock.wall(),
    ));
    for span in spans {
        if span.name == timeline::DESTROY && !span.abandoned {
            let pool = ObjectKey::new(&child.key.namespace, &object.spec.pool_ref.name);
            let seconds = span.end.duration_since(span.start).as_secs_f64();
            context.instruments.destroyed(&pool, seconds);
        }
        context.tracer.phase(span);
    }
    context.tracer.forget(child.trace());
}

/// Adds the object of the pass to every log line of the pass.
pub fn name_pass(object: &Arc<VsphereAgent>) {
    let pass = tracing::Span::current();
    if !pass.is_disabled() {
        let child = ManagedVm::read(object.clone());
        pass.record("uid", child.uid.as_str());
        pass.record("trace_id", tracing::field::display(child.trace()));
    }
}

#[cfg(test)]
mod tests;
