//! The objects of the small world, as they are created.

use std::collections::BTreeMap;

use agent_forge_actors::{
    domain::{identity::MacAddress, names::ObjectKey, upstream::MachineFacts},
    ports::vcenter::VmObservation,
};
use agent_forge_crds::{
    external::{
        ForeignCondition,
        agent::{
            Agent, AgentSpec, AgentStatus, BOUND, CONNECTED, DebugInfo, INFRA_ENV_LABEL, Interface,
            Inventory, SPEC_SYNCED, SystemVendor, VALIDATED,
        },
        agent_machine::{
            AGENT_RESERVED, AgentMachine, AgentMachineSpec, AgentMachineStatus, NO_SUITABLE_AGENTS,
            NODE_POOL_ANNOTATION, PROVIDER_FINALIZER,
        },
    },
    names::POOL_FINALIZER,
    pool::{
        AgentSpec as PoolAgentSpec, CredentialsSecretRef, HeldSecret, InfraEnvRef, IsoStatus,
        ObjectNameRef, VsphereAgentPool,
    },
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    LabelSelector, ObjectMeta, OwnerReference, Time,
};

/// Namespace of pool, InfraEnv and Agents.
pub const NAMESPACE: &str = "demo";
/// Namespace of AgentMachines and Machines.
pub const CONTROL_PLANE: &str = "demo-demo";
/// Name of pool and NodePool.
pub const POOL: &str = "workers";
/// Identity of the management cluster.
pub const CLUSTER_ID: &str = "cluster";
/// vCenter's name.
pub const SERVER: &str = "vc.example";
/// Name of the foreign Agent.
pub const STRANGER: &str = "stranger";
const BORN: i64 = 1_700_000_000;

/// Time at `seconds` after everything was created.
pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(BORN + seconds).unwrap_or(Timestamp::UNIX_EPOCH)
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let owned = |(k, v): &(&str, &str)| ((*k).to_owned(), (*v).to_owned());
    pairs.iter().map(owned).collect()
}

/// The metadata that every object has.
pub fn meta(namespace: &str, name: &str, uid: String) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(namespace.to_owned()),
        uid: Some(uid),
        resource_version: Some("1".to_owned()),
        creation_timestamp: Some(Time(at(0))),
        ..ObjectMeta::default()
    }
}

/// A pool, for the NodePool of its name. Its ISO is ready, and its Secret has the finalizer.
pub fn pool(name: &str) -> VsphereAgentPool {
    let mut pool = VsphereAgentPool::new(name, Default::default());
    pool.metadata = ObjectMeta {
        finalizers: Some(vec![POOL_FINALIZER.to_owned()]),
        generation: Some(1),
        ..meta(NAMESPACE, name, format!("pool-{name}"))
    };
    let named = |name: &str| ObjectNameRef {
        name: name.to_owned(),
    };
    pool.spec.hosted_cluster_ref = named("demo");
    pool.spec.node_pool_ref = named(name);
    pool.spec.infra_env_ref = InfraEnvRef {
        name: "infra".to_owned(),
        namespace: Some(NAMESPACE.to_owned()),
    };
    pool.spec.control_plane_namespace = CONTROL_PLANE.to_owned();
    pool.spec.agent = PoolAgentSpec {
        labels: labels(&[("customer", "example")]),
        ..PoolAgentSpec::default()
    };
    let vsphere = &mut pool.spec.vsphere;
    vsphere.iso_datastore = "isos".to_owned();
    vsphere.resource_pool = "cluster/Resources".to_owned();
    vsphere.datastore_cluster = "pod".to_owned();
    vsphere.network = "VM Network".to_owned();
    vsphere.credentials_secret_ref = CredentialsSecretRef {
        name: "vcenter".to_owned(),
        namespace: None,
    };
    let status = pool.status.get_or_insert_default();
    status.iso = Some(IsoStatus {
        stored_path: Some("[isos] agent-forge/x.iso".to_owned()),
        ..IsoStatus::default()
    });
    status.held_secrets = vec![HeldSecret {
        name: "vcenter".to_owned(),
        namespace: NAMESPACE.to_owned(),
        held: true,
    }];
    pool
}

/// A condition that upstream sets.
pub fn condition(type_: &str, status: &str, reason: &str) -> ForeignCondition {
    ForeignCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        ..ForeignCondition::default()
    }
}

/// An AgentMachine that waits for a host of that pool.
pub fn agent_machine(name: &str, pool: &str) -> AgentMachine {
    AgentMachine {
        metadata: ObjectMeta {
            annotations: Some(labels(&[(
                NODE_POOL_ANNOTATION,
                &format!("{NAMESPACE}/{pool}"),
            )])),
            finalizers: Some(vec![PROVIDER_FINALIZER.to_owned()]),
            owner_references: Some(vec![OwnerReference {
                api_version: "cluster.x-k8s.io/v1beta2".to_owned(),
                kind: "Machine".to_owned(),
                name: name.to_owned(),
                uid: format!("m-{name}"),
                ..OwnerReference::default()
            }]),
            ..meta(CONTROL_PLANE, name, format!("am-{name}"))
        },
        spec: AgentMachineSpec {
            agent_label_selector: Some(LabelSelector {
                match_labels: Some(labels(&[("customer", "example")])),
                ..LabelSelector::default()
            }),
            ..AgentMachineSpec::default()
        },
        status: Some(AgentMachineStatus {
            conditions: vec![condition(AGENT_RESERVED, "False", NO_SUITABLE_AGENTS)],
            ..AgentMachineStatus::default()
        }),
    }
}

/// The Machine of the AgentMachine of that name.
pub fn machine(name: &str) -> MachineFacts {
    MachineFacts {
        key: ObjectKey::new(CONTROL_PLANE, name),
        uid: format!("m-{name}"),
        deleting: false,
        paused: false,
        api_version: "cluster.x-k8s.io/v1beta2".to_owned(),
    }
}

/// MAC address of the `n`-th VM that vCenter creates under a name.
pub fn mac(name: &str, n: u8) -> Option<MacAddress> {
    let low = name.bytes().next().unwrap_or_default();
    MacAddress::parse(&format!("00:50:56:00:{low:02x}:{n:02x}"))
}

/// First letter of the machine that an Agent's VM was made for, from its MAC address. `None` for a foreign Agent.
pub fn initial(agent: &Agent) -> Option<u8> {
    let inventory = agent.status.as_ref()?.inventory.as_ref()?;
    let mac = inventory.interfaces.first()?.mac_address.as_ref()?;
    u8::from_str_radix(mac.split(':').nth(4)?, 16).ok()
}

/// The conditions of a free Agent.
pub fn free() -> Vec<ForeignCondition> {
    vec![
        condition(BOUND, "False", "Unbound"),
        condition(CONNECTED, "True", "AgentIsConnected"),
        condition(VALIDATED, "True", "ValidationsPassing"),
        condition(SPEC_SYNCED, "True", "SyncOK"),
    ]
}

fn bare(name: &str) -> Agent {
    Agent {
        metadata: ObjectMeta {
            labels: Some(labels(&[(INFRA_ENV_LABEL, "infra")])),
            ..meta(NAMESPACE, name, format!("agent-{name}"))
        },
        spec: AgentSpec::default(),
        status: Some(AgentStatus {
            debug_info: Some(DebugInfo {
                state: Some("known-unbound".to_owned()),
                state_info: None,
            }),
            conditions: free(),
            ..AgentStatus::default()
        }),
    }
}

/// A foreign Agent: it runs on another machine, is free and not approved.
pub fn stranger() -> Agent {
    bare(STRANGER)
}

/// The Agent that registers from a VM.
pub fn agent_on(vm: &VmObservation) -> Option<Agent> {
    let uuid = vm.bios_uuid?;
    let hex = uuid.to_string().replace('-', "");
    let pairs: Vec<&str> = (0..16).filter_map(|i| hex.get(2 * i..2 * i + 2)).collect();
    let serial = format!("VMware-{}-{}", pairs[..8].join(" "), pairs[8..].join(" "));
    let mut agent = bare(&uuid.swapped().to_string());
    // The Agent registers after its VM was switched on, whenever that is.
    agent.metadata.creation_timestamp = Some(Time(at(86_400)));
    agent.status.get_or_insert_default().inventory = Some(Inventory {
        hostname: None,
        disks: Vec::new(),
        report_time: None,
        system_vendor: Some(SystemVendor {
            serial_number: Some(serial),
            product_name: Some("VMware20,1".to_owned()),
            manufacturer: Some("VMware, Inc.".to_owned()),
            is_virtual: Some(true),
        }),
        interfaces: vm
            .macs
            .iter()
            .map(|mac| Interface {
                name: None,
                mac_address: Some(mac.to_string()),
            })
            .collect(),
    });
    Some(agent)
}
