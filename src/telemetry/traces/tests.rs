use std::{
    net::SocketAddr,
    sync::atomic::{AtomicUsize, Ordering},
};

use opentelemetry::{
    StringValue, Value,
    trace::{Span as _, Tracer as _, TracerProvider as _},
};
use tokio::net::TcpListener;

use super::*;

/// What fifty busy machines tell in much more than ten minutes (docs/benchmarks.md).
const SPANS: usize = 200_000;
/// The SDK's own bound of the queue, and what is on its way out of it.
const KEPT: usize = 2048 + 2 * 512;

/// A collector at an address where nobody answers.
enum Away {
    /// Connections are refused.
    Refuses,
    /// Connections are taken, and nothing is ever answered.
    Silent,
}

/// Its address, and how often somebody came.
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

fn phase(machine: usize) -> PhaseSpan {
    let trace = trace::TraceId::of_machine(&machine.to_string());
    let now = jiff::Timestamp::now();
    PhaseSpan {
        trace,
        id: trace.phase("vm.create", 1),
        parent: None,
        name: "vm.create",
        start: now,
        end: now,
        attributes: Vec::new(),
        abandoned: false,
    }
}

async fn nothing_grows(away: Away) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (address, came) = collector(&away).await;
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(OtlpClient::new(None).expect("a client"))
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(format!("http://{address}/v1/traces"))
        .build()
        .expect("an exporter");
    let (machines, provider) = through(exporter, Resource::builder_empty().build());
    let tracer = provider.tracer(SCOPE);
    // Each span holds it once, so its count is the number of spans that are anywhere in this process.
    let held: Arc<str> = "held by each span".into();
    for n in 0..SPANS {
        let mut span = tracer.start("span");
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
            // The exporter gets its turn, so that a batch is out when the next spans come.
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
    if matches!(away, Away::Silent) {
        assert!(came.load(Ordering::Relaxed) >= 1, "nothing was ever sent");
    }
    // The end of the process does not wait for the collector either.
    let ended = tokio::task::spawn_blocking(move || {
        provider.shutdown_with_timeout(Duration::from_millis(100))
    });
    let _ = ended.await.expect("it comes back");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_never_answers_costs_a_bounded_queue() {
    nothing_grows(Away::Silent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_refuses_costs_a_bounded_queue() {
    nothing_grows(Away::Refuses).await;
}
