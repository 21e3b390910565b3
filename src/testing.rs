//! A small world in the caches, for the tests of the commands.

use std::sync::Arc;

use agent_forge_actors::domain::{
    identity::BiosUuid,
    names::ObjectKey,
    upstream::{MachineFacts, Pausable, PausableKind},
};
use agent_forge_crds::{
    VsphereAgent, VsphereAgentPool,
    external::{agent::Agent, agent_machine::AgentMachine, infra_env::InfraEnv},
};
use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::cluster::{
    cache::Cache,
    lists::show,
    scope::Scope,
    view::{Caches, NamespaceGrant},
};

/// Identity of the cluster.
pub const CLUSTER: &str = "cluster";
/// uid of the VsphereAgent.
pub const CHILD_UID: &str = "u-va";

/// BIOS UUID of the VM, as the operator derives it.
pub fn uuid() -> BiosUuid {
    BiosUuid::derive(CLUSTER, CHILD_UID, 1)
}

/// The objects of one machine that serves. A test changes them, and puts them into caches.
pub struct World {
    /// Pool `demo/workers`.
    pub pool: Value,
    /// VsphereAgent `demo/w-1`; `null`: none.
    pub child: Value,
    /// AgentMachine `demo-demo/w-1`.
    pub agent_machine: Value,
    /// Its Machine.
    pub machine: Option<MachineFacts>,
    /// Its Agent; `null`: none.
    pub agent: Value,
    /// InfraEnv `demo/infra`.
    pub infra_env: Value,
    /// Annotation `allow-pools-from` of the Namespaces `demo` and `demo-demo`.
    pub admits: Option<&'static str>,
}

impl World {
    /// A machine that serves, of a healthy pool.
    pub fn serving() -> Self {
        let condition = |type_: &str, status: &str| json!({"type": type_, "status": status, "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let serial = format!("VMware-{}", uuid());
        let host = uuid().swapped().to_string();
        Self {
            admits: Some("*"),
            pool: json!({
                "apiVersion": "agent-forge.containeroo.ch/v1alpha1", "kind": "VsphereAgentPool",
                "metadata": {
                    "name": "workers", "namespace": "demo", "uid": "u-pool", "resourceVersion": "1",
                    "finalizers": ["agent-forge.containeroo.ch/vsphere-agent-pool"],
                },
                "spec": {
                    "hostedClusterRef": {"name": "demo"}, "nodePoolRef": {"name": "workers"},
                    "controlPlaneNamespace": "demo-demo", "infraEnvRef": {"name": "infra"},
                    "agent": {"labels": {"customer": "example"}},
                    "template": {"numCPUs": 4, "memoryMiB": 16384, "diskGiB": 120},
                    "vsphere": {
                        "credentialsSecretRef": {"name": "vc"}, "datacenter": "DC0", "datastoreCluster": "ds",
                        "isoDatastore": "isos", "network": "net", "resourcePool": "rp", "folder": "demo",
                    },
                },
                "status": {"conditions": [
                    condition("InfraEnvAvailable", "True"), condition("VsphereReady", "True"), condition("ISOReady", "True"),
                ]},
            }),
            child: json!({
                "apiVersion": "agent-forge.containeroo.ch/v1alpha1", "kind": "VsphereAgent",
                "metadata": {
                    "name": "w-1", "namespace": "demo", "uid": CHILD_UID, "resourceVersion": "1",
                    "creationTimestamp": "2026-01-01T00:00:00Z",
                    "finalizers": ["agent-forge.containeroo.ch/vsphere-agent"],
                    "labels": {"agent-forge.containeroo.ch/agent-machine": "w-1"},
                    "annotations": {
                        "agent-forge.containeroo.ch/agent-machine-uid": "u-am",
                        "agent-forge.containeroo.ch/machine-name": "w-1",
                        "agent-forge.containeroo.ch/machine-uid": "u-m",
                    },
                },
                "spec": {"poolRef": {"name": "workers"}},
                "status": {
                    "clusterID": CLUSTER, "traceID": "98744f92c8a4463eb1500dd1e087aa09",
                    "vm": {
                        "name": "w-1", "biosUUID": uuid().to_string(), "attempt": 1, "moref": "vm-42", "phase": "Bound",
                        "reason": "AgentBound", "powerState": "poweredOn", "server": "vc.example",
                        "macAddresses": ["00:50:56:00:00:01"], "served": true,
                        "agentRef": {"namespace": "demo", "name": host},
                        "infraEnvRef": {"namespace": "demo", "name": "infra"},
                        "agentMachineRef": {"namespace": "demo-demo", "name": "w-1", "uid": "u-am"},
                    },
                    "timeline": [
                        {"event": "Demanded", "attempt": 1, "at": "2026-01-01T00:00:00.000000Z"},
                        {"event": "Created", "attempt": 1, "at": "2026-01-01T00:01:30.000000Z"},
                    ],
                },
            }),
            agent_machine: json!({
                "apiVersion": "capi-provider.agent-install.openshift.io/v1beta1", "kind": "AgentMachine",
                "metadata": {
                    "name": "w-1", "namespace": "demo-demo", "uid": "u-am", "resourceVersion": "1",
                    "creationTimestamp": "2026-01-01T00:00:00Z",
                    "finalizers": ["agentmachine.agent-install.openshift.io/deprovision"],
                    "annotations": {"hypershift.openshift.io/nodePool": "demo/workers"},
                    "ownerReferences": [{"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Machine", "name": "w-1", "uid": "u-m"}],
                },
                "spec": {"providerID": format!("agent://{host}")},
                "status": {"ready": true, "agentRef": {"namespace": "demo", "name": host}, "conditions": [condition("AgentReserved", "True")]},
            }),
            machine: Some(MachineFacts {
                key: ObjectKey::new("demo-demo", "w-1"),
                uid: "u-m".to_owned(),
                deleting: false,
                paused: false,
                api_version: "cluster.x-k8s.io/v1beta1".to_owned(),
            }),
            agent: json!({
                "apiVersion": "agent-install.openshift.io/v1beta1", "kind": "Agent",
                "metadata": {
                    "name": host, "namespace": "demo", "uid": "u-agent", "resourceVersion": "1",
                    "creationTimestamp": "2026-01-01T00:05:00Z",
                    "labels": {
                        "agentMachineRef": "w-1", "infraenvs.agent-install.openshift.io": "infra", "customer": "example",
                        "agent-forge.containeroo.ch/agent-machine": "w-1",
                    },
                    "annotations": {"agentMachineRefNamespace": "demo-demo"},
                },
                "spec": {"approved": true, "hostname": "w-1", "role": "worker", "clusterDeploymentName": {"namespace": "demo-demo", "name": "demo"}},
                "status": {
                    "debugInfo": {"state": "added-to-existing-cluster"},
                    "inventory": {
                        "systemVendor": {"serialNumber": serial, "manufacturer": "VMware, Inc."},
                        "interfaces": [{"name": "ens192", "macAddress": "00:50:56:00:00:01"}],
                    },
                    "conditions": [condition("Installed", "True")],
                },
            }),
            infra_env: json!({
                "apiVersion": "agent-install.openshift.io/v1beta1", "kind": "InfraEnv",
                "metadata": {"name": "infra", "namespace": "demo", "uid": "u-infra", "resourceVersion": "1"},
                "spec": {}, "status": {"isoDownloadURL": "https://images.example/byapikey/SECRET/x.iso"},
            }),
        }
    }

    /// A machine that waits for its VM: there is an AgentMachine, and nothing else.
    pub fn waiting() -> Self {
        let mut world = Self::serving();
        (world.child, world.agent) = (Value::Null, Value::Null);
        world.agent_machine["spec"] =
            json!({"agentLabelSelector": {"matchLabels": {"customer": "example"}}});
        world.agent_machine["status"] = json!({"conditions": [{
            "type": "AgentReserved", "status": "False", "reason": "NoSuitableAgents", "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]});
        world
    }

    /// The caches with these objects.
    pub fn caches(&self) -> Caches {
        let caches = Caches::of(&Scope::of(&[]));
        fill::<VsphereAgentPool>(&caches.pools, &self.pool);
        fill::<VsphereAgent>(&caches.children, &self.child);
        fill::<AgentMachine>(&caches.agent_machines, &self.agent_machine);
        fill::<Agent>(&caches.agents, &self.agent);
        fill::<InfraEnv>(&caches.infra_envs, &self.infra_env);
        let machines = self.machine.iter().cloned().collect();
        show(&caches.machines, &None, machines, |m| m.key.clone());
        for (_, cache) in &caches.pausables {
            show(cache, &None, Vec::new(), |p| p.key.clone());
        }
        let grants = ["demo", "demo-demo"].map(|name| NamespaceGrant {
            name: name.to_owned(),
            grant: self.admits.map(str::to_owned),
        });
        let key = |n: &NamespaceGrant| NamespaceGrant::key(&n.name);
        show(&caches.namespaces, &None, grants.to_vec(), key);
        *caches.cluster_id.write().expect("nobody panics with it") = CLUSTER.to_owned();
        caches
    }
}

fn fill<K: Resource<DynamicType = ()> + DeserializeOwned + Clone>(
    cache: &Arc<Cache<K>>,
    object: &Value,
) {
    let objects = match object {
        Value::Null => Vec::new(),
        Value::Array(all) => all
            .iter()
            .map(|o| serde_json::from_value(o.clone()).expect("an object"))
            .collect(),
        one => vec![serde_json::from_value(one.clone()).expect("an object")],
    };
    show(cache, &None, objects, ObjectKey::of);
}

/// NodePool `demo/workers` of the world, with that `spec.pausedUntil`.
pub fn pause_until(caches: &Caches, text: &str) {
    let object = Pausable {
        key: ObjectKey::new("demo", "workers"),
        cluster: Some("demo".to_owned()),
        annotated: false,
        paused: false,
        paused_until: Some(text.to_owned()),
    };
    let cache = caches
        .pausables
        .iter()
        .find(|(kind, _)| *kind == PausableKind::NodePool);
    let (_, cache) = cache.expect("a cache");
    show(cache, &None, vec![object], |p| p.key.clone());
}
