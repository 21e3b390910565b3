use std::{
    net::SocketAddr,
    sync::atomic::{AtomicUsize, Ordering},
};

use opentelemetry::{
    StringValue, Value,
    trace::{Span as _, Tracer as _, TracerProvider as _},
};
use opentelemetry_sdk::trace::Sampler;
use tokio::net::TcpListener;

use super::*;

/// More spans than fifty busy machines send in ten minutes (docs/reference/benchmarks.md).
const SPANS: usize = 200_000;
/// The limit of the SDK's queue, plus the spans that are being exported.
const KEPT: usize = 2048 + 2 * 512;

/// An address without a working collector.
enum Away {
    /// Connections are refused.
    Refuses,
    /// Connections are accepted and never answered.
    Silent,
}

/// The address, and the number of connections so far.
async fn collector(away: &Away) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let came = Arc::new(AtomicUsize::new(0));
    if matches!(away, Away::Silent) {
        let came = came.clone();
        tokio::spawn(async move {
            let mut held = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                came.fetch_add(1, Ordering::Relaxed);
                held.push(stream);
            }
        });
    }
    (address, came)
}

pub(super) fn phase(machine: usize) -> PhaseSpan {
    let trace = trace::TraceId::of_machine(&machine.to_string());
    let now = jiff::Timestamp::now();
    PhaseSpan {
        trace,
        id: trace.phase("vm.create", 1),
        parent: None,
        link: None,
        name: "vm.create",
        start: now,
        end: now,
        attributes: Vec::new(),
        abandoned: false,
    }
}

/// The protocol that spans use.
#[derive(Clone, Copy, Debug)]
pub(super) enum By {
    Http,
    Grpc,
}

/// One exporter, without TLS.
fn exporter_to(by: By, address: SocketAddr) -> SpanExporter {
    let exporter = match by {
        By::Http => SpanExporter::builder()
            .with_http()
            .with_http_client(OtlpClient::new(None).expect("a client"))
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("http://{address}/v1/traces"))
            .build(),
        By::Grpc => SpanExporter::builder()
            .with_tonic()
            .with_endpoint(format!("http://{address}"))
            .build(),
    };
    exporter.expect("an exporter")
}

/// The exporters to a collector at that address.
pub(super) fn exporters(by: By, address: SocketAddr) -> Exporters<SpanExporter> {
    Exporters {
        live: exporter_to(by, address),
        phases: exporter_to(by, address),
    }
}

async fn nothing_grows(by: By, away: Away) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (address, came) = collector(&away).await;
    let (machines, provider) = through(exporters(by, address), Resource::builder_empty().build());
    let tracer = provider.tracer(SCOPE);
    let of_machine = phase(0);
    let below = machines.context(of_machine.trace, of_machine.id, true);
    // Each span holds this value once. So its reference count shows how many spans exist anywhere in this process.
    let held: Arc<str> = "held by each span".into();
    for n in 0..SPANS {
        let above = Context::new().with_remote_span_context(below.clone());
        let mut span = tracer.start_with_context("span", &above);
        let value = Value::String(StringValue::from(held.clone()));
        span.set_attribute(KeyValue::new("held", value));
        span.end();
        if n % 100 == 0 {
            let of_machine = phase(n);
            let id = of_machine.trace;
            machines.phase(of_machine);
            machines.forget(id);
        }
        if n % 10_000 == 0 {
            // Give the exporter time to send a batch before the next spans come.
            tokio::time::sleep(Duration::from_millis(20)).await;
            let alive = Arc::strong_count(&held) - 1;
            assert!(alive <= KEPT, "{alive} spans are kept after {n}");
        }
    }
    let alive = Arc::strong_count(&held) - 1;
    assert!(
        (1..=KEPT).contains(&alive) || matches!(away, Away::Refuses) && alive <= KEPT,
        "{alive} spans are kept"
    );
    assert!(machines.sent.lock().expect("sent").is_empty());
    let open = machines.open.lock().expect("open").len();
    assert_eq!(open, 0, "live spans below a phase count as open");
    if matches!(away, Away::Silent) {
        let sent = async {
            while came.load(Ordering::Relaxed) == 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let sent = tokio::time::timeout(agent_forge_lab::patience::HANG, sent).await;
        sent.expect("nothing was ever sent");
    }
    // The end of the process does not wait for the collector either.
    let ended = tokio::task::spawn_blocking(move || {
        provider.shutdown_with_timeout(Duration::from_millis(100))
    });
    let _ = ended.await.expect("it comes back");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_never_answers_costs_a_bounded_queue() {
    nothing_grows(By::Http, Away::Silent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_refuses_costs_a_bounded_queue() {
    nothing_grows(By::Http, Away::Refuses).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_never_answers_grpc_costs_a_bounded_queue() {
    nothing_grows(By::Grpc, Away::Silent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_refuses_grpc_costs_a_bounded_queue() {
    nothing_grows(By::Grpc, Away::Refuses).await;
}

#[test]
fn without_an_endpoint_or_switched_off_nothing_is_sent() {
    let asked = |set: &[(&str, &str)]| {
        wanted(|name| {
            let found = set.iter().find(|(n, _)| *n == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    };
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");
    assert!(!asked(&[]) && !asked(&[("OTEL_SERVICE_NAME", "x")]));
    assert!(asked(&[endpoint]));
    assert!(asked(&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://x")]));
    assert!(!asked(&[endpoint, ("OTEL_SDK_DISABLED", "TRUE")]));
    assert!(asked(&[endpoint, ("OTEL_SDK_DISABLED", "false")]));
    assert!(!asked(&[endpoint, ("OTEL_TRACES_EXPORTER", "none")]));
}

#[test]
fn the_service_is_named_by_the_variables_and_else_by_us() {
    let name = |own: Option<&str>, named| service_name(own.map(str::to_owned), named);
    assert_eq!(name(None, false).as_deref(), Some("agent-forge"));
    assert_eq!(name(None, true), None, "the SDK's own word stands");
    for named in [false, true] {
        assert_eq!(name(Some("x"), named).as_deref(), Some("x"));
    }
}

#[test]
fn a_setting_that_has_no_effect_is_said() {
    for (set, expected) in [
        (&[][..], None),
        (&[("OTEL_TRACES_SAMPLER", "always_off")], None),
        (&[("OTEL_TRACES_SAMPLER_ARG", "0.1")], None),
        (
            &[("OTEL_TRACES_SAMPLER", "ratio")],
            Some("=ratio is not known"),
        ),
        (
            &[("OTEL_TRACES_SAMPLER", "jaeger_remote")],
            Some("is not known"),
        ),
        (&[("OTEL_TRACES_SAMPLER", "traceidratio")], Some("needs")),
        (
            &[
                ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
                ("OTEL_TRACES_SAMPLER_ARG", "10%"),
            ],
            Some("needs OTEL_TRACES_SAMPLER_ARG"),
        ),
        (
            &[
                ("OTEL_TRACES_SAMPLER", "traceidratio"),
                ("OTEL_TRACES_SAMPLER_ARG", "10"),
            ],
            Some("from 0 to 1"),
        ),
        (
            &[
                ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
                ("OTEL_TRACES_SAMPLER_ARG", "0.1"),
            ],
            None,
        ),
        (&[("OTEL_EXPORTER_OTLP_COMPRESSION", "none")], None),
        (
            &[("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")],
            Some("OTEL_EXPORTER_OTLP_COMPRESSION=gzip is not supported"),
        ),
        (
            &[
                ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "none"),
                ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ],
            None,
        ),
    ] {
        let said = odd(|name| {
            let found = set.iter().find(|(n, _)| *n == name);
            found.map(|(_, value)| (*value).to_owned())
        });
        match expected {
            Some(words) => assert!(
                matches!(&said[..], [one] if one.contains(words)),
                "{set:?}: {said:?}"
            ),
            None => assert!(said.is_empty(), "{set:?}: {said:?}"),
        }
    }
}

fn sampling(sampler: Sampler) -> MachineTracer {
    let nobody = SocketAddr::from(([127, 0, 0, 1], 9));
    let (machines, _) = through(
        exporters(By::Http, nobody),
        Resource::builder_empty().build(),
    );
    MachineTracer {
        sampler: Box::new(sampler),
        ..machines
    }
}

#[tokio::test]
async fn a_machine_is_sampled_or_not_in_every_process_alike() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let half = || Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(0.5)));
    let (here, there) = (sampling(half()), sampling(half()));
    let chosen = |tracer: &MachineTracer| -> Vec<bool> {
        let of = |n: usize| {
            let id = TraceId::from_bytes(trace::TraceId::of_machine(&n.to_string()).0);
            tracer.flags(id).is_sampled()
        };
        (0..1000).map(of).collect()
    };
    let sampled = chosen(&here);
    assert_eq!(sampled, chosen(&there));
    let count = sampled.iter().filter(|s| **s).count();
    assert!((400..600).contains(&count), "{count} of 1000");
    // A machine that is not sampled is not remembered.
    let none = sampling(Sampler::AlwaysOff);
    none.phase(phase(1));
    assert!(none.sent.lock().expect("sent").is_empty());
    here.phase(phase(sampled.iter().position(|s| *s).expect("one")));
    assert_eq!(here.sent.lock().expect("sent").len(), 1);
}

#[tokio::test]
async fn the_first_phase_of_a_life_links_to_the_life_before() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let machines = sampling(Sampler::AlwaysOn);
    let before = trace::TraceId::of_machine("before");
    let mut span = phase(1);
    span.link = Some(Under {
        trace: before,
        span: before.phase("machine.demand", 1),
    });
    let sent = machines.span_of(span).expect("sampled");
    let [link] = sent.links.links.as_slice() else {
        panic!("one link: {:?}", sent.links)
    };
    assert_eq!(link.span_context.trace_id().to_string(), before.to_string());
    let id = before.phase("machine.demand", 1).to_string();
    assert_eq!(link.span_context.span_id().to_string(), id);
    assert_eq!(sent.parent_span_id, SpanId::INVALID);
    assert_ne!(sent.span_context.trace_id(), link.span_context.trace_id());
}

/// Without variables everything is sampled. In the child process of the test below, which sets variables, it prints the
/// numbers of sampled machines and of sampled traces of live spans, each out of 1000.
#[tokio::test]
async fn without_variables_everything_is_sampled() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let nobody = SocketAddr::from(([127, 0, 0, 1], 9));
    let (machines, provider) = through(
        exporters(By::Http, nobody),
        Resource::builder_empty().build(),
    );
    let tracer = provider.tracer(SCOPE);
    let of_machines = (0..1000).filter(|n| machines.span_of(phase(*n)).is_some());
    let live = (0..1000).filter(|_| tracer.start("span").span_context().is_sampled());
    let counts = (of_machines.count(), live.count());
    if std::env::var_os("OTEL_TRACES_SAMPLER").is_none() {
        assert_eq!(counts, (1000, 1000));
    }
    println!("sampled {} {}", counts.0, counts.1);
}

/// What the test above prints in a process with these variables.
#[allow(
    clippy::disallowed_methods,
    reason = "a test's own child: the environment of a process with threads is not to be changed"
)]
fn sampled(sampler: &str, argument: Option<&str>) -> [usize; 2] {
    let own = std::env::current_exe().expect("this program");
    let mut child = std::process::Command::new(own);
    let which = "telemetry::traces::tests::without_variables_everything_is_sampled";
    child
        .args([which, "--exact", "--nocapture"])
        .env("OTEL_TRACES_SAMPLER", sampler)
        .env_remove("OTEL_TRACES_SAMPLER_ARG");
    if let Some(argument) = argument {
        child.env("OTEL_TRACES_SAMPLER_ARG", argument);
    }
    let said = child.output().expect("it runs").stdout;
    let said = String::from_utf8_lossy(&said);
    let counts = said
        .split_once("sampled ")
        .expect("its word")
        .1
        .lines()
        .next();
    let mut counts = counts.unwrap_or_default().split(' ').map(str::parse);
    [(); 2].map(|()| counts.next().expect("a number").expect("a number"))
}

#[test]
fn machines_and_live_spans_are_sampled_by_the_standard_variables() {
    for (sampler, argument, expected) in [
        ("always_on", None, 1000..=1000),
        ("always_off", None, 0..=0),
        ("parentbased_always_off", None, 0..=0),
        ("traceidratio", Some("0.5"), 400..=600),
        ("parentbased_traceidratio", Some("0.1"), 50..=150),
        ("parentbased_traceidratio", Some("0"), 0..=0),
    ] {
        for count in sampled(sampler, argument) {
            assert!(expected.contains(&count), "{sampler} {argument:?}: {count}");
        }
    }
}

#[test]
fn a_call_is_told_under_the_phase_and_linked_to_its_step() {
    let trace = TraceId::from_bytes([7; 16]);
    let call = SpanData {
        span_context: SpanContext::new(
            trace,
            SpanId::from_bytes([1; 8]),
            TraceFlags::SAMPLED,
            false,
            TraceState::default(),
        ),
        parent_span_id: SpanId::from_bytes([2; 8]),
        parent_span_is_remote: false,
        span_kind: SpanKind::Client,
        name: "CreateVM_Task".into(),
        start_time: SystemTime::UNIX_EPOCH,
        end_time: SystemTime::UNIX_EPOCH,
        attributes: Vec::new(),
        dropped_attributes_count: 0,
        events: Default::default(),
        links: Default::default(),
        status: Status::Unset,
        instrumentation_scope: InstrumentationScope::builder(SCOPE).build(),
    };
    let below = Below {
        phase: SpanId::from_bytes([3; 8]),
        step: "vm.submit_create".into(),
    };
    let told = under_the_phase(call, below);
    assert_eq!(told.parent_span_id, SpanId::from_bytes([3; 8]));
    let link = &told.links.links[0].span_context;
    assert_eq!(
        (link.trace_id(), link.span_id()),
        (trace, SpanId::from_bytes([2; 8]))
    );
    assert_eq!(
        told.attributes,
        [KeyValue::new("agent_forge.step", "vm.submit_create")]
    );
}
