//! When a Machine waits for the provider's hook, and when the provider releases it.

use kube::core::DynamicObject;

use super::super::{object::Facts as _, options::Generation};

/// The state of a Machine with regard to the provider's hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookState {
    /// The Machine has not reached the hook.
    NotReached,
    /// The Machine waits until the annotation is removed.
    Waiting,
    /// The Machine has passed the hook.
    Passed,
}

/// Reads the Machine's conditions as this generation does, in either API version.
#[must_use]
pub fn state(generation: Generation, machine: &DynamicObject) -> HookState {
    if generation == Generation::Current {
        for list in ["/status/conditions", "/status/v1beta2/conditions"] {
            if let Some(deleting) = machine.condition_in(list, "Deleting")
                && deleting.status == "True"
            {
                return match deleting.reason {
                    "WaitingForPreTerminateHook" => HookState::Waiting,
                    "WaitingForInfrastructureDeletion"
                    | "WaitingForBootstrapDeletion"
                    | "DeletingNode"
                    | "DeletionCompleted" => HookState::Passed,
                    _ => HookState::NotReached,
                };
            }
        }
    }
    for list in [
        "/status/conditions",
        "/status/deprecated/v1beta1/conditions",
    ] {
        if let Some(hook) = machine.condition_in(list, "PreTerminateDeleteHookSucceeded") {
            return if hook.status == "True" {
                HookState::Passed
            } else {
                HookState::Waiting
            };
        }
    }
    HookState::NotReached
}

/// Host states in which the hook is released: the host is free again, or never will be.
#[must_use]
pub fn releases(state: &str) -> bool {
    matches!(
        state,
        "discovering-unbound"
            | "known-unbound"
            | "disconnected-unbound"
            | "insufficient-unbound"
            | "disabled-unbound"
            | "unbinding-pending-user-action"
            | "error"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn machine(status: &Value) -> DynamicObject {
        serde_json::from_value(json!({"metadata": {"name": "m"}, "status": status}))
            .unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn each_generation_reads_its_own_condition() {
        let deleting =
            |reason: &str| json!([{"type": "Deleting", "status": "True", "reason": reason}]);
        let v1beta2 = machine(&json!({"conditions": deleting("WaitingForPreTerminateHook")}));
        assert_eq!(state(Generation::Current, &v1beta2), HookState::Waiting);
        assert_eq!(state(Generation::Legacy, &v1beta2), HookState::NotReached);
        let draining = machine(&json!({"conditions": deleting("DrainingNode")}));
        assert_eq!(state(Generation::Current, &draining), HookState::NotReached);
        let hook = json!([{"type": "PreTerminateDeleteHookSucceeded", "status": "False"}]);
        for status in [
            json!({"conditions": hook}),
            json!({"deprecated": {"v1beta1": {"conditions": hook}}}),
        ] {
            assert_eq!(
                state(Generation::Current, &machine(&status)),
                HookState::Waiting
            );
            assert_eq!(
                state(Generation::Legacy, &machine(&status)),
                HookState::Waiting
            );
        }
        let passed = json!([{"type": "PreTerminateDeleteHookSucceeded", "status": "True"}]);
        assert_eq!(
            state(Generation::Legacy, &machine(&json!({"conditions": passed}))),
            HookState::Passed
        );
    }

    #[test]
    fn states_under_way_hold_the_hook() {
        for held in [
            "unbinding",
            "reclaiming",
            "reclaiming-rebooting",
            "binding",
            "cancelled",
            "installing",
            "",
        ] {
            assert!(!releases(held), "{held}");
        }
    }
}
