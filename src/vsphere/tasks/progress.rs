//! Reads updates: which tasks have ended? Pure.

use std::collections::HashMap;

use serde_json::Value;

use crate::vsphere::rpc::{
    properties::weight,
    wire::{collector::UpdateSet, unboxed},
};

/// A task with a larger result or fault counts as failed: its outcome cannot be read.
pub(super) const LARGEST: usize = 4 << 20;

/// What is known of a running task. Its parts may come in different updates.
#[derive(Debug, Default)]
struct Parts {
    state: String,
    error: Value,
    result: Value,
}

/// An end as received.
#[derive(Debug, PartialEq)]
pub(super) enum End {
    /// Success, with its result.
    Success(Option<Value>),
    /// Failure, with its fault.
    Error(Value),
    /// The result or fault is too large.
    TooLarge,
    /// It left the view: by itself, or because it was removed a moment ago and is wanted again.
    Left,
    /// vCenter says that there is no such task.
    Vanished,
}

/// What is known of all tasks in the view.
#[derive(Debug, Default)]
pub(super) struct Progress(HashMap<String, Parts>);

impl Progress {
    /// Applies an update and returns the tasks that ended with it. It keeps nothing of tasks that are not `wanted`.
    pub(super) fn apply(
        &mut self,
        update: UpdateSet,
        wanted: impl Fn(&str) -> bool,
    ) -> Vec<(String, End)> {
        let mut ends = Vec::new();
        for filter in update.filter_set {
            for object in filter.object_set {
                let task = object.obj.value;
                if !wanted(&task) {
                    continue;
                }
                if object.kind == "leave" {
                    self.0.remove(&task);
                    ends.push((task, End::Left));
                    continue;
                }
                let seen = self.0.entry(task.clone()).or_default();
                for change in object.change_set {
                    match change.name.as_str() {
                        "info.state" => unboxed(&change.val)
                            .as_str()
                            .unwrap_or_default()
                            .clone_into(&mut seen.state),
                        "info.error" => seen.error = change.val,
                        "info.result" => seen.result = change.val,
                        _ => {}
                    }
                }
                let end = match seen.state.as_str() {
                    _ if weight(&seen.result).max(weight(&seen.error)) > LARGEST => End::TooLarge,
                    "success" => End::Success(
                        Some(std::mem::take(&mut seen.result)).filter(|r| !r.is_null()),
                    ),
                    "error" => End::Error(std::mem::take(&mut seen.error)),
                    _ => continue,
                };
                self.0.remove(&task);
                ends.push((task, end));
            }
            ends.extend(
                filter
                    .missing_set
                    .into_iter()
                    .map(|m| (m.obj.value, End::Vanished))
                    .filter(|(task, _)| wanted(task)),
            );
        }
        ends
    }

    /// Forgets all: a new filter reports everything from the start.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn update(objects: &Value) -> UpdateSet {
        serde_json::from_value(json!({"version": "2", "filterSet": [{"objectSet": objects}]}))
            .expect("update")
    }

    fn change(kind: &str, task: &str, changes: &[(&str, Value)]) -> Value {
        let set: Vec<Value> = changes
            .iter()
            .map(|(n, v)| json!({"name": n, "op": "assign", "val": v}))
            .collect();
        json!({"kind": kind, "obj": {"type": "Task", "value": task}, "changeSet": set})
    }

    #[test]
    fn what_is_larger_than_any_end_can_be_is_one() {
        let mut progress = Progress::default();
        let huge = json!("x".repeat(LARGEST));
        let object = change("modify", "t1", &[("info.result", huge)]);
        let ends = progress.apply(update(&json!([object])), |_| true);
        assert_eq!(ends, [("t1".to_owned(), End::TooLarge)]);
        assert!(progress.0.is_empty(), "nothing of it is kept");
    }

    #[test]
    fn ends_are_told_once_whatever_the_pieces() {
        let mut progress = Progress::default();
        let state = |s: &str| json!({"_typeName": "TaskInfoState", "_value": s});
        let vm = json!({"_typeName": "ManagedObjectReference", "type": "VirtualMachine", "value": "vm-1"});
        let fault = json!({"_typeName": "DuplicateName", "name": "x"});
        assert!(
            progress
                .apply(
                    update(&json!([change(
                        "enter",
                        "t1",
                        &[("info.state", state("running"))]
                    )])),
                    |_| true
                )
                .is_empty()
        );
        // The result first, the state later.
        assert!(
            progress
                .apply(
                    update(&json!([change(
                        "modify",
                        "t1",
                        &[("info.result", vm.clone())]
                    )])),
                    |_| true
                )
                .is_empty()
        );
        let ends = progress.apply(
            update(&json!([
                change("modify", "t1", &[("info.state", state("success"))]),
                change(
                    "enter",
                    "t2",
                    &[
                        ("info.error", fault.clone()),
                        ("info.state", state("error"))
                    ]
                ),
                change("leave", "t3", &[]),
            ])),
            |_| true,
        );
        assert_eq!(
            ends,
            [
                ("t1".to_owned(), End::Success(Some(vm))),
                ("t2".to_owned(), End::Error(fault)),
                ("t3".to_owned(), End::Left)
            ]
        );
        assert!(progress.0.is_empty());
    }
}
