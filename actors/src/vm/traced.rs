//! Tracing of a VM pass: its steps as spans under the phases of its machine.

use std::sync::Arc;

use agent_forge_crds::agent::{VsphereAgent, VsphereAgentStatus};
use tracing::{Instrument as _, field::Empty};

use super::{
    act::{self, StepOutcome},
    memory::Memory,
    observed::Observed,
    step::Step,
    write::write,
};
use crate::{
    context::Context,
    domain::{failure::ReconcileError, managed_vm::ManagedVm},
    ports::{
        cluster::ClusterResult,
        effect::{Effect, EffectKind, Subject},
        tracer,
    },
};

/// A span of work with that name, under the current phase of the machine's trace.
fn span_under_phase(
    context: &Context,
    observed: &Observed,
    memory: &Memory,
    name: &'static str,
) -> tracing::Span {
    let child = &observed.child;
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
    context
        .tracer
        .place(&span, memory.told.under(child.trace()));
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
    let write = write(context, &effect, &observed.child.object, status, memory);
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
    let failed = memory.told.failed_step.filter(|(step, _)| *step == name);
    let failed = failed.map_or(0, |(_, times)| times);
    let work = act::perform(context, observed, memory, step);
    let result = tracer::attempt(span, failed, work).await;
    if result.is_err() {
        memory.told.failed_step = Some((name, failed.saturating_add(1)));
    } else if failed > 0 {
        memory.told.failed_step = None;
    }
    result
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
