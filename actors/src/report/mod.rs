//! What is reported of states and their differences: Events, log lines, spans and metrics.
//!
//! [`vm`] decides what is due for a VM, and `pool/report.rs` what is due for a pool, as pure functions of values. Only [`tell`] sends
//! it.
//! Guarantees: what lasts is reported at least once, at its pace. News is reported at most once.

pub mod exports;
pub mod spans;
pub mod timeline;
pub mod vm;

use std::time::Duration;

use crate::{
    context::Context,
    domain::{names::ObjectKey, trace::TraceId},
    ports::{
        cluster::Notice,
        instruments::{PoolGauges, PoolView},
        tracer::PhaseSpan,
    },
};

/// Something to count.
#[derive(Clone, Debug, PartialEq)]
pub enum Metric {
    /// A VM of that pool is proven absent, that many seconds after the request to delete it.
    Destroyed(ObjectKey, f64),
    /// A machine of that pool reached that milestone, that many seconds after its demand.
    Milestone(ObjectKey, String, f64),
    /// A vSphere operation on a VM ended; whether it succeeded.
    Operation(&'static str, bool),
    /// The way of a host into another pool ended like that.
    Reassigned(&'static str),
    /// The way of a VM into another life ended like that, after that many seconds.
    Recycled(&'static str, f64),
    /// The counts of that pool.
    Pool(ObjectKey, PoolGauges),
    /// What else is shown of that pool.
    PoolView(ObjectKey, PoolView),
    /// That pool has work at that vCenter, and its ISO uses that cache.
    PoolUses(ObjectKey, String, String),
    /// That pool is gone.
    PoolGone(ObjectKey),
}

/// What is due.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reports {
    /// Events.
    pub events: Vec<Notice>,
    /// Milestones for the log: VsphereAgent, event, and seconds after the demand.
    pub lines: Vec<(ObjectKey, String, f64)>,
    /// What a dry run would do, for the log: pool and sentence.
    pub rehearsed: Vec<(ObjectKey, String)>,
    /// Metrics.
    pub metrics: Vec<Metric>,
    /// Phases and waits that are over. The tracer drops what it has sent before.
    pub spans: Vec<PhaseSpan>,
    /// Traces that get no more spans.
    pub ended: Vec<TraceId>,
    /// When something more may be due.
    pub again: Option<Duration>,
}

impl Reports {
    /// Only that Event.
    #[must_use]
    pub fn event(event: Notice) -> Self {
        let events = vec![event];
        Self {
            events,
            ..Self::default()
        }
    }

    /// Only that metric.
    #[must_use]
    pub fn metric(metric: Metric) -> Self {
        let metrics = vec![metric];
        Self {
            metrics,
            ..Self::default()
        }
    }

    /// Something more may be due after that long.
    pub fn wake(&mut self, left: Duration) {
        self.again = Some(self.again.map_or(left, |again| again.min(left)));
    }
}

/// Sends what is due.
pub fn tell(context: &Context, reports: Reports) {
    for event in reports.events {
        context.cluster.notify(event);
    }
    for (object, event, seconds) in reports.lines {
        tracing::info!(%object, event, seconds, "milestone");
    }
    for (object, words) in reports.rehearsed {
        tracing::info!(%object, "dry run: {words}");
    }
    for metric in reports.metrics {
        count(context, metric);
    }
    for span in reports.spans {
        context.tracer.phase(span);
    }
    for trace in reports.ended {
        context.tracer.forget(trace);
    }
}

fn count(context: &Context, metric: Metric) {
    let to = context.instruments.as_ref();
    match metric {
        Metric::Destroyed(pool, seconds) => to.destroyed(&pool, seconds),
        Metric::Milestone(pool, event, seconds) => to.milestone(&pool, &event, seconds),
        Metric::Operation(operation, success) => to.vm_operation(operation, success),
        Metric::Reassigned(result) => to.reassigned(result),
        Metric::Recycled(result, seconds) => to.recycled(result, seconds),
        Metric::Pool(pool, gauges) => to.pool(&pool, &gauges),
        Metric::PoolView(pool, view) => to.pool_view(&pool, &view),
        Metric::PoolUses(pool, server, cache) => to.pool_uses(&pool, &server, &cache),
        Metric::PoolGone(pool) => to.drop_pool(&pool),
    }
}
