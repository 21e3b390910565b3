use std::{sync::Mutex, time::Duration};

use agent_forge_crds::conditions::Reason;

use super::*;
use crate::{
    domain::trace::TraceId,
    ports::{
        tracer::{PhaseSpan, Tracer, Under},
        vcenter::{Fault, VcErrorKind},
    },
    testing::told::Told,
    vm::testing::Bench,
};

fn refused() -> VcErrorKind {
    VcErrorKind::Fault(Fault::NoPermission {
        object: None,
        privilege: "VirtualMachine.Inventory.Create".to_owned(),
    })
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
