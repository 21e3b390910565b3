use std::sync::atomic::{AtomicBool, Ordering};

use opentelemetry::trace::{Tracer as _, TracerProvider as _};
use opentelemetry_sdk::{Resource, error::OTelSdkError, trace::SpanExporter};

use super::{
    super::{
        tests::{By, exporters, phase},
        *,
    },
    *,
};
use crate::telemetry::{http, told::Lines};

/// A collector that is unreachable or accepts spans.
#[derive(Clone, Debug, Default)]
struct Collector {
    away: Arc<AtomicBool>,
    taken: Arc<Mutex<Vec<Id>>>,
    /// The resource that the spans of this exporter carry.
    resource: Vec<KeyValue>,
    /// For each span its name and its resource.
    carried: Arc<Mutex<Vec<Carried>>>,
}

/// Name of a span, and its resource.
type Carried = (String, Vec<KeyValue>);

impl SpanExporter for Collector {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        if self.away.load(Ordering::Relaxed) {
            return Err(OTelSdkError::InternalFailure("nobody there".to_owned()));
        }
        self.taken
            .lock()
            .expect("lock")
            .extend(batch.iter().map(id));
        let carried = batch.iter().map(|s| s.name.to_string());
        self.carried
            .lock()
            .expect("lock")
            .extend(carried.map(|name| (name, self.resource.clone())));
        Ok(())
    }

    fn set_resource(&mut self, resource: &Resource) {
        let all = resource.iter();
        self.resource = all
            .map(|(k, v)| KeyValue::new(k.clone(), v.clone()))
            .collect();
    }
}

/// Both exporters, to the same collector.
fn both(collector: &Collector) -> Exporters<Collector> {
    Exporters {
        live: collector.clone(),
        phases: collector.clone(),
    }
}

impl Collector {
    /// How often the collector got a phase of that machine.
    fn times(&self, machine: usize) -> usize {
        let phase = phase(machine);
        let of_it = (
            TraceId::from_bytes(phase.trace.0),
            SpanId::from_bytes(phase.id.0),
        );
        let taken = self.taken.lock().expect("lock");
        taken.iter().filter(|id| **id == of_it).count()
    }
}

/// Waits until the queue is empty, whatever the result is.
async fn flush(provider: &SdkTracerProvider) {
    let provider = provider.clone();
    let flushed = tokio::task::spawn_blocking(move || provider.force_flush());
    let _ = flushed.await.expect("it comes back");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_collector_that_was_away_missed_it_is_told_when_it_is_back() {
    let collector = Collector::default();
    let nothing = Resource::builder_empty().build();
    let (machines, provider) = through_after(both(&collector), nothing, Duration::ZERO);
    machines.phase(phase(1));
    flush(&provider).await;
    assert_eq!((collector.times(1), machines.kept.len()), (1, 0));
    collector.away.store(true, Ordering::Relaxed);
    for machine in [2, 3] {
        machines.phase(phase(machine));
        flush(&provider).await;
    }
    assert_eq!(machines.kept.len(), 2);
    collector.away.store(false, Ordering::Relaxed);
    // The next export takes the kept phases along.
    machines.phase(phase(4));
    flush(&provider).await;
    let told = [1, 2, 3, 4].map(|machine| collector.times(machine));
    assert_eq!((told, machines.kept.len()), ([1; 4], 0));
}

#[tokio::test]
async fn a_collector_that_is_away_is_a_warning() {
    let collector = Collector::default();
    let nothing = Resource::builder_empty().build();
    let (machines, _provider) = through(both(&collector), nothing);
    let span = machines.span_of(phase(1)).expect("a sampled machine");
    let exporter = Retelling::new(both(&collector), Arc::default(), OVERDUE);
    let lines = Lines::default();
    let here = lines.here();
    exporter.export(vec![span.clone()]).await.expect("taken");
    collector.away.store(true, Ordering::Relaxed);
    exporter.export(vec![span]).await.expect_err("away");
    drop(here);
    let said = lines.sentences();
    let [[level, sentence]] = &said[..] else {
        panic!("{said:?}")
    };
    assert!(
        level == "WARN" && sentence.contains("collector") && sentence.contains("nobody there"),
        "{said:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn whichever_process_tells_a_phase_tells_the_same() {
    let collector = Collector::default();
    let installation = KeyValue::new("service.name", "agent-forge");
    for (version, pod) in [("1.0.0", "agent-forge-a"), ("1.1.0", "agent-forge-b")] {
        let resource = Resource::builder_empty()
            .with_attributes([
                installation.clone(),
                KeyValue::new("service.version", version),
                KeyValue::new("k8s.pod.name", pod),
            ])
            .build();
        let (machines, provider) = through(both(&collector), resource);
        machines.phase(phase(1));
        drop(provider.tracer(SCOPE).start("live"));
        flush(&provider).await;
    }
    let carried = collector.carried.lock().expect("lock").clone();
    let of = |wanted: &str| -> Vec<&Vec<KeyValue>> {
        let of_name = carried.iter().filter(|(name, _)| name == wanted);
        of_name.map(|(_, resource)| resource).collect()
    };
    assert_eq!(of("vm.create"), [&vec![installation.clone()]; 2]);
    let live = of("live");
    assert_eq!(live.len(), 2);
    assert!(live.iter().all(|r| r.len() == 3) && live[0] != live[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_on_its_way_is_not_told_twice() {
    let collector = Collector::default();
    let kept = Arc::new(Kept::default());
    let exporter = Retelling::new(both(&collector), kept.clone(), OVERDUE);
    let (machines, _) = through(
        both(&Collector::default()),
        Resource::builder_empty().build(),
    );
    let span = |machine| machines.span_of(phase(machine)).expect("sampled");
    kept.keep(span(1));
    exporter.export(vec![span(2)]).await.expect("taken");
    assert_eq!((collector.times(1), collector.times(2)), (0, 1));
    assert_eq!(kept.len(), 1);
}

#[tokio::test]
async fn what_is_kept_is_bounded_and_what_gives_way_is_counted() {
    let kept = Kept::default();
    let dropped = IntCounter::new("dropped", "dropped").expect("a counter");
    kept.count_dropped(dropped.clone());
    let (machines, _) = through(
        both(&Collector::default()),
        Resource::builder_empty().build(),
    );
    for machine in 0..MOST + 3 {
        kept.keep(machines.span_of(phase(machine)).expect("sampled"));
    }
    assert_eq!((kept.len(), dropped.get()), (MOST, 3));
    // The oldest phases were dropped. The rest is sent in portions.
    let again = kept.overdue(Duration::ZERO);
    assert_eq!(again.len(), AT_ONCE);
    let first = machines.span_of(phase(3)).expect("sampled");
    assert_eq!(id(&again[0]), id(&first));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_behind_http_that_comes_up_late_has_all_phases() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let exporters = exporters(By::Http, address);
    let nothing = Resource::builder_empty().build();
    let (machines, provider) = through_after(exporters, nothing, Duration::ZERO);
    machines.phase(phase(1));
    flush(&provider).await;
    assert_eq!(machines.kept.len(), 1);
    let asked = Arc::new(Mutex::new(0));
    let count = asked.clone();
    let taken = move |_| {
        *count.lock().expect("lock") += 1;
        std::future::ready(http::text(::http::StatusCode::OK, ""))
    };
    http::serve("collector", address, taken)
        .await
        .expect("it listens");
    machines.phase(phase(2));
    flush(&provider).await;
    assert_eq!(machines.kept.len(), 0);
    assert_eq!(*asked.lock().expect("lock"), 2, "the new one, and the old");
}
