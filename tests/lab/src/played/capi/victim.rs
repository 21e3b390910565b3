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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;

    fn machine(name: &str, metadata: Value, running: bool) -> Object {
        let mut metadata = metadata;
        metadata["name"] = json!(name);
        let status = if running {
            json!({"phase": "Running", "nodeRef": {"name": name}})
        } else {
            json!({})
        };
        let object = json!({"metadata": metadata, "status": status});
        Arc::new(serde_json::from_value(object).unwrap_or_else(|error| panic!("{error}")))
    }

    #[test]
    fn deleting_then_marked_then_unhealthy_then_by_name() {
        let machines = [
            machine("a", json!({}), true),
            machine("b", json!({}), false),
            machine(
                "c",
                json!({"annotations": {"cluster.x-k8s.io/delete-machine": "yes"}}),
                true,
            ),
            machine(
                "d",
                json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}),
                true,
            ),
            machine("e", json!({}), true),
        ];
        let names = |count| {
            victims(&machines, count)
                .iter()
                .map(|m| m.name().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(5), ["d", "c", "b", "a", "e"]);
        assert_eq!(names(2), ["d", "c"]);
    }
}
