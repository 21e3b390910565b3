//! Keeps phases that were sent until the collector has accepted them, and sends them again if necessary.
//!
//! The SDK drops a batch that the collector does not accept, and spans that come while its queue is full. There are
//! only about ten phases for each machine. Their ids and times are fixed, so a phase that arrives twice is still one
//! phase.
//!
//! Guarantees: at most [`MOST`] phases are kept. Beyond that the oldest are dropped and counted. This code never waits
//! for the collector. Kept phases are sent with the next successful batch, so an unreachable collector gets no extra
//! requests.

use std::{
    collections::{HashSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use opentelemetry::trace::{SpanId, TraceId};
use opentelemetry_sdk::{
    error::OTelSdkResult,
    trace::{SpanData, SpanExporter},
};
use prometheus::IntCounter;

use super::PHASES;

/// How many phases are kept. Each has about 1 kB.
pub const MOST: usize = 2048;
/// How many of them are sent in one export.
const AT_ONCE: usize = 512;
/// A phase that was sent this long ago without an answer counts as lost and is sent again.
pub const OVERDUE: Duration = Duration::from_secs(30);

type Id = (TraceId, SpanId);

fn id(span: &SpanData) -> Id {
    (span.span_context.trace_id(), span.span_context.span_id())
}

/// The phases that the collector has not acknowledged.
#[derive(Debug, Default)]
pub struct Kept {
    phases: Mutex<VecDeque<Phase>>,
    dropped: OnceLock<IntCounter>,
}

#[derive(Debug)]
struct Phase {
    /// When the phase was sent last.
    sent: Instant,
    span: SpanData,
}

impl Kept {
    /// Sets the counter of dropped phases.
    pub fn count_dropped(&self, counter: IntCounter) {
        let _ = self.dropped.set(counter);
    }

    /// Keeps a phase that is now being sent.
    pub fn keep(&self, span: SpanData) {
        let mut phases = self.phases();
        if phases.len() >= MOST {
            phases.pop_front();
            if let Some(dropped) = self.dropped.get() {
                dropped.inc();
            }
        }
        let sent = Instant::now();
        phases.push_back(Phase { sent, span });
    }

    /// How many phases are kept.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.phases().len()
    }

    fn phases(&self) -> MutexGuard<'_, VecDeque<Phase>> {
        self.phases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn arrived(&self, ids: &HashSet<Id>) {
        self.phases().retain(|p| !ids.contains(&id(&p.span)));
    }

    /// The oldest phases that are overdue. From now on they count as sent.
    fn overdue(&self, after: Duration) -> Vec<SpanData> {
        let now = Instant::now();
        let mut phases = self.phases();
        let late = phases
            .iter_mut()
            .filter(|p| now.duration_since(p.sent) >= after);
        let again = late.take(AT_ONCE).map(|p| {
            p.sent = now;
            p.span.clone()
        });
        again.collect()
    }
}

/// The exporters to the collector, one for each resource that spans carry.
#[derive(Debug)]
pub struct Exporters<E> {
    /// For spans of this process.
    pub live: E,
    /// For phases, which are identical in every process.
    pub phases: E,
}

fn is_phase(span: &SpanData) -> bool {
    span.instrumentation_scope.name() == PHASES
}

/// An exporter that also sends kept phases again.
#[derive(Debug)]
pub struct Retelling<E> {
    to: Exporters<E>,
    kept: Arc<Kept>,
    overdue: Duration,
}

impl<E: SpanExporter> Retelling<E> {
    /// Sends through `to`. Also sends what has been under way for longer than `overdue`.
    pub fn new(to: Exporters<E>, kept: Arc<Kept>, overdue: Duration) -> Self {
        Self { to, kept, overdue }
    }

    async fn send_phases(&self, phases: Vec<SpanData>) -> OTelSdkResult {
        if phases.is_empty() {
            return Ok(());
        }
        let ids = phases.iter().map(id).collect();
        self.to.phases.export(phases).await?;
        self.kept.arrived(&ids);
        Ok(())
    }

    async fn send(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let (phases, live) = batch.into_iter().partition(is_phase);
        self.send_phases(phases).await?;
        self.send_live(live).await?;
        self.send_phases(self.kept.overdue(self.overdue)).await
    }

    async fn send_live(&self, live: Vec<SpanData>) -> OTelSdkResult {
        if live.is_empty() {
            return Ok(());
        }
        self.to.live.export(live).await
    }
}

impl<E: SpanExporter> SpanExporter for Retelling<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let sent = self.send(batch).await;
        if let Err(e) = &sent {
            // A warning, not an error as in the SDK: the operator's work does not depend on traces.
            tracing::warn!("spans did not reach the collector: {e}");
        }
        sent
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        let phases = self.to.phases.shutdown_with_timeout(timeout);
        self.to.live.shutdown_with_timeout(timeout).and(phases)
    }

    fn force_flush(&self) -> OTelSdkResult {
        let phases = self.to.phases.force_flush();
        self.to.live.force_flush().and(phases)
    }
}

#[cfg(test)]
mod tests;
