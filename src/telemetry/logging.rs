//! Logs to stderr according to `RUST_LOG`. Sends spans to an OTLP collector according to the standard `OTEL_*`
//! variables. Without an endpoint variable there is no exporter, and only spans that the log filter accepts cost
//! anything.
//!
//! Guarantee: after [`install`] all output of the process is a line of the log in the log's format, panics included.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    io::IsTerminal as _,
};

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

/// Keeps the exporter alive and flushes it on [`Telemetry::shutdown`].
#[derive(Debug, Default)]
pub struct Telemetry {
    provider: Option<SdkTracerProvider>,
}

impl Telemetry {
    /// Sends the spans that are still queued. The exporter's own timeout limits the time.
    pub fn shutdown(self) {
        if let Some(provider) = self.provider
            && let Err(e) = provider.shutdown()
        {
            tracing::warn!("flushing spans: {e}");
        }
    }
}

/// What traces contain: our spans, events that are only meant for spans, and log lines at `info` without a field
/// `error`.
///
/// Error texts of servers and of the operator may name URLs and users. So a trace has only the reason of a failure, and
/// the log has the sentence.
fn traced(of: &Metadata<'_>) -> bool {
    let ours = of.target().starts_with("agent_forge");
    let news = *of.level() == Level::INFO && of.fields().field("error").is_none();
    ours && (of.is_span() || news || of.target() == SPAN_EVENTS)
}

/// Whether a line is a library's message about a failed call. The caller logs the failure too, with the object and the
/// right level. The first of these targets also prints whole answers that it cannot parse, tokens and passwords
/// included.
fn said_by_the_caller(of: &Metadata<'_>) -> bool {
    match of.target() {
        "kube_client::client" => true,
        "kube_client::client::builder" => *of.level() == Level::ERROR,
        "opentelemetry_sdk" => of.name() == "BatchSpanProcessor.ExportError",
        _ => false,
    }
}

/// The log layer: writes what `levels` accepts to `writer`. With `json` it writes one JSON object per line instead of
/// human text. Human text has colours on a terminal only.
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
        let ansi = std::io::stderr().is_terminal();
        let lines = lines.with_ansi(ansi).with_writer(writer);
        lines.with_filter(filter).boxed()
    }
}

/// Logs a panic as a normal line, with the object that its span names. The runtime's own message has neither.
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

/// Installs the subscriber. With `json` it writes one JSON object per line instead of human text.
///
/// # Errors
/// A broken `RUST_LOG` or `OTEL_*` setting. The message names it.
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
    // Code location, thread and busy time would cost six attributes and two clock reads for each poll. The trace of a
    // machine does not need them.
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
