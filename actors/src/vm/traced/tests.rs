use std::{sync::Mutex, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use super::*;
use crate::{
    ports::{
        instruments::{Instruments, PoolGauges},
        tracer::PhaseSpan,
        vcenter::{Fault, VcErrorKind},
    },
    testing::{at, child, told::Phases, with},
    vm::bench::Bench,
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

/// Passes of a VM that vCenter refuses, for that long.
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
    assert_eq!(bench.waits_on().as_deref(), Some("NoPermission"));
    assert_eq!(said("machine.wait"), []);
    // Whoever takes over tells the same; the tracer would not bear two tellings that differ.
    pass_for(&mut bench, Duration::from_secs(420)).await;
    bench.restart();
    pass_for(&mut bench, Duration::from_secs(300)).await;
    let pieces = said("machine.wait");
    assert_eq!(pieces.len(), 3, "{pieces:?}");
    let length = |s: &PhaseSpan| s.end.duration_since(s.start).as_secs();
    assert_eq!(pieces.iter().map(length).collect::<Vec<_>>(), [300; 3]);
    assert!(pieces.windows(2).all(|p| p[0].end == p[1].start));
    let reason = ("agent_forge.waiting_on", "NoPermission".to_owned());
    assert!(pieces.iter().all(|p| p.attributes.contains(&reason)));
    let root = said("machine.demand");
    assert_eq!(root.len(), 1, "{root:?}");
    assert!(pieces.iter().all(|p| p.trace == root[0].trace));
}
