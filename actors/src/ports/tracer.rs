//! Takes spans of known identity, and places work under them. Live spans belong to `tracing`. This port adds what `tracing`
//! cannot express: ids, recorded times, and a parent from another process.

use agent_forge_crds::conditions::Reason;
use jiff::Timestamp;
use tracing::{Instrument as _, Span};

use crate::domain::{
    failure::ReconcileError,
    trace::{SpanId, TraceId},
};

/// Target of events for traces. Logs show them at `debug`.
pub const SPAN_EVENTS: &str = "agent_forge_actors::span";

/// A phase of a machine that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhaseSpan {
    /// The machine's trace.
    pub trace: TraceId,
    /// Its own id.
    pub id: SpanId,
    /// The span above; `None` for the first phase, which is the trace's root.
    pub parent: Option<SpanId>,
    /// A span of another trace to which it links: that of the life before.
    pub link: Option<Under>,
    /// `<noun>.<verb>`.
    pub name: &'static str,
    /// First moment.
    pub start: Timestamp,
    /// Last moment.
    pub end: Timestamp,
    /// The object that it is about, and the result.
    pub attributes: Vec<(&'static str, String)>,
    /// It ended without a result.
    pub abandoned: bool,
}

/// A place in a machine's trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Under {
    /// The machine's trace.
    pub trace: TraceId,
    /// The span above.
    pub span: SpanId,
}

/// Takes spans.
pub trait Tracer: Send + Sync {
    /// A phase is over. The tracer drops repeats by their id, so that each process sends it at most once.
    fn phase(&self, span: PhaseSpan);
    /// Places `work`, which has not been entered yet, under a span of a machine's trace. Links it to the span in which it
    /// was created.
    fn place(&self, work: &Span, under: Under);
    /// No more spans of that machine follow.
    fn forget(&self, trace: TraceId);
}

/// Runs `work` in `span`, which has the fields `otel.status_code` and `error.type`. A failure gets the event `fault`, the
/// next try the event `retry`. `failed`: how many tries in a row failed before this one.
///
/// # Errors
/// As `work`.
pub async fn attempt<T>(
    span: Span,
    failed: u32,
    work: impl Future<Output = Result<T, ReconcileError>>,
) -> Result<T, ReconcileError> {
    if failed > 0 {
        let attempt = failed.saturating_add(1);
        span.in_scope(|| tracing::debug!(target: SPAN_EVENTS, attempt, "retry"));
    }
    let result = work.instrument(span.clone()).await;
    if let Err(trouble) = &result {
        fault(&span, trouble);
    }
    result
}

/// Marks `span`, which has the fields `otel.status_code` and `error.type`, as failed.
pub fn fault(span: &Span, trouble: &ReconcileError) {
    span.record("otel.status_code", "ERROR");
    span.record("error.type", trouble.reason.as_str());
    // Without the message: it may contain addresses.
    let (side, class) = (trouble.side, trouble.class);
    span.in_scope(
        || tracing::debug!(target: SPAN_EVENTS, reason = %trouble.reason, ?side, ?class, "fault"),
    );
}

/// Marks `span`: its work was not done, because a live read spoke against it. Without a reason the object changed since the
/// plan.
pub fn held(span: &Span, reason: Option<&Reason>) {
    let reason = reason.map_or("Outdated", Reason::as_str);
    span.in_scope(|| tracing::debug!(target: SPAN_EVENTS, reason, "held"));
}

/// Traces nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTracer;

impl Tracer for NoTracer {
    fn phase(&self, _: PhaseSpan) {}
    fn place(&self, _: &Span, _: Under) {}
    fn forget(&self, _: TraceId) {}
}
