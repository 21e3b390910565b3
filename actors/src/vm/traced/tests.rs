use std::sync::Mutex;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use super::*;
use crate::{
    ports::instruments::{Instruments, PoolGauges},
    testing::{at, child, with},
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
