//! Sends spans to an OTLP collector according to the standard `OTEL_*` variables. Without an endpoint variable nothing
//! of this is created.
//!
//! Two kinds of spans use one bounded queue: live spans of `tracing`, and phases of machines. The ids and times of
//! phases come from recorded data ([`MachineTracer`]). A full queue drops spans. It never blocks and never grows.
//! Phases that do not arrive are sent again (module `kept`). Live spans name their process. Phases do not, so that every
//! process sends an identical phase.

mod kept;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, SystemTime},
};

use agent_forge_actors::{
    domain::trace,
    ports::tracer::{NoTracer, PhaseSpan, Tracer, Under},
};
use anyhow::Context as _;
use opentelemetry::{
    Context, InstrumentationScope, Key, KeyValue,
    trace::{
        Link, Span as _, SpanContext, SpanId, SpanKind, Status, TraceContextExt as _, TraceFlags,
        TraceId, TraceState,
    },
};
use opentelemetry_otlp::{
    Protocol, SpanExporter, WithExportConfig, WithHttpConfig, WithTonicConfig,
    tonic_types::transport::{Certificate, ClientTlsConfig},
};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    resource::{EnvResourceDetector, ResourceDetector as _},
    trace::{
        BatchSpanProcessor, Config, SamplingDecision, SdkTracerProvider, ShouldSample, Span,
        SpanData, SpanLinks, SpanProcessor,
    },
};
use prometheus::IntCounter;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use self::kept::{Exporters, Kept, OVERDUE, Retelling};
use super::otlp_client::OtlpClient;
use crate::vsphere::tls;

/// Phases that ended longer ago than this are not sent: the process before this one has sent them. Otherwise a restart
/// would repeat the whole history.
const REPEATED: Duration = Duration::from_secs(3600);

/// How many spans of one machine are remembered as sent.
const REMEMBERED: usize = 1024;

/// The scope of live spans.
pub const SCOPE: &str = "agent-forge";

/// The scope of phases.
const PHASES: &str = "agent-forge.phases";

/// Attributes of the resource that are the same for every process and version of one installation.
const LASTING: [&str; 2] = ["service.name", "service.namespace"];

static INSTALLED: OnceLock<Arc<MachineTracer>> = OnceLock::new();

/// The tracer of this process. It does nothing if no collector is configured. `dropped` counts phases that never
/// arrived and are no longer kept.
#[must_use]
pub fn tracer(dropped: IntCounter) -> Arc<dyn Tracer> {
    match INSTALLED.get() {
        Some(tracer) => {
            tracer.kept.count_dropped(dropped);
            tracer.clone()
        }
        None => Arc::new(NoTracer),
    }
}

fn variable(names: &[&str]) -> Option<String> {
    let set = |n: &&str| std::env::var(n).ok().filter(|v| !v.is_empty());
    names.iter().find_map(set)
}

/// Whether a process with these variables sends spans.
fn wanted(variable: impl Fn(&str) -> Option<String>) -> bool {
    let says = |name: &str, word: &str| {
        variable(name).is_some_and(|value| value.eq_ignore_ascii_case(word))
    };
    let off = says("OTEL_SDK_DISABLED", "true") || says("OTEL_TRACES_EXPORTER", "none");
    let endpoints = [
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
    ];
    !off && endpoints.into_iter().any(|name| variable(name).is_some())
}

/// Sets up the connection to the collector; `None` if none is configured.
///
/// # Errors
/// A broken `OTEL_*` setting. The message names it.
pub fn provider() -> anyhow::Result<Option<SdkTracerProvider>> {
    if !wanted(|name| variable(&[name])) {
        return Ok(None);
    }
    let mut resource = Resource::builder();
    let of_attributes = EnvResourceDetector::new().detect();
    let of_attributes = of_attributes.get(&Key::from_static_str("service.name"));
    if let Some(name) = service_name(variable(&["OTEL_SERVICE_NAME"]), of_attributes.is_some()) {
        resource = resource.with_service_name(name);
    }
    let resource = resource
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build();
    let exporters = Exporters {
        live: exporter()?,
        phases: exporter()?,
    };
    let (machines, provider) = through(exporters, resource);
    let _ = INSTALLED.set(Arc::new(machines));
    Ok(Some(provider))
}

/// The name of the service. `named`: the SDK takes one from `OTEL_RESOURCE_ATTRIBUTES`. `OTEL_SERVICE_NAME` must take
/// precedence over that, which the SDK does not do.
fn service_name(own: Option<String>, named: bool) -> Option<String> {
    own.or_else(|| (!named).then(|| "agent-forge".to_owned()))
}

/// Settings that the SDK ignores, as sentences. The SDK reports them before there is a log, or not at all.
#[must_use]
pub fn odd_settings() -> Vec<String> {
    odd(|name| variable(&[name]))
}

fn odd(variable: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut odd = Vec::new();
    let set = |name: &'static str| variable(name).map(|value| (name, value));
    if let Some((name, value)) = set("OTEL_TRACES_SAMPLER") {
        let ratio = || {
            let argument = variable("OTEL_TRACES_SAMPLER_ARG")?;
            let ratio: f64 = argument.parse().ok()?;
            (0.0..=1.0).contains(&ratio).then_some(ratio)
        };
        match value.as_str() {
            "always_on" | "always_off" | "parentbased_always_on" | "parentbased_always_off" => {}
            "traceidratio" | "parentbased_traceidratio" => {
                if ratio().is_none() {
                    odd.push(format!(
                        "{name}={value} needs OTEL_TRACES_SAMPLER_ARG, a number from 0 to 1"
                    ));
                }
            }
            _ => odd.push(format!(
                "{name}={value} is not known: everything is sampled"
            )),
        }
    }
    let compression = [
        "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION",
        "OTEL_EXPORTER_OTLP_COMPRESSION",
    ];
    if let Some((name, value)) = compression.into_iter().find_map(set)
        && !value.eq_ignore_ascii_case("none")
    {
        odd.push(format!(
            "{name}={value} is not supported: spans are sent as they are"
        ));
    }
    odd
}

/// The attributes of `resource` that name the installation and are the same for every process.
fn lasting(resource: &Resource) -> Resource {
    let known = |name: &'static str| {
        let value = resource.get(&Key::from_static_str(name))?;
        Some(KeyValue::new(name, value))
    };
    Resource::builder_empty()
        .with_attributes(LASTING.into_iter().filter_map(known))
        .build()
}

/// Sends both kinds of spans through one queue to these exporters.
fn through<E>(exporters: Exporters<E>, resource: Resource) -> (MachineTracer, SdkTracerProvider)
where
    E: opentelemetry_sdk::trace::SpanExporter + 'static,
{
    through_after(exporters, resource, OVERDUE)
}

/// Like [`through`]. Phases that are under way for longer than `overdue` are sent again.
fn through_after<E>(
    mut exporters: Exporters<E>,
    resource: Resource,
    overdue: Duration,
) -> (MachineTracer, SdkTracerProvider)
where
    E: opentelemetry_sdk::trace::SpanExporter + 'static,
{
    exporters.live.set_resource(&resource);
    exporters.phases.set_resource(&lasting(&resource));
    let kept = Arc::new(Kept::default());
    let exporter = Retelling::new(exporters, kept.clone(), overdue);
    let queue = Arc::new(BatchSpanProcessor::builder(exporter).build());
    let open = Open::default();
    let machines = MachineTracer {
        #[cfg(test)]
        open: open.clone(),
        queue: queue.clone(),
        kept,
        // The sampler from the variables. The phases of machines follow the same decision as all other spans.
        sampler: Config::default().sampler,
        sent: Mutex::default(),
        since: SystemTime::now() - REPEATED,
    };
    let provider = SdkTracerProvider::builder()
        .with_span_processor(Queue { queue, open })
        .with_resource(resource)
        .build();
    (machines, provider)
}

/// CA certificates for the collector, used instead of the system's.
fn collector_ca() -> anyhow::Result<Option<String>> {
    let client = [
        "OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE",
        "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
    ];
    if let Some(name) = client.iter().find(|name| variable(&[name]).is_some()) {
        anyhow::bail!("{name}: client certificates for the collector are not supported; unset it");
    }
    let ca = [
        "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE",
        "OTEL_EXPORTER_OTLP_CERTIFICATE",
    ];
    let Some(file) = variable(&ca) else {
        return Ok(None);
    };
    let read = std::fs::read_to_string(&file);
    let pem = read.with_context(|| format!("reading OTEL_EXPORTER_OTLP_CERTIFICATE={file}"))?;
    // Checked here, because the exporter's own error message says little or nothing.
    tls::system_and(Some(&pem))
        .map_err(|why| anyhow::anyhow!("OTEL_EXPORTER_OTLP_CERTIFICATE={file}: {why}"))?;
    Ok(Some(pem))
}

fn grpc_tls(ca: Option<&str>) -> ClientTlsConfig {
    match ca {
        Some(pem) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem)),
        None => ClientTlsConfig::new().with_native_roots(),
    }
}

fn exporter() -> anyhow::Result<SpanExporter> {
    let ca = collector_ca()?;
    let endpoint = variable(&[
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
    ]);
    // Without a scheme the exporter also uses https.
    let in_the_clear = endpoint.is_some_and(|e| e.starts_with("http://"));
    let protocol = variable(&[
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
        "OTEL_EXPORTER_OTLP_PROTOCOL",
    ]);
    match protocol.as_deref() {
        Some("grpc") if in_the_clear => SpanExporter::builder().with_tonic().build(),
        Some("grpc") => SpanExporter::builder()
            .with_tonic()
            .with_tls_config(grpc_tls(ca.as_deref()))
            .build(),
        None | Some("http/protobuf") => SpanExporter::builder()
            .with_http()
            .with_http_client(
                OtlpClient::new(ca.as_deref())
                    .context("setting up the connection to the collector")?,
            )
            .with_protocol(Protocol::HttpBinary)
            .build(),
        Some(other) => anyhow::bail!(
            "OTEL_EXPORTER_OTLP_PROTOCOL={other:?} is not supported; use grpc or http/protobuf"
        ),
    }
    .context("building the OTLP exporter from the OTEL_* variables")
}

/// The one queue, shared by the provider and the machines' tracer.
///
/// A step's span is sent when the step is over, but the spans of its calls before that. If the process dies in between,
/// the calls would have no parent. So a call's span gets the phase as its parent: the phase's id is known, and the
/// phase is sure to be sent. The call's span also has the step's name, and a link to the step.
#[derive(Debug)]
struct Queue {
    queue: Arc<BatchSpanProcessor>,
    open: Open,
}

/// Live spans below a phase.
type Open = Arc<Mutex<HashMap<SpanId, Below>>>;

/// The phase and the step that a live span belongs to.
#[derive(Clone, Debug)]
struct Below {
    phase: SpanId,
    step: Cow<'static, str>,
}

impl Queue {
    fn open(&self) -> MutexGuard<'_, HashMap<SpanId, Below>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn under_the_phase(mut call: SpanData, below: Below) -> SpanData {
    let (own, step) = (&call.span_context, call.parent_span_id);
    let step = SpanContext::new(
        own.trace_id(),
        step,
        own.trace_flags(),
        false,
        TraceState::default(),
    );
    call.links.links.push(Link::new(step, Vec::new(), 0));
    call.parent_span_id = below.phase;
    call.parent_span_is_remote = true;
    call.attributes
        .push(KeyValue::new("agent_forge.step", below.step.into_owned()));
    call
}

impl SpanProcessor for Queue {
    fn on_start(&self, span: &mut Span, cx: &Context) {
        let above = cx.span().span_context().clone();
        let below = if above.is_remote() {
            let step = span.exported_data().map(|data| data.name);
            step.map(|step| Below {
                phase: above.span_id(),
                step,
            })
        } else {
            self.open().get(&above.span_id()).cloned()
        };
        if let Some(below) = below {
            self.open().insert(span.span_context().span_id(), below);
        }
        self.queue.on_start(span, cx);
    }

    fn on_end(&self, span: SpanData) {
        let below = self.open().remove(&span.span_context.span_id());
        if !span.span_context.is_sampled() {
            return;
        }
        let is_call = span.span_kind == SpanKind::Client && !span.parent_span_is_remote;
        self.queue.on_end(match below.filter(|_| is_call) {
            Some(below) => under_the_phase(span, below),
            None => span,
        });
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.queue.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.queue.shutdown_with_timeout(timeout)
    }
}

/// Sends the phases of machines.
#[derive(Debug)]
pub struct MachineTracer {
    #[cfg(test)]
    open: Open,
    queue: Arc<BatchSpanProcessor>,
    kept: Arc<Kept>,
    sampler: Box<dyn ShouldSample>,
    /// The spans that this process has sent.
    sent: Mutex<BTreeMap<trace::TraceId, BTreeSet<trace::SpanId>>>,
    since: SystemTime,
}

impl MachineTracer {
    /// The trace flags, the same for a trace in every process: samplers decide by the trace's id.
    fn flags(&self, id: TraceId) -> TraceFlags {
        let kind = SpanKind::Internal;
        let said = self
            .sampler
            .should_sample(None, id, "machine.demand", &kind, &[], &[]);
        if said.decision == SamplingDecision::RecordAndSample {
            TraceFlags::SAMPLED
        } else {
            TraceFlags::default()
        }
    }

    fn context(&self, trace: trace::TraceId, span: trace::SpanId, remote: bool) -> SpanContext {
        let id = TraceId::from_bytes(trace.0);
        let span = SpanId::from_bytes(span.0);
        SpanContext::new(id, span, self.flags(id), remote, TraceState::default())
    }

    /// Whether this process has not sent the span yet. From now on it counts as sent.
    fn first(&self, trace: trace::TraceId, span: trace::SpanId) -> bool {
        let mut sent = match self.sent.lock() {
            Ok(sent) => sent,
            Err(broken) => broken.into_inner(),
        };
        let of_machine = sent.entry(trace).or_default();
        // Only after weeks of waiting. Some spans are then sent twice, which is better than unlimited memory.
        if of_machine.len() >= REMEMBERED {
            of_machine.clear();
        }
        of_machine.insert(span)
    }

    /// The span to send; `None` if the machine is not sampled.
    fn span_of(&self, span: PhaseSpan) -> Option<SpanData> {
        let span_context = self.context(span.trace, span.id, false);
        let parent = span.parent.map(|p| SpanId::from_bytes(p.0));
        let attributes = span.attributes.into_iter();
        let sampled = span_context.is_sampled();
        let mut links = SpanLinks::default();
        links.links.extend(span.link.map(|life| {
            let before = self.context(life.trace, life.span, true);
            let what = KeyValue::new("agent_forge.link", "life before");
            Link::new(before, vec![what], 0)
        }));
        sampled.then(|| SpanData {
            span_context,
            parent_span_id: parent.unwrap_or(SpanId::INVALID),
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: span.name.into(),
            start_time: SystemTime::from(span.start),
            end_time: SystemTime::from(span.end),
            attributes: attributes.map(|(k, v)| KeyValue::new(k, v)).collect(),
            dropped_attributes_count: 0,
            events: Default::default(),
            links,
            status: if span.abandoned {
                Status::error("abandoned")
            } else {
                Status::Unset
            },
            instrumentation_scope: InstrumentationScope::builder(PHASES).build(),
        })
    }
}

impl Tracer for MachineTracer {
    fn phase(&self, span: PhaseSpan) {
        let (trace, id) = (span.trace, span.id);
        let lately = SystemTime::from(span.end) >= self.since;
        let Some(span) = self.span_of(span).filter(|_| lately) else {
            return;
        };
        if self.first(trace, id) {
            self.kept.keep(span.clone());
            self.queue.on_end(span);
        }
    }

    fn place(&self, work: &tracing::Span, under: Under) {
        let around = tracing::Span::current().context();
        let parent = self.context(under.trace, under.span, true);
        // This fails for a span that is disabled or has begun. Then there is no parent to set.
        if work
            .set_parent(Context::new().with_remote_span_context(parent))
            .is_ok()
        {
            work.add_link(around.span().span_context().clone());
        }
    }

    fn forget(&self, trace: trace::TraceId) {
        if let Ok(mut sent) = self.sent.lock() {
            sent.remove(&trace);
        }
    }
}

#[cfg(test)]
mod tests;
