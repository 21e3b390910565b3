//! The same work with the real Cluster API and with the played one.
//!
//! Operator, agent provider, image service, guests and vCenter are the same in both runs. In the real run the
//! controllers of Cluster API make the Machines, from a MachineDeployment as HyperShift writes it. The lab's own API
//! server is also the hosted cluster's.

use std::fs;

use agent_forge_lab::{
    lab::{
        apply::{api_of, apply, documents},
        crds,
    },
    parts::ClusterApi,
    played::{
        HostedClusterPlay, kinds,
        mirror::{Mirror, Object},
        object::Facts as _,
        provider,
        task::Task,
    },
    tools,
};
use anyhow::{Result, ensure};
use kube::{Api, Client, core::DynamicObject};
use serde_json::{Value, json};

use crate::{
    look::{merge, merge_status},
    record::Recorder,
    support::world::{POOL, Setup, World, fits_pool},
};

/// The name that Cluster API uses for the hosted cluster.
const CLUSTER: &str = "demo-x7k2p";
/// The AgentMachineTemplate of the NodePool.
const TEMPLATE: &str = "demo-worker-template";
/// API group of HyperShift.
const HYPERSHIFT: &str = "hypershift.openshift.io";

/// Whose Cluster API makes the Machines.
enum Capi {
    Played(HostedClusterPlay),
    Real(Box<Real>),
}

/// The real Cluster API with what it needs.
struct Real {
    deployments: Api<DynamicObject>,
    _nodes: Task,
    _program: ClusterApi,
}

impl Capi {
    async fn scale(&self, replicas: usize) -> Result<()> {
        match self {
            Self::Played(pool) => pool.scale(replicas),
            Self::Real(real) => real.patch(json!({ "replicas": replicas })).await?,
        }
        Ok(())
    }

    /// A rolling replacement: one Machine more than the replicas, and none unavailable.
    async fn roll(&self) -> Result<()> {
        match self {
            Self::Played(pool) => pool.rolling_upgrade(1),
            Self::Real(real) => {
                let bootstrap = json!({"dataSecretName": "user-data-demo-2"});
                let template = json!({"spec": {"bootstrap": bootstrap}});
                real.patch(json!({ "template": template })).await
            }
        }
    }
}

impl Real {
    /// Starts the controllers, with the objects of one NodePool without replicas.
    async fn start(world: &World) -> Result<Self> {
        let client = &world.client;
        let path = tokio::task::spawn_blocking(tools::cluster_api_crds).await??;
        let mut definitions = documents(&fs::read_to_string(path)?)?;
        definitions.push(control_planes());
        crds::establish(client, &definitions).await?;
        crds::served(client, &definitions, &world.lab.api_server().process).await?;
        // HyperShift labels them so that Cluster API knows which version to use.
        for kind in ["agentmachines", "agentmachinetemplates"] {
            let name = format!("{kind}.{}", kinds::PROVIDER_GROUP);
            let labels = json!({"cluster.x-k8s.io/v1beta1": "v1beta1"});
            let definition = json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": name, "labels": labels},
            });
            let crds = api_of(client, &definition).await?;
            merge(&crds, &name, definition).await?;
        }
        let program = ClusterApi::start(world.lab.dir(), world.lab.kubeconfig_admin_path()).await?;
        let namespace = &world.cluster.control_plane_namespace;
        for object in objects(world)? {
            apply(client, &object).await?;
        }
        let agent_machines = Mirror::start(client, &kinds::agent_machine(), namespace);
        agent_machines.synced().await?;
        let deployment = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment",
            "metadata": {"namespace": namespace},
        });
        Ok(Self {
            deployments: api_of(client, &deployment).await?,
            _nodes: Task::spawn(play_nodes(client.clone(), agent_machines)),
            _program: program,
        })
    }

    async fn patch(&self, spec: Value) -> Result<()> {
        merge(&self.deployments, POOL, json!({ "spec": spec })).await?;
        Ok(())
    }
}

/// The CRD of the control plane, which is HyperShift's. Cluster API reads only that it is there.
fn control_planes() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("hostedcontrolplanes.{HYPERSHIFT}"),
            "labels": {"cluster.x-k8s.io/v1beta1": "v1beta1"},
        },
        "spec": {
            "group": HYPERSHIFT, "scope": "Namespaced",
            "names": {"kind": "HostedControlPlane", "plural": "hostedcontrolplanes"},
            "versions": [{
                "name": "v1beta1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}

/// What HyperShift creates for a hosted cluster and a NodePool.
fn objects(world: &World) -> Result<Vec<Value>> {
    let namespace = &world.cluster.control_plane_namespace;
    let kubeconfig = fs::read_to_string(world.lab.kubeconfig_admin_path())?;
    let annotations = json!({
        "hypershift.openshift.io/nodePool": format!("{}/{POOL}", world.cluster.namespace),
        "hypershift.openshift.io/release-version": "4.19.0",
    });
    let core = |kind: &str, name: &str| {
        let metadata = json!({"name": name, "namespace": namespace, "annotations": annotations});
        json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": kind, "metadata": metadata})
    };
    let mut cluster = core("Cluster", CLUSTER);
    let control_plane =
        json!({"apiGroup": HYPERSHIFT, "kind": "HostedControlPlane", "name": CLUSTER});
    cluster["spec"] = json!({
        "controlPlaneEndpoint": {"host": "127.0.0.1", "port": 6443}, "controlPlaneRef": control_plane,
    });
    let mut deployment = core("MachineDeployment", POOL);
    deployment["metadata"]["labels"] = json!({"cluster.x-k8s.io/cluster-name": CLUSTER});
    deployment["spec"] = deployment_spec(&annotations);
    Ok(vec![
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
            "metadata": {
                "name": format!("{CLUSTER}-kubeconfig"), "namespace": namespace,
                "labels": {"cluster.x-k8s.io/cluster-name": CLUSTER},
            },
            "stringData": {"value": kubeconfig},
        }),
        json!({
            "apiVersion": format!("{HYPERSHIFT}/v1beta1"), "kind": "HostedControlPlane",
            "metadata": {"name": CLUSTER, "namespace": namespace},
            "status": {"initialized": true, "ready": true, "externalManagedControlPlane": true},
        }),
        cluster,
        json!({
            "apiVersion": format!("{}/v1beta1", kinds::PROVIDER_GROUP), "kind": "AgentMachineTemplate",
            "metadata": {"name": TEMPLATE, "namespace": namespace, "annotations": annotations},
            "spec": {"template": {"spec": {"agentLabelSelector": fits_pool()}}},
        }),
        deployment,
    ])
}

/// The spec of the MachineDeployment: one Machine more than the replicas, and none unavailable.
fn deployment_spec(annotations: &Value) -> Value {
    let selector = format!("{CLUSTER}-{POOL}");
    let labels = json!({&selector: &selector, "cluster.x-k8s.io/cluster-name": CLUSTER});
    let surge = json!({"maxSurge": 1, "maxUnavailable": 0});
    json!({
        "clusterName": CLUSTER,
        "replicas": 0,
        "selector": {"matchLabels": labels},
        "rollout": {"strategy": {"type": "RollingUpdate", "rollingUpdate": surge}},
        "template": {
            "metadata": {"labels": labels, "annotations": annotations},
            "spec": {
                "clusterName": CLUSTER,
                "version": "v1.36.3",
                "bootstrap": {"dataSecretName": "user-data-demo-1"},
                "infrastructureRef": {
                    "apiGroup": kinds::PROVIDER_GROUP, "kind": "AgentMachineTemplate", "name": TEMPLATE,
                },
            },
        },
    })
}

/// Makes a ready Node for each installed host, as its kubelet does.
async fn play_nodes(client: Client, agent_machines: Mirror) {
    let mut changes = agent_machines.changes();
    while let Some(change) = changes.recv().await {
        let installed = |o: &Object| o.flag("/status/ready") && !o.is_deleting();
        let Some(host) = change.new.filter(installed) else {
            continue;
        };
        let well = ["MemoryPressure", "DiskPressure", "PIDPressure"]
            .map(|kind| json!({"type": kind, "status": "False"}));
        let mut conditions = vec![json!({"type": "Ready", "status": "True"})];
        conditions.extend(well);
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": host.name()},
            "spec": {"providerID": host.text("/spec/providerID")},
        });
        let status = json!({"conditions": conditions, "nodeInfo": {
            "architecture": "", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "",
            "kubeletVersion": "v1.36.3", "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": "",
        }});
        let made = async {
            let nodes = api_of(&client, &node).await?;
            if nodes.get_opt(host.name()).await?.is_none() {
                apply(&client, &node).await?;
                merge_status(&nodes, host.name(), status).await?;
            }
            anyhow::Ok(())
        };
        if let Err(error) = made.await {
            tracing::warn!(node = host.name(), %error, "no Node");
        }
    }
}

/// Up to two Machines, down to one, a rolling update of that one, and its end while somebody has paused it.
async fn play(real: bool) -> Result<String> {
    let world = World::start(Setup::own_lab()).await?;
    let capi = match real {
        true => Capi::Real(Box::new(Real::start(&world).await?)),
        false => Capi::Played(world.node_pool().await?),
    };
    let recorder = Recorder::start([
        ("Machine", world.machines()),
        ("AgentMachine", world.agent_machines()),
    ]);
    let mut first = Vec::new();
    for replicas in [2, 1] {
        capi.scale(replicas).await?;
        first = until_running(&world, replicas, &[]).await?;
    }
    capi.roll().await?;
    let last = until_running(&world, 1, &first).await?;
    end_paused(&world, &capi, &last[0]).await?;
    Ok(recorder.history()?.told())
}

/// Removes the Machine `name`, which is paused until its deletion has begun. Its AgentMachine is deleted while it is
/// paused, so the provider lets it go without unbinding its host.
async fn end_paused(world: &World, capi: &Capi, name: &str) -> Result<()> {
    let mark = |paused: Value| json!({"metadata": {"annotations": {provider::PAUSED: paused}}});
    for api in [world.agent_machines(), world.machines()] {
        merge(&api, name, mark(json!("true"))).await?;
    }
    let (machines, agent_machines) = (world.machines(), world.agent_machines());
    let left = async |api: &Api<DynamicObject>| {
        Ok::<_, anyhow::Error>(api.list(&Default::default()).await?.items.len())
    };
    // HyperShift deletes the AgentMachines of a NodePool before its Machines.
    agent_machines.delete(name, &Default::default()).await?;
    let gone = async || Ok(left(&agent_machines).await? == 0);
    world.until("end of the AgentMachine", gone).await?;
    capi.scale(0).await?;
    let dying = async || Ok(machines.get(name).await?.is_deleting());
    world.until("Machine under deletion", dying).await?;
    merge(&machines, name, mark(Value::Null)).await?;
    let gone = async || Ok(left(&machines).await? == 0);
    world.until("end of the Machine", gone).await?;
    let agents = world.all_agents().await?;
    let bound = agents.iter().filter(|a| a.claimed_by().is_some()).count();
    ensure!(bound == 1, "{bound} of {} Agents are bound", agents.len());
    Ok(())
}

/// Waits until exactly `count` Machines exist, each with a Node and a VM, and none of `others`. Returns their names.
async fn until_running(world: &World, count: usize, others: &[String]) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let what = format!("{count} Machines that run");
    world
        .until(&what, async || {
            let all = world.machines().list(&Default::default()).await?.items;
            names = all.iter().map(|m| m.name().to_owned()).collect();
            let runs = |m: &DynamicObject| m.text("/status/phase") == "Running";
            let fits = all.len() == count && all.iter().all(runs);
            Ok(fits && names.iter().all(|n| !others.contains(n)))
        })
        .await?;
    world.settled(count).await?;
    Ok(names)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_played_cluster_api_does_what_the_real_one_does() -> Result<()> {
    let (real, played) = (play(true).await?, play(false).await?);
    ensure!(
        real == played,
        "The real Cluster API:\n{real}\n\nThe played one:\n{played}"
    );
    Ok(())
}
