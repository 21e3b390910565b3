//! Logs to stderr by `RUST_LOG`, spans to an OTLP collector by the standard `OTEL_*` variables. Without an endpoint
//! variable no exporter exists and spans cost what the log filter lets through.

use agent_forge_actors::ports::tracer::SPAN_EVENTS;
use anyhow::Context;
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::{Level, Metadata, level_filters::LevelFilter};
use tracing_subscriber::{
    EnvFilter, Layer,
    filter::{FilterExt, FilterFn},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

use super::{repeats::Repeats, traces};

/// Keeps the exporter alive; flushes it on [`Telemetry::shutdown`].
#[derive(Debug, Default)]
pub struct Telemetry {
    provider: Option<SdkTracerProvider>,
}

impl Telemetry {
    /// Sends what is still queued; bounded by the exporter's own timeout.
    pub fn shutdown(self) {
        if let Some(provider) = self.provider
            && let Err(e) = provider.shutdown()
        {
            tracing::warn!("flushing spans: {e}");
        }
    }
}

/// What stands in traces: our spans, what is told at `info` and above in them, and what is told for them alone.
fn traced(of: &Metadata<'_>) -> bool {
    let ours = of.target().starts_with("agent_forge");
    ours && (of.is_span() || *of.level() <= Level::INFO || of.target() == SPAN_EVENTS)
}

/// Installs the subscriber. `json`: one JSON object per line instead of human text.
///
/// # Errors
/// A broken `RUST_LOG` or `OTEL_*` setting, named in the message.
pub fn install(json: bool) -> anyhow::Result<Telemetry> {
    let filter = match std::env::var("RUST_LOG") {
        Ok(text) if !text.is_empty() => EnvFilter::try_new(&text)
            .with_context(|| format!("RUST_LOG={text:?} is not a filter"))?,
        _ => EnvFilter::new("info"),
    };
    let logs = if json {
        tracing_subscriber::fmt::layer()
            .json()
            .with_writer(std::io::stderr)
            .with_filter(filter.and(Repeats::default()))
            .boxed()
    } else {
        tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            .with_filter(filter.and(Repeats::default()))
            .boxed()
    };
    let registry = tracing_subscriber::registry().with(logs);
    let Some(provider) = traces::provider()? else {
        registry.init();
        return Ok(Telemetry::default());
    };
    opentelemetry::global::set_text_map_propagator(
        opentelemetry_sdk::propagation::TraceContextPropagator::new(),
    );
    // Where in the code, on which thread and how busy: six attributes and two looks at the clock for each poll, for what
    // nobody asks a machine's trace.
    let spans = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer(traces::SCOPE))
        .with_location(false)
        .with_threads(false)
        .with_tracked_inactivity(false)
        .with_filter(FilterFn::new(traced).with_max_level_hint(LevelFilter::DEBUG));
    registry.with(spans).init();
    Ok(Telemetry {
        provider: Some(provider),
    })
}
