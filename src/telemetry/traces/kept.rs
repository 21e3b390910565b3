//! Phases that were sent and may not have arrived: kept until they have, and told again once the collector takes spans.
//!
//! The SDK drops a batch that the collector does not take, and what comes while its queue is full. Phases are few, about ten
//! for each machine, and their ids and times are fixed: one that arrives twice is one.
//!
//! Guarantees: at most [`MOST`] are kept, the oldest give way and are counted; nobody waits for the collector here. What is
//! kept leaves with the next batch that arrives, so a collector that is away is asked no more often for it.

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

/// Phases that are kept, of about a kilobyte each.
pub const MOST: usize = 2048;
/// Of those, in one export.
const AT_ONCE: usize = 512;
/// One that is on its way for so long has been lost, or waits in a queue that is: it is sent again.
pub const OVERDUE: Duration = Duration::from_secs(30);

type Id = (TraceId, SpanId);

fn id(span: &SpanData) -> Id {
    (span.span_context.trace_id(), span.span_context.span_id())
}

/// The phases that nobody has acknowledged.
#[derive(Debug, Default)]
pub struct Kept {
    phases: Mutex<VecDeque<Phase>>,
    dropped: OnceLock<IntCounter>,
}

#[derive(Debug)]
struct Phase {
    /// When it was sent last.
    sent: Instant,
    span: SpanData,
}

impl Kept {
    /// What counts those that gave way, from now on.
    pub fn count_dropped(&self, counter: IntCounter) {
        let _ = self.dropped.set(counter);
    }

    /// It is being sent.
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

    /// How many there are.
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

    /// The oldest that are overdue; they count as sent now.
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

/// The ways to the collector, one for each resource that spans carry.
#[derive(Debug)]
pub struct Exporters<E> {
    /// For spans of this process.
    pub live: E,
    /// For phases, which every process tells alike.
    pub phases: E,
}

fn is_phase(span: &SpanData) -> bool {
    span.instrumentation_scope.name() == PHASES
}

/// An exporter that tells what is kept again.
#[derive(Debug)]
pub struct Retelling<E> {
    to: Exporters<E>,
    kept: Arc<Kept>,
    overdue: Duration,
}

impl<E: SpanExporter> Retelling<E> {
    /// Sends through `to`; again what has been on its way for longer than `overdue`.
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
            // Nothing of the operator's work depends on it: no error, as the SDK has it.
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
