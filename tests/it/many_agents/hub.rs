//! A hub with many Agents: its objects, and the caches with them.

use std::sync::Arc;

use agent_forge::cluster::{
    cache::{Cache, Feed},
    scope::Scope,
    view::Caches,
    watches::agent_change,
};
use agent_forge_actors::{
    domain::{identity::BiosUuid, names::ObjectKey, upstream::MachineFacts},
    ports::cluster::View,
    supervisor::routing::route,
};
use agent_forge_crds::{
    VsphereAgent, VsphereAgentPool,
    external::{agent::Agent, agent_machine::AgentMachine, infra_env::InfraEnv},
};
use kube::runtime::watcher::Event;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Number of pools.
pub const POOLS: usize = 100;
/// Number of serving VMs of each pool.
pub const VMS: usize = 5;
/// Namespace of pools, InfraEnv and Agents.
pub const HOME: &str = "hosts";

fn read<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).expect("an object of that kind")
}

fn meta(namespace: &str, name: &str, more: Value) -> Value {
    let mut meta = json!({
        "namespace": namespace, "name": name, "uid": format!("uid-{namespace}-{name}"), "resourceVersion": "1",
        "creationTimestamp": "2023-11-14T22:13:20Z",
    });
    let object = meta.as_object_mut().expect("an object");
    object.extend(more.as_object().expect("an object").clone());
    meta
}

fn pool(n: usize) -> Value {
    json!({
        "metadata": meta(HOME, &format!("p{n}"), json!({"finalizers": ["agent-forge.containeroo.ch/vsphere-agent-pool"]})),
        "spec": {
            "hostedClusterRef": {"name": format!("c{n}")},
            "nodePoolRef": {"name": format!("p{n}")},
            "infraEnvRef": {"name": "infra"},
            "controlPlaneNamespace": format!("cp{n}"),
            "vsphere": {"credentialsSecretRef": {"name": "vcenter"}},
            "template": {},
            "agent": {"labels": {"pool": format!("p{n}")}},
        },
    })
}

/// An AgentMachine. It waits, or is bound to the given Agent.
pub fn agent_machine(n: usize, name: &str, agent: Option<&str>) -> Value {
    let (status, reason) = match agent {
        Some(_) => ("True", "AgentReserved"),
        None => ("False", "NoSuitableAgents"),
    };
    let reference = agent.map(|name| json!({"namespace": HOME, "name": name}));
    json!({
        "metadata": meta(&format!("cp{n}"), name, json!({
            "annotations": {"hypershift.openshift.io/nodePool": format!("{HOME}/p{n}")},
            "finalizers": ["agentmachine.agent-install.openshift.io/deprovision"],
            "ownerReferences": [{
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": name, "uid": format!("m-{name}"),
            }],
        })),
        "spec": {"agentLabelSelector": {"matchLabels": {"pool": format!("p{n}")}}},
        "status": {
            "agentRef": reference,
            "conditions": [{"type": "AgentReserved", "status": status, "reason": reason}],
        },
    })
}

pub fn uuid_of(name: &str) -> BiosUuid {
    BiosUuid::derive("cluster", name, 1)
}

pub fn child(n: usize, name: &str) -> Value {
    let uuid = uuid_of(name);
    json!({
        "metadata": meta(HOME, name, json!({
            "labels": {"agent-forge.containeroo.ch/agent-machine": name},
            "finalizers": ["agent-forge.containeroo.ch/vsphere-agent"],
        })),
        "spec": {"poolRef": {"name": format!("p{n}")}},
        "status": {"clusterID": "cluster", "vm": {
            "name": name, "moref": format!("vm-{name}"), "attempt": 1, "biosUUID": uuid.to_string(), "served": true,
            "macAddresses": ["00:50:56:00:00:01"], "server": "vc.example", "vmPath": "p",
            "agentRef": {"namespace": HOME, "name": uuid.swapped().to_string()},
        }},
    })
}

/// An approved and healthy Agent. With `claim`, that AgentMachine in that namespace has claimed it.
pub fn agent(name: &str, labels: Value, claim: Option<(&str, &str)>) -> Value {
    let mut more = json!({"labels": labels});
    more["labels"]["infraenvs.agent-install.openshift.io"] = "infra".into();
    if let Some((namespace, machine)) = claim {
        more["labels"]["agentMachineRef"] = machine.into();
        more["annotations"] = json!({"agentMachineRefNamespace": namespace});
    }
    let bound = if claim.is_some() { "True" } else { "False" };
    json!({
        "metadata": meta(HOME, name, more),
        "spec": {"approved": true, "hostname": format!("host-{name}")},
        "status": {
            "inventory": {
                "hostname": name,
                "systemVendor": {"manufacturer": "VMware, Inc.", "productName": "VMware20,1"},
                "interfaces": [{"name": "ens192", "macAddress": "00:50:56:00:00:01"}],
            },
            "debugInfo": {"state": "known-unbound"},
            "conditions": [
                {"type": "Bound", "status": bound, "reason": "r"},
                {"type": "Connected", "status": "True", "reason": "r"},
                {"type": "Validated", "status": "True", "reason": "r"},
            ],
        },
    })
}

/// The caches of such a hub.
pub struct Hub {
    pub caches: Arc<Caches>,
    feed: Feed<Agent>,
    /// Agents of the pools' VMs.
    pub own: Vec<ObjectKey>,
    /// Agents of other hosts.
    pub others: Vec<ObjectKey>,
}

/// A feed of that cache, which has listed these objects.
fn fill<K>(cache: &Arc<Cache<K>>, all: Vec<K>, key: impl Fn(&K) -> ObjectKey + Copy) -> Feed<K> {
    let mut feed = Feed::new(cache.clone(), None);
    feed.take(Event::Init, key);
    for object in all {
        feed.take(Event::InitApply(object), key);
    }
    feed.take(Event::InitDone, key);
    feed
}

impl Hub {
    /// A hub with this number of Agents.
    pub fn of(agents: usize) -> Self {
        Self::with(agents, false)
    }

    /// The same. If foreign hosts count, each AgentMachine that waits asks for some of the other hosts.
    pub fn with(agents: usize, count_foreign: bool) -> Self {
        let caches = Arc::new(Caches::of(&Scope::of(&[])));
        let (mut pools, mut children, mut ams, mut machines) = (vec![], vec![], vec![], vec![]);
        let (mut all, mut own, mut others) = (vec![], vec![], vec![]);
        for n in 0..POOLS {
            let mut object = pool(n);
            object["spec"]["hosts"] = json!({"countForeign": count_foreign});
            pools.push(read::<VsphereAgentPool>(object));
            for v in 0..=VMS {
                let name = format!("p{n}-w{v}");
                let vm = uuid_of(&name).swapped().to_string();
                let serves = v < VMS;
                let mut am = agent_machine(n, &name, serves.then_some(&vm));
                if count_foreign && !serves {
                    let of_site = json!({"site": format!("s{}", n % 7)});
                    am["spec"]["agentLabelSelector"]["matchLabels"] = of_site;
                }
                ams.push(read::<AgentMachine>(am));
                machines.push(MachineFacts {
                    key: ObjectKey::new(format!("cp{n}"), &name),
                    uid: format!("m-{name}"),
                    deleting: false,
                    paused: false,
                    api_version: "cluster.x-k8s.io/v1beta2".to_owned(),
                });
                if serves {
                    children.push(read::<VsphereAgent>(child(n, &name)));
                    let claim = (format!("cp{n}"), name);
                    let labels = json!({"pool": format!("p{n}")});
                    all.push(read::<Agent>(agent(
                        &vm,
                        labels,
                        Some((&claim.0, &claim.1)),
                    )));
                    own.push(ObjectKey::new(HOME, vm));
                }
            }
        }
        for n in all.len()..agents {
            let name = uuid_of(&format!("metal-{n}")).to_string();
            let host = format!("metal-{n}");
            let claim = (n % 2 == 0).then_some(("elsewhere", host.as_str()));
            all.push(read::<Agent>(agent(
                &name,
                json!({"site": format!("s{}", n % 7)}),
                claim,
            )));
            others.push(ObjectKey::new(HOME, name));
        }
        let infra =
            read::<InfraEnv>(json!({"metadata": meta(HOME, "infra", json!({})), "spec": {}}));
        fill(&caches.pools, pools, ObjectKey::of);
        fill(&caches.children, children, ObjectKey::of);
        fill(&caches.agent_machines, ams, ObjectKey::of);
        fill(&caches.machines, machines, |m| m.key.clone());
        fill(&caches.infra_envs, vec![infra], ObjectKey::of);
        let feed = fill(&caches.agents, all, ObjectKey::of);
        Self {
            caches,
            feed,
            own,
            others,
        }
    }

    /// Changes the Agent. Returns how many actors that wakes.
    pub fn change(&mut self, view: &dyn View, key: &ObjectKey, how: impl Fn(&mut Agent)) -> usize {
        let shown = self.caches.agents.get(key).expect("it is there");
        let mut now = shown.as_ref().clone();
        how(&mut now);
        let changed = self.feed.take(Event::Apply(now), ObjectKey::of);
        let changes = changed.into_iter().map(|(key, old, new)| {
            agent_change(key, old.as_ref(), new.as_ref()).expect("a change")
        });
        changes.map(|change| route(&change, view).len()).sum()
    }
}

/// The Agent reports another state.
pub fn reports(agent: &mut Agent, round: usize) {
    let status = agent.status.as_mut().expect("a status");
    let info = status.debug_info.as_mut().expect("a state");
    info.state = Some(format!("state-{round}"));
}

/// Claims a free Agent, or frees a claimed one.
pub fn changes_hands(agent: &mut Agent) {
    let labels = agent.metadata.labels.as_mut().expect("labels");
    if labels.remove("agentMachineRef").is_none() {
        labels.insert("agentMachineRef".to_owned(), "somebody".to_owned());
    }
}
