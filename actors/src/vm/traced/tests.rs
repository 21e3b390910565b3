use std::{sync::Mutex, time::Duration};

use agent_forge_crds::conditions::Reason;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use super::*;
use crate::{
    ports::{
        cluster::ClusterErrorKind,
        instruments::{Instruments, PoolGauges},
        tracer::{PhaseSpan, Tracer, Under},
        vcenter::{Fault, VcErrorKind},
    },
    testing::{
        at, child, delete,
        told::{Phases, Told},
        with,
    },
    vm::testing::Bench,
};

/// The moments that were counted, in order.
#[derive(Default)]
struct Counted(Mutex<Vec<String>>);

impl Instruments for Counted {
    fn milestone(&self, _: &ObjectKey, event: &str, _: f64) {
        self.0.lock().expect("lock").push(event.to_owned());
    }
    fn pool(&self, _: &ObjectKey, _: &PoolGauges) {}
    fn drop_pool(&self, _: &ObjectKey) {}
    fn vm_operation(&self, _: &'static str, _: bool) {}
    fn iso_operation(&self, _: &'static str, _: bool) {}
    fn actors(&self, _: &'static str, _: i64) {}
    fn restarted(&self, _: &'static str) {}
}

fn row(event: &str, attempt: i32, second: i64) -> Milestone {
    Milestone {
        event: event.to_owned(),
        attempt,
        at: Some(MicroTime(at(second))),
    }
}

#[test]
fn a_machine_whose_vm_is_replaced_is_counted_once() {
    let first = [
        row("Demanded", 1, 0),
        row("Accepted", 1, 2),
        row("Placed", 1, 30),
        row("Created", 1, 40),
    ];
    let second = [
        row("Replaced", 2, 100),
        row("Placed", 2, 110),
        row("Created", 2, 120),
        row("PoweredOn", 2, 130),
    ];
    let counts = Arc::new(Counted::default());
    let context = Context {
        instruments: counts.clone(),
        ..Bench::new().context.clone()
    };
    let mut recorded = VsphereAgentStatus::default();
    for known in [4, 6, 8] {
        let object = with(child("a"), |c| c.status = Some(recorded.clone()));
        recorded.timeline = [&first[..], &second[..]].concat()[..known].to_vec();
        super::recorded(&context, &Arc::new(object), &recorded);
    }
    let counted = counts.0.lock().expect("lock").clone();
    assert_eq!(
        counted,
        [
            "Demanded",
            "Accepted",
            "Placed",
            "Created",
            "Replaced",
            "PoweredOn"
        ]
    );
}

fn refused() -> VcErrorKind {
    VcErrorKind::Fault(Fault::NoPermission {
        object: None,
        privilege: "VirtualMachine.Inventory.Create".to_owned(),
    })
}

/// Runs passes of a VM that vCenter refuses, for that long.
async fn pass_for(bench: &mut Bench, long: Duration) {
    for _ in 0..long.as_secs() / 30 {
        bench.pass().await;
        bench.turn(Duration::from_secs(30));
    }
}

#[tokio::test]
async fn a_wait_that_lasts_stands_in_the_trace_while_it_lasts() {
    let mut bench = Bench::new();
    let told = Phases::default();
    bench.context.tracer = Arc::new(told.clone());
    bench
        .site
        .with(|i| i.creates = std::iter::repeat_with(refused).take(100).collect());
    let said = |name: &str| told.named(name);
    pass_for(&mut bench, Duration::from_secs(240)).await;
    assert_eq!(bench.waits_on(), Some(Reason::NoPermission));
    assert_eq!(said("machine.wait"), []);
    // An actor that takes over exports the same. The tracer rejects two exports that differ.
    pass_for(&mut bench, Duration::from_secs(420)).await;
    bench.restart();
    pass_for(&mut bench, Duration::from_secs(300)).await;
    let pieces = said("machine.wait");
    assert_eq!(pieces.len(), 3, "{pieces:?}");
    let length = |s: &PhaseSpan| s.end.duration_since(s.start).as_secs();
    // The third was cut: a new process first proves that the VM is absent, and does not wait for a create meanwhile.
    assert_eq!(
        pieces.iter().map(length).collect::<Vec<_>>(),
        [300, 300, 60]
    );
    assert!(pieces.windows(2).all(|p| p[0].end == p[1].start));
    let reason = ("agent_forge.waiting_on", Reason::NoPermission.to_string());
    assert!(pieces.iter().all(|p| p.attributes.contains(&reason)));
    let root = said("machine.demand");
    assert_eq!(root.len(), 1, "{root:?}");
    assert!(pieces.iter().all(|p| p.trace == root[0].trace));
}

/// The places of the spans, in order.
#[derive(Default)]
struct Places(Mutex<Vec<Under>>);

impl Tracer for Places {
    fn phase(&self, _: PhaseSpan) {}
    fn place(&self, _: &tracing::Span, under: Under) {
        self.0.lock().expect("lock").push(under);
    }
    fn forget(&self, _: TraceId) {}
}

#[tokio::test]
async fn what_a_pass_found_is_written_under_the_phase_of_its_machine() {
    let mut bench = Bench::new();
    let places = Arc::new(Places::default());
    bench.context.tracer = places.clone();
    bench.site.with(|i| i.creates = [refused()].into());
    let told = Told::default();
    let here = told.here();
    bench.until(|b| b.waits_on().is_some()).await;
    drop(here);
    assert_eq!(bench.waits_on(), Some(Reason::NoPermission));
    let last = told.spans("vm.step").pop().expect("a step");
    assert_eq!(last.fields.get("otel.name"), Some("vm.publish"));
    let trace = ManagedVm::read(Arc::new(bench.child())).trace();
    let text = trace.to_string();
    assert_eq!(last.fields.get("trace_id"), Some(text.as_str()));
    let under = Under {
        trace,
        span: trace.phase("vm.create", 1),
    };
    let placed = places.0.lock().expect("lock").last().copied();
    assert_eq!(placed, Some(under));
}

#[tokio::test]
async fn every_line_of_a_faulty_life_names_its_object_uid_and_trace() {
    let mut bench = Bench::new();
    bench
        .site
        .with(|i| i.creates = [refused(), refused()].into());
    let told = Told::default();
    let here = told.here();
    for _ in 0..20 {
        // The span that the actor's shell opens.
        let span = tracing::error_span!(
            "actor.pass",
            object = "demo/a",
            uid = Empty,
            trace_id = Empty
        );
        bench.pass().instrument(span).await;
        bench.turn(Duration::from_secs(30));
    }
    drop(here);
    let child = ManagedVm::read(Arc::new(bench.child()));
    let trace = child.trace().to_string();
    let key = child.key.to_string();
    let whom = [key.as_str(), child.uid.as_str(), trace.as_str()];
    let mut lines = 0;
    for span in ["actor.pass", "vm.step"].iter().flat_map(|n| told.spans(n)) {
        lines += span.events.len();
        let said = ["object", "uid", "trace_id"].map(|f| span.fields.get(f));
        assert_eq!(said, whom.map(Some), "{span:?}");
    }
    assert_eq!(lines, told.lines().len(), "lines of nobody");
    let words: Vec<_> = told.lines();
    let faults = words.iter().filter(|l| l.get("message") == Some("fault"));
    assert!(faults.count() >= 1, "{words:?}");
}

#[tokio::test]
async fn a_process_that_dies_before_the_finalizer_goes_has_told_the_destruction_and_the_next_tells_the_same()
 {
    let mut bench = Bench::new();
    // The tracer rejects two exports that differ.
    let told = Phases::default();
    bench.context.tracer = Arc::new(told.clone());
    bench.until(Bench::is_on).await;
    bench.hub.with(|o| {
        o.machines.clear();
        o.agent_machines.clear();
        delete(o.child.as_mut().expect("a child"));
        let kind = ClusterErrorKind::Unavailable;
        o.fails.insert(EffectKind::RemoveChildFinalizer, kind);
    });
    bench.until(|b| b.hub.with(|o| o.fails.is_empty())).await;
    assert_eq!(told.named("vm.destroy").len(), 1);
    let last = bench.status().timeline.pop().expect("a timeline");
    assert_eq!(last.event, "Absent");
    bench.restart();
    bench.turn(Duration::from_secs(60));
    bench.until(|b| b.hub.with(|o| o.child.is_none())).await;
    let [end] = &told.named("vm.destroy")[..] else {
        panic!("{:?}", told.named("vm.destroy"))
    };
    assert_eq!(Some(end.end), last.at.map(|t| t.0));
}
