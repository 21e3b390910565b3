//! Foreign objects parse whatever they contain, and the methods return what the provider and the service mean.

use crate::full;
use agent_forge_crds::external::{Agent, AgentMachine, ByoHost, ByoMachine, InfraEnv, MachineMeta};
use kube::core::{ObjectList, PartialObjectMeta};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Unusual values that a field may have.
fn oddities() -> [Value; 9] {
    [
        json!(null),
        json!(true),
        json!(-1),
        json!(1.5),
        json!("odd"),
        json!([]),
        json!({}),
        json!([null, 1, "x", [], {}]),
        json!({"odd": [1]}),
    ]
}

/// Paths of every value below `spec` and `status`, including lists and their elements.
fn paths(value: &Value, path: String, all: &mut Vec<String>) {
    if !path.is_empty() {
        all.push(path.clone());
    }
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if path.is_empty() && !matches!(name.as_str(), "spec" | "status") {
                    continue;
                }
                paths(value, format!("{path}/{}", name.replace('/', "~1")), all);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                paths(item, format!("{path}/{index}"), all);
            }
        }
        _ => {}
    }
}

/// Puts every unusual value into every place, and removes every place. The list must always parse.
fn survives<K: DeserializeOwned + Clone>(object: &Value) {
    let mut all = Vec::new();
    paths(object, String::new(), &mut all);
    assert!(all.len() > 8, "{all:?}");
    for path in all {
        let mut variants: Vec<Value> = oddities()
            .into_iter()
            .map(|odd| {
                let mut variant = object.clone();
                *variant.pointer_mut(&path).unwrap() = odd;
                variant
            })
            .collect();
        let (parent, last) = path.rsplit_once('/').unwrap();
        let mut without = object.clone();
        if let Some(Value::Object(fields)) = without.pointer_mut(parent) {
            fields.remove(&last.replace("~1", "/"));
        }
        variants.push(without);
        let count = variants.len();
        let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": variants});
        let list: ObjectList<K> = serde_json::from_value(list)
            .unwrap_or_else(|error| panic!("odd values at {path}: {error}"));
        assert_eq!(list.items.len(), count);
    }
}

#[test]
fn odd_values_anywhere_never_hide_a_list() {
    let json = |value: Value| value;
    survives::<AgentMachine>(&json(
        serde_json::to_value(full::agent_machine(Some("Info"))).unwrap(),
    ));
    survives::<Agent>(&json(serde_json::to_value(full::agent()).unwrap()));
    survives::<InfraEnv>(&json(serde_json::to_value(full::infra_env()).unwrap()));
    survives::<ByoMachine>(&json(serde_json::to_value(full::byo_machine()).unwrap()));
    survives::<ByoHost>(&json(serde_json::to_value(full::byo_host()).unwrap()));
}

#[test]
fn full_objects_read_back_as_they_were() {
    let machine = full::agent_machine(Some("Warning"));
    let json = serde_json::to_value(&machine).unwrap();
    assert_eq!(
        serde_json::from_value::<AgentMachine>(json).unwrap(),
        machine
    );
    let agent = full::agent();
    let json = serde_json::to_value(&agent).unwrap();
    assert_eq!(serde_json::from_value::<Agent>(json).unwrap(), agent);
    let infra_env = full::infra_env();
    let json = serde_json::to_value(&infra_env).unwrap();
    assert_eq!(serde_json::from_value::<InfraEnv>(json).unwrap(), infra_env);
}

fn machine(conditions: Value) -> AgentMachine {
    serde_json::from_value(json!({"metadata": {"name": "m"}, "status": {"conditions": conditions}}))
        .unwrap()
}

#[test]
fn waiting_is_read_in_both_generations() {
    let current = machine(json!([
        {"type": "Ready", "status": "False", "reason": "IssuesReported", "message": "* AgentReserved"},
        {"type": "AgentReserved", "status": "False", "reason": "NoSuitableAgents", "message": ""},
    ]));
    assert!(current.is_waiting());
    assert!(!current.is_waiting_legacy());

    let legacy = machine(json!([
        {"type": "Ready", "status": "False", "reason": "NoSuitableAgents", "severity": "Warning"},
    ]));
    assert!(!legacy.is_waiting());
    assert!(legacy.is_waiting_legacy());

    // AgentReserved counts if both conditions exist.
    let reserved = machine(json!([
        {"type": "Ready", "status": "False", "reason": "NoSuitableAgents"},
        {"type": "AgentReserved", "status": "True", "reason": "AgentReserved"},
    ]));
    assert!(!reserved.is_waiting());
    assert!(!reserved.is_waiting_legacy());

    for other in [
        json!([]),
        json!([{"type": "AgentReserved", "status": "False", "reason": "AgentNotYetFound"}]),
        json!([{"type": "AgentReserved", "status": "True"}]),
        json!([{"type": "AgentReserved", "reason": "NoSuitableAgents"}]),
        json!([{"status": "False", "reason": "NoSuitableAgents"}]),
    ] {
        let machine = machine(other.clone());
        assert!(
            !machine.is_waiting() && !machine.is_waiting_legacy(),
            "{other}"
        );
    }
}

#[test]
fn the_owner_is_a_machine_in_either_version() {
    let owned = |api_version: &str, kind: &str| -> AgentMachine {
        serde_json::from_value(json!({"metadata": {"name": "m", "ownerReferences": [
            {"apiVersion": "v1", "kind": "Machine", "name": "other", "uid": "0"},
            {"apiVersion": api_version, "kind": kind, "name": "m", "uid": "1"},
        ]}}))
        .unwrap()
    };
    for version in ["cluster.x-k8s.io/v1beta1", "cluster.x-k8s.io/v1beta2"] {
        let machine = owned(version, "Machine");
        assert_eq!(machine.owner_machine().unwrap().uid, "1");
        assert!(owned(version, "MachineSet").owner_machine().is_none());
    }
    for version in [
        "cluster.x-k8s.io/v1alpha4",
        "cluster.x-k8s.io",
        "x.io/v1beta1",
        "v1beta1",
    ] {
        assert!(
            owned(version, "Machine").owner_machine().is_none(),
            "{version}"
        );
    }
}

#[test]
fn marks_of_the_provider_are_read() {
    let machine: AgentMachine = serde_json::from_value(json!({
        "metadata": {
            "name": "m",
            "finalizers": ["agentmachine.agent-install.openshift.io/deprovision"],
            "annotations": {
                "hypershift.openshift.io/nodePool": "clusters/demo-worker",
                "cluster.x-k8s.io/paused": "",
            },
            "deletionTimestamp": "2026-11-21T05:23:25Z",
        },
        "status": {"agentRef": {"namespace": "demo"}, "ready": true},
    }))
    .unwrap();
    assert!(machine.has_provider_finalizer() && machine.is_paused() && machine.is_deleting());
    assert_eq!(machine.node_pool(), Some(("clusters", "demo-worker")));
    assert!(machine.is_ready());
    assert_eq!(
        machine.agent_ref(),
        None,
        "a reference without a name refers to nothing"
    );

    let bare: AgentMachine = serde_json::from_value(json!({"metadata": {"name": "m"}})).unwrap();
    assert!(!bare.has_provider_finalizer() && !bare.is_paused() && !bare.is_deleting());
    assert!(bare.node_pool().is_none() && !bare.is_ready() && bare.agent_ref().is_none());
}

fn agent(approved: bool, conditions: &[(&str, &str)]) -> Agent {
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|(type_, status)| json!({"type": type_, "status": status}))
        .collect();
    serde_json::from_value(json!({
        "metadata": {"name": "a"},
        "spec": {"approved": approved, "role": ""},
        "status": {"conditions": conditions},
    }))
    .unwrap()
}

#[test]
fn an_agent_is_valid_for_a_claim_exactly_as_the_provider_says() {
    let good = [
        ("Bound", "False"),
        ("Connected", "True"),
        ("Validated", "True"),
    ];
    assert!(agent(true, &good).is_valid_for_claim());
    assert!(!agent(false, &good).is_valid_for_claim());
    for index in 0..good.len() {
        let mut missing = good.to_vec();
        missing.remove(index);
        assert!(!agent(true, &missing).is_valid_for_claim(), "{missing:?}");
        let mut unknown = good.to_vec();
        unknown[index].1 = "Unknown";
        assert!(!agent(true, &unknown).is_valid_for_claim(), "{unknown:?}");
    }
}

#[test]
fn an_agent_is_free_only_without_claim_and_cluster() {
    let read = |labels: Value, cluster: Value| -> Agent {
        serde_json::from_value(json!({
            "metadata": {"name": "a", "labels": labels},
            "spec": {"clusterDeploymentName": cluster},
        }))
        .unwrap()
    };
    assert!(!read(json!({}), json!(null)).is_claimed_or_bound());
    assert!(read(json!({"agentMachineRef": "m"}), json!(null)).is_claimed_or_bound());
    let order = json!({"osac.openshift.io/clusterorder": "order-1"});
    assert!(read(order, json!(null)).is_claimed_or_bound());
    let cluster = json!({"name": "demo", "namespace": "demo-demo"});
    assert!(read(json!({}), cluster).is_claimed_or_bound());
    assert!(
        read(json!({}), json!({})).is_claimed_or_bound(),
        "in doubt it is not free"
    );
}

#[test]
fn an_infra_env_offers_an_iso_only_with_an_address_that_never_prints() {
    let read = |status: Value| -> InfraEnv {
        serde_json::from_value(json!({"metadata": {"name": "i"}, "status": status})).unwrap()
    };
    assert!(read(json!(null)).iso_download_url().is_none());
    assert!(
        read(json!({"isoDownloadURL": ""}))
            .iso_download_url()
            .is_none()
    );
    let token = "eyJhbGciOiJFUzI1NiJ9";
    let offered = read(json!({"isoDownloadURL": format!("https://i/byapikey/{token}/full.iso")}));
    assert!(offered.iso_download_url().unwrap().expose().contains(token));
    assert!(!format!("{offered:?}").contains(token));
}

#[test]
fn an_infra_env_says_what_keeps_vms_from_being_made() {
    let read = |spec: Value, conditions: Value| -> InfraEnv {
        let status = json!({"conditions": conditions});
        serde_json::from_value(json!({"metadata": {"name": "i"}, "spec": spec, "status": status}))
            .unwrap()
    };
    let created = |status: &str| json!([{"type": "ImageCreated", "status": status, "reason": "x", "message": "no release"}]);
    assert!(!read(json!({}), json!([])).auto_approves());
    let auto = read(json!({"agentApproval": {"autoApprove": true}}), json!([]));
    assert!(auto.auto_approves());
    assert_eq!(
        read(json!({}), created("False")).image_failure(),
        Some("no release")
    );
    for other in [json!([]), created("True"), created("Unknown")] {
        assert_eq!(read(json!({}), other).image_failure(), None);
    }
}

#[test]
fn a_machine_is_its_metadata() {
    let partial: PartialObjectMeta = serde_json::from_value(json!({
        "apiVersion": "meta.k8s.io/v1",
        "kind": "PartialObjectMetadata",
        "metadata": {
            "name": "m", "namespace": "demo-demo", "uid": "1",
            "deletionTimestamp": "2026-11-21T05:23:25Z",
            "annotations": {
                "pre-terminate.delete.hook.machine.cluster.x-k8s.io/agentmachine": "",
                "hypershift.openshift.io/nodePool": "clusters/demo-worker",
            },
        },
    }))
    .unwrap();
    let machine = MachineMeta::from(partial);
    assert_eq!(
        (machine.namespace(), machine.name(), machine.uid()),
        ("demo-demo", "m", Some("1"))
    );
    assert!(machine.is_deleting() && machine.has_agent_hook() && !machine.is_paused());
    assert_eq!(machine.node_pool(), Some(("clusters", "demo-worker")));
    let owned: AgentMachine = serde_json::from_value(json!({"metadata": {"ownerReferences": [
        {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": "m", "uid": "1"},
    ]}}))
    .unwrap();
    assert!(machine.is_owner(owned.owner_machine().unwrap()));
    assert!(!MachineMeta::default().is_owner(owned.owner_machine().unwrap()));
}
