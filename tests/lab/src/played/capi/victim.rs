//! Which Machines a set deletes first.

use super::super::{mirror::Object, object::Facts as _};

/// Annotation that makes a Machine the first to be deleted.
pub const DELETE_MACHINE: &str = "cluster.x-k8s.io/delete-machine";

/// Whether the Machine runs on a ready Node. A Machine that still waits for an Agent does not.
#[must_use]
pub fn is_healthy(machine: &Object) -> bool {
    !machine.is_deleting()
        && machine.at("/status/nodeRef/name").is_some()
        && machine.text("/status/phase") == "Running"
}

/// The `count` Machines to delete. The order is: those already being deleted, marked ones, unhealthy ones, then by
/// name.
#[must_use]
pub fn victims(machines: &[Object], count: usize) -> Vec<Object> {
    if count == 0 {
        return Vec::new();
    }
    let mut order: Vec<Object> = machines.to_vec();
    order.sort_by_cached_key(|machine| (rank(machine), machine.name().to_owned()));
    order.truncate(count);
    order
}

fn rank(machine: &Object) -> u8 {
    if machine.is_deleting() {
        0
    } else if machine.annotation(DELETE_MACHINE).is_some() {
        1
    } else if !is_healthy(machine) {
        2
    } else {
        3
    }
}
