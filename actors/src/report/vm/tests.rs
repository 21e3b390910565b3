use std::{sync::Arc, time::Duration};

use agent_forge_crds::conditions::Reason;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use super::*;
use crate::{
    ports::{
        cluster::ClusterErrorKind,
        effect::EffectKind,
        tracer::PhaseSpan,
        vcenter::{Fault, VcErrorKind},
    },
    report::{Metric, exports::written},
    testing::{at, child, delete, told::Phases, with},
    vm::testing::Bench,
};

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
    let mut counted = Vec::new();
    let mut status = VsphereAgentStatus::default();
    for known in [4, 6, 8] {
        let object = with(child("a"), |c| c.status = Some(status.clone()));
        status.timeline = [&first[..], &second[..]].concat()[..known].to_vec();
        let told = written(&ManagedVm::read(Arc::new(object)), &status, at(200));
        assert_eq!(told.lines.len(), if known == 4 { 4 } else { 2 });
        counted.extend(told.metrics.into_iter().map(|m| match m {
            Metric::Milestone(_, event, _) => event,
            other => panic!("{other:?}"),
        }));
    }
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
