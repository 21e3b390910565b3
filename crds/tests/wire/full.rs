//! Foreign objects with all fields that we know, so that a test over them covers every field. They have no `..Default`:
//! code with a new field does not compile until the field is added here.

use agent_forge_crds::Time;
use agent_forge_crds::external::agent::{
    Agent, AgentSpec, AgentStatus, DebugInfo, DeprovisionInfo, Interface, Inventory, InventoryDisk,
    Progress, SystemVendor,
};
use agent_forge_crds::external::agent_machine::{
    AgentMachine, AgentMachineSpec, AgentMachineStatus,
};
use agent_forge_crds::external::byoh::{
    BYO_HOST_READY, ByoHost, ByoHostSpec, ByoHostStatus, ByoMachine, ByoMachineSpec,
    ByoMachineStatus, HostInfo, INSTALLATION_SECRET_NOT_AVAILABLE,
};
use agent_forge_crds::external::infra_env::{
    AgentApproval, InfraEnv, InfraEnvSpec, InfraEnvStatus, IsoDownloadUrl,
};
use agent_forge_crds::external::{ForeignCondition, NamespacedName};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    LabelSelector, LabelSelectorRequirement, ObjectMeta,
};
use serde_json::json;
use std::collections::BTreeMap;

fn metadata() -> ObjectMeta {
    ObjectMeta {
        name: Some("one".into()),
        namespace: Some("demo".into()),
        ..ObjectMeta::default()
    }
}

fn time() -> Time {
    Time("2026-11-21T05:23:25Z".parse().unwrap())
}

fn reference() -> NamespacedName {
    NamespacedName {
        name: "one".into(),
        namespace: "demo".into(),
    }
}

fn condition(severity: Option<&str>) -> ForeignCondition {
    ForeignCondition {
        type_: "Ready".into(),
        status: "False".into(),
        reason: Some("NoSuitableAgents".into()),
        message: Some("none".into()),
        severity: severity.map(str::to_owned),
        last_transition_time: Some(time()),
    }
}

/// `severity` exists only in the older generation.
pub fn agent_machine(severity: Option<&str>) -> AgentMachine {
    AgentMachine {
        metadata: metadata(),
        spec: AgentMachineSpec {
            agent_label_selector: Some(LabelSelector {
                match_labels: Some(BTreeMap::from([("a".into(), "b".into())])),
                match_expressions: Some(vec![LabelSelectorRequirement {
                    key: "c".into(),
                    operator: "In".into(),
                    values: Some(vec!["d".into()]),
                }]),
            }),
            provider_id: Some("agent://one".into()),
        },
        status: Some(AgentMachineStatus {
            agent_ref: Some(reference()),
            ready: Some(true),
            conditions: vec![condition(severity)],
        }),
    }
}

pub fn agent() -> Agent {
    Agent {
        metadata: metadata(),
        spec: AgentSpec {
            approved: true,
            role: "worker".into(),
            hostname: Some("one".into()),
            cluster_deployment_name: Some(reference()),
            node_labels: BTreeMap::from([("zone".into(), "north".into())]),
        },
        status: Some(AgentStatus {
            inventory: Some(Inventory {
                hostname: Some("localhost".into()),
                system_vendor: Some(SystemVendor {
                    serial_number: Some("VMware-42".into()),
                    product_name: Some("VMware20,1".into()),
                    manufacturer: Some("VMware, Inc.".into()),
                    is_virtual: Some(true),
                }),
                interfaces: vec![Interface {
                    name: Some("ens192".into()),
                    mac_address: Some("00:0c:29:31:62:66".into()),
                }],
                disks: vec![InventoryDisk {
                    id: Some("/dev/disk/by-id/wwn-0x6000c29a".into()),
                    wwn: Some("0x6000c29a".into()),
                    serial: Some("6000c29a".into()),
                }],
                report_time: Some(time()),
            }),
            debug_info: Some(DebugInfo {
                state: Some("known-unbound".into()),
                state_info: Some("Host is ready".into()),
            }),
            progress: Some(Progress {
                current_stage: Some("Done".into()),
                stage_update_time: Some(time()),
            }),
            deprovision_info: Some(DeprovisionInfo {
                cluster_namespace: Some("demo-demo".into()),
                node_name: Some("one".into()),
            }),
            conditions: vec![condition(None)],
        }),
    }
}

pub fn infra_env() -> InfraEnv {
    InfraEnv {
        metadata: metadata(),
        spec: InfraEnvSpec {
            cluster_ref: Some(reference()),
            agent_labels: BTreeMap::from([("a".into(), "b".into())]),
            os_image_version: Some("4.19".into()),
            agent_approval: Some(AgentApproval { auto_approve: true }),
            proxy: Some(json!({"noProxy": "localhost"})),
            additional_trust_bundle: Some(json!("certificates")),
            ssh_authorized_key: Some(json!("key")),
            kernel_arguments: Some(json!([{"operation": "append", "value": "quiet"}])),
            ignition_config_override: Some(json!("{}")),
            additional_ntp_sources: Some(json!(["ntp.example"])),
            nm_state_config_label_selector: Some(json!({"matchLabels": {"env": "a"}})),
        },
        status: Some(InfraEnvStatus {
            iso_download_url: Some(IsoDownloadUrl::new("https://images.example/full.iso")),
            created_time: Some(time()),
            conditions: vec![condition(None)],
        }),
    }
}

/// A ByoMachine whose host waits for its scripts.
pub fn byo_machine() -> ByoMachine {
    ByoMachine {
        metadata: metadata(),
        spec: ByoMachineSpec {},
        status: Some(ByoMachineStatus {
            host_info: Some(HostInfo {
                os_name: "linux".into(),
                os_image: "Ubuntu 22.04.4 LTS".into(),
                architecture: "amd64".into(),
            }),
            conditions: vec![ForeignCondition {
                type_: BYO_HOST_READY.into(),
                status: "False".into(),
                reason: Some(INSTALLATION_SECRET_NOT_AVAILABLE.into()),
                message: Some(String::new()),
                severity: Some("Info".into()),
                last_transition_time: Some(time()),
            }],
        }),
    }
}

/// A ByoHost that has got its scripts.
pub fn byo_host() -> ByoHost {
    let text = |text: &str| Some(text.to_owned());
    ByoHost {
        metadata: metadata(),
        spec: ByoHostSpec {
            installation_secret: Some(ObjectReference {
                api_version: text("v1"),
                field_path: text("data"),
                kind: text("Secret"),
                name: text("one"),
                namespace: text("demo"),
                resource_version: text("1"),
                uid: text("u"),
            }),
        },
        status: Some(ByoHostStatus {}),
    }
}
