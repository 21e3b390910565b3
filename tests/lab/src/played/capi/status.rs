//! The status of a Machine in either API version.

use serde_json::{Value, json};

use super::super::{
    condition::{self, Condition, Shape},
    mirror::Object,
    nature,
    object::Facts as _,
    options::MachineApi,
};

/// The progress of a Machine that is not being deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Its AgentMachine is not ready.
    Pending,
    /// It has a provider ID, but no Node yet.
    Provisioned,
    /// Its Node is ready.
    Running,
}

/// The part of the status of a Machine that is not being deleted.
#[must_use]
pub fn alive(api: MachineApi, machine: &Object, agent_machine: &Object, stage: Stage) -> Value {
    let running = stage == Stage::Running;
    let provisioned = stage != Stage::Pending;
    let ready = agent_machine.condition("Ready");
    let infrastructure = match ready {
        Some(ready) if ready.status == "True" => {
            Condition::new("InfrastructureReady", "True", "Ready", "")
        }
        Some(ready) if !ready.reason.is_empty() => {
            Condition::new("InfrastructureReady", "False", ready.reason, ready.message)
                .severe("Info")
        }
        _ => Condition::new("InfrastructureReady", "False", "NotReady", "").severe("Info"),
    };
    let yes_no = |kind, yes: bool| {
        let (status, reason) = if yes {
            ("True", kind)
        } else {
            ("False", "NotReady")
        };
        Condition::new(kind, status, reason, "")
    };
    let modern = vec![
        yes_no("Available", running),
        yes_no("Ready", running),
        infrastructure.clone(),
        yes_no("NodeReady", running),
        Condition::new("Deleting", "False", "NotDeleting", ""),
        Condition::new("Paused", "False", "NotPaused", ""),
    ];
    let summary = if running {
        Condition::new("Ready", "True", "", "")
    } else {
        Condition {
            kind: "Ready",
            ..infrastructure.clone()
        }
    };
    let mut status = conditions(api, machine, &modern, &[summary, infrastructure]);
    status["phase"] = json!(match stage {
        Stage::Pending => "Pending",
        Stage::Provisioned => "Provisioned",
        Stage::Running => "Running",
    });
    if provisioned {
        status["addresses"] = agent_machine
            .at("/status/addresses")
            .cloned()
            .unwrap_or_else(|| json!([]));
        match api {
            MachineApi::V1Beta1 => status["infrastructureReady"] = json!(true),
            MachineApi::V1Beta2 => {
                status["initialization"] = json!({"infrastructureProvisioned": true})
            }
        }
    }
    if running {
        let node = node_name(agent_machine).unwrap_or(machine.name());
        status["nodeRef"] = match api {
            MachineApi::V1Beta1 => json!({"apiVersion": "v1", "kind": "Node", "name": node}),
            MachineApi::V1Beta2 => json!({ "name": node }),
        };
    }
    status
}

/// The part of the status of a Machine under deletion. `reason` is the reason of the condition `Deleting`.
#[must_use]
pub fn dying(api: MachineApi, machine: &Object, reason: &str) -> Value {
    let modern = [Condition::new("Deleting", "True", reason, "")];
    let old: &[Condition] = match reason {
        "WaitingForPreTerminateHook" => &[Condition::new(
            "PreTerminateDeleteHookSucceeded",
            "False",
            "WaitingExternalHook",
            "",
        )
        .severe("Info")],
        "WaitingForInfrastructureDeletion" | "DeletionCompleted" => &[Condition::new(
            "PreTerminateDeleteHookSucceeded",
            "True",
            "",
            "",
        )],
        "DrainingNode" => {
            &[Condition::new("DrainingSucceeded", "False", "Draining", "").severe("Info")]
        }
        _ => &[],
    };
    let mut status = conditions(api, machine, &modern, old);
    status["phase"] = json!("Deleting");
    status
}

/// The reason of the condition `Deleting`, if it was written.
#[must_use]
pub fn deleting_because(api: MachineApi, machine: &Object) -> Option<&str> {
    let list = match api {
        MachineApi::V1Beta2 => "/status/conditions",
        MachineApi::V1Beta1 => "/status/v1beta2/conditions",
    };
    machine
        .condition_in(list, "Deleting")
        .map(|condition| condition.reason)
}

/// Both condition lists, each in the field that the API version has for it.
fn conditions(api: MachineApi, machine: &Object, modern: &[Condition], old: &[Condition]) -> Value {
    let now = nature::now();
    let list = |new: &[Condition], pointer: &str, shape| {
        condition::render(new, machine.at(pointer), shape, now)
    };
    match api {
        MachineApi::V1Beta2 => json!({
            "conditions": list(modern, "/status/conditions", Shape::Metav1),
            "deprecated": {"v1beta1": {
                "conditions": list(old, "/status/deprecated/v1beta1/conditions", Shape::Capi),
            }},
        }),
        MachineApi::V1Beta1 => json!({
            "conditions": list(old, "/status/conditions", Shape::Capi),
            "v1beta2": {"conditions": list(modern, "/status/v1beta2/conditions", Shape::Metav1)},
        }),
    }
}

fn node_name(agent_machine: &Object) -> Option<&str> {
    let addresses = agent_machine.at("/status/addresses")?.as_array()?;
    addresses
        .iter()
        .find(|address| address["type"] == "InternalDNS")?["address"]
        .as_str()
}
