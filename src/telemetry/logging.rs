//! Logs to stderr by `RUST_LOG`, spans to an OTLP collector by the standard `OTEL_*` variables. Without an endpoint
//! variable no exporter exists and spans cost what the log filter lets through.
//!
//! Guarantee: from [`install`] on everything that the process says is a line of the log, in its form, panics included.

use std::backtrace::{Backtrace, BacktraceStatus};

use agent_forge_actors::ports::tracer::SPAN_EVENTS;
use anyhow::Context;
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::{Level, Metadata, Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{
    EnvFilter, Layer,
    filter::{FilterExt, FilterFn},
    fmt::MakeWriter,
    layer::SubscriberExt,
    registry::LookupSpan,
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

/// What stands in traces: our spans, what is told for them alone, and in them the log's lines at `info` that tell of no
/// `error`. What went wrong is said in sentences of servers and of our own, which may name URLs and users: a trace has the
/// reason, the log the sentence.
fn traced(of: &Metadata<'_>) -> bool {
    let ours = of.target().starts_with("agent_forge");
    let news = *of.level() == Level::INFO && of.fields().field("error").is_none();
    ours && (of.is_span() || news || of.target() == SPAN_EVENTS)
}

/// What libraries say of a call that failed: whoever made the call says it too, with the object and at the level that it
/// deserves. The first of these also writes out whole replies that it cannot read, tokens and passwords included.
fn said_by_the_caller(of: &Metadata<'_>) -> bool {
    match of.target() {
        "kube_client::client" => true,
        "kube_client::client::builder" => *of.level() == Level::ERROR,
        "opentelemetry_sdk" => of.name() == "BatchSpanProcessor.ExportError",
        _ => false,
    }
}

/// The log: what `levels` lets through, to `writer`. `json`: one JSON object per line instead of human text.
pub fn lines<S, W>(json: bool, levels: EnvFilter, writer: W) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let ours = FilterFn::new(|of: &Metadata<'_>| !said_by_the_caller(of));
    let filter = levels.and(ours).and(Repeats::default());
    let lines = tracing_subscriber::fmt::layer::<S>();
    if json {
        lines.json().with_writer(writer).with_filter(filter).boxed()
    } else {
        lines.with_writer(writer).with_filter(filter).boxed()
    }
}

/// A panic is a line like any other, with the object that its span names: the runtime's own words are neither.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string);
        let place = place.unwrap_or_else(|| "an unknown place".to_owned());
        let why = panic.payload_as_str().unwrap_or("no words");
        let trace = Backtrace::capture();
        let trace = (trace.status() == BacktraceStatus::Captured).then(|| trace.to_string());
        tracing::error!(backtrace = trace, "panicked at {place}: {why}");
    }));
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
    let logs = lines(json, filter, std::io::stderr);
    let registry = tracing_subscriber::registry().with(logs);
    let Some(provider) = traces::provider()? else {
        registry.init();
        log_panics();
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
    log_panics();
    for odd in traces::odd_settings() {
        tracing::warn!("{odd}");
    }
    Ok(Telemetry {
        provider: Some(provider),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::told::Told;

    #[test]
    fn a_trace_has_the_reason_and_the_log_the_sentence() {
        let told = Told::default();
        let provider = SdkTracerProvider::builder()
            .with_simple_exporter(told.clone())
            .build();
        let layer = tracing_opentelemetry::layer()
            .with_tracer(provider.tracer("test"))
            .with_filter(FilterFn::new(traced).with_max_level_hint(LevelFilter::DEBUG));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            tracing::error_span!("vm.pass").in_scope(|| {
                let said = "operator@vsphere.local cannot read https://vc.example/";
                tracing::info!(outcome = "done", "effect create");
                tracing::info!(error = said, "task failed");
                tracing::warn!(reason = "NoPermission", "{said}");
                tracing::debug!("next step");
                tracing::debug!(target: SPAN_EVENTS, reason = "NoPermission", "fault");
            });
        });
        assert_eq!(told.events("vm.pass"), ["effect create", "fault"]);
    }
}
