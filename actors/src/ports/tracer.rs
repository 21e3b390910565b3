//! Where spans of known identity go, and how work is put under them. Live spans are `tracing`'s; this port adds what
//! that cannot say: ids, times that were recorded, a parent that another process may have made.

use jiff::Timestamp;
use tracing::{Instrument as _, Span};

use crate::domain::{
    failure::ReconcileError,
    trace::{SpanId, TraceId},
};

/// Target of events that are for traces: logs have them at `debug`.
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
    /// `<noun>.<verb>`.
    pub name: &'static str,
    /// First moment.
    pub start: Timestamp,
    /// Last moment.
    pub end: Timestamp,
    /// Whom it is about, and what came of it.
    pub attributes: Vec<(&'static str, String)>,
    /// It ended without what it was for.
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
    /// A phase is over. Repeats are told apart by id and dropped: at most one per process leaves.
    fn phase(&self, span: PhaseSpan);
    /// Puts `work`, which has not been entered yet, under a span of a machine's trace, and links it to the span that it
    /// was made in.
    fn place(&self, work: &Span, under: Under);
    /// Nothing more comes of that machine.
    fn forget(&self, trace: TraceId);
}

/// Carries `work` out in `span`, which has the fields `otel.status_code` and `error.type`: a failure gets the event
/// `fault`, the next try the event `retry`. `failed`: how many tries of it in a row failed before this one.
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

/// Says in `span`, which has the fields `otel.status_code` and `error.type`, that its work failed.
pub fn fault(span: &Span, trouble: &ReconcileError) {
    span.record("otel.status_code", "ERROR");
    span.record("error.type", trouble.reason.as_str());
    // Without the sentence: it may name addresses.
    let (side, class) = (trouble.side, trouble.class);
    span.in_scope(
        || tracing::debug!(target: SPAN_EVENTS, reason = %trouble.reason, ?side, ?class, "fault"),
    );
}

/// Says in `span` that its work was not done: what a live look showed speaks against it. Without a reason it is no more
/// what it was planned from.
pub fn held(span: &Span, reason: Option<&str>) {
    let reason = reason.unwrap_or("Outdated");
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
