//! When a Machine waits for the provider's hook, and when the provider releases it.

use kube::core::DynamicObject;

use super::super::{
    object::Facts as _,
    options::{Generation, MachineApi},
};

/// The state of a Machine with regard to the provider's hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookState {
    /// The Machine has not reached the hook, as far as the provider sees.
    NotReached,
    /// The Machine waits until the annotation is removed.
    Waiting,
    /// The Machine has passed the hook.
    Passed,
}

/// Reads the Machine's conditions as this generation does.
///
/// The current generation knows the Machine as v1beta2. There, Cluster API writes only the condition `Deleting`, whose
/// other reasons say nothing to the provider. Therefore the current generation never sees that the hook has passed.
#[must_use]
pub fn state(generation: Generation, api: MachineApi, machine: &DynamicObject) -> HookState {
    let list = match (generation, api) {
        (Generation::Current, MachineApi::V1Beta2) | (Generation::Legacy, MachineApi::V1Beta1) => {
            "/status/conditions"
        }
        (Generation::Current, MachineApi::V1Beta1) => "/status/v1beta2/conditions",
        (Generation::Legacy, MachineApi::V1Beta2) => "/status/deprecated/v1beta1/conditions",
    };
    let deleting = machine.condition_in(list, "Deleting");
    if generation == Generation::Current
        && deleting.is_some_and(|deleting| deleting.reason == "WaitingForPreTerminateHook")
    {
        return HookState::Waiting;
    }
    match machine.condition_in(list, "PreTerminateDeleteHookSucceeded") {
        None => HookState::NotReached,
        Some(hook) if hook.status == "True" => HookState::Passed,
        Some(_) => HookState::Waiting,
    }
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
        use Generation::{Current, Legacy};
        use MachineApi::{V1Beta1, V1Beta2};
        let of = |reason: &str, hook: &str| {
            let new = json!([{"type": "Deleting", "status": "True", "reason": reason}]);
            let old = json!([{"type": "PreTerminateDeleteHookSucceeded", "status": hook}]);
            let modern = json!({"conditions": new, "deprecated": {"v1beta1": {"conditions": old}}});
            let older = json!({"conditions": old, "v1beta2": {"conditions": new}});
            [(V1Beta2, machine(&modern)), (V1Beta1, machine(&older))]
        };
        for (api, waiting) in of("WaitingForPreTerminateHook", "False") {
            assert_eq!(state(Current, api, &waiting), HookState::Waiting);
            assert_eq!(state(Legacy, api, &waiting), HookState::Waiting);
        }
        for (api, past) in of("WaitingForInfrastructureDeletion", "True") {
            assert_eq!(state(Current, api, &past), HookState::NotReached);
            assert_eq!(state(Legacy, api, &past), HookState::Passed);
        }
        let draining = json!({"conditions": [{"type": "Deleting", "status": "True", "reason": "DrainingNode"}]});
        for generation in [Current, Legacy] {
            assert_eq!(
                state(generation, V1Beta2, &machine(&draining)),
                HookState::NotReached
            );
        }
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
