//! Logs to stderr by `RUST_LOG`, spans to an OTLP collector by the standard `OTEL_*` variables. Without an endpoint
//! variable no exporter exists and spans cost what the log filter lets through.

use anyhow::Context;
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_subscriber::{
    EnvFilter, Layer, filter::FilterExt, layer::SubscriberExt, util::SubscriberInitExt,
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
    let spans = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer(traces::SCOPE))
        .with_filter(EnvFilter::new(
            "off,agent_forge=debug,agent_forge_actors=debug",
        ));
    registry.with(spans).init();
    Ok(Telemetry {
        provider: Some(provider),
    })
}
