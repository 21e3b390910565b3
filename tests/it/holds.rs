//! Holds by people, on the real API server: pauses of each source, `skip-delete`, vetoes, and who may change them.

use agent_forge_crds::{
    conditions::{PAUSED, VETOED, find_condition},
    names::{
        ALLOW_POOLS_FROM_ANNOTATION, DELETE_CHECK_PREFIX, FORCE_DELETE_ANNOTATION,
        PAUSED_ANNOTATION, POWER_ON_CHECK_PREFIX, SKIP_DELETE_ANNOTATION,
    },
};
use agent_forge_lab::{
    lab::{apply::apply, manifest::rendered},
    parts::vcenter_trouble::VmAction,
};
use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, ResourceExt as _,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
    },
};
use serde_json::{Value, json};

use crate::{
    changes::Changes,
    look::merge,
    world::{CLUSTER, POOL, Setup, World, pool_labels},
};

const CAPI_PAUSED: &str = "cluster.x-k8s.io/paused";
/// Key in the `extraConfig` of a VM.
const MARKER: &str = "agent-forge.owner";

/// An object by its kind and name.
pub struct Thing {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    namespace: String,
    name: String,
}

impl Thing {
    fn api(&self, client: &Client) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk(self.group, self.version, self.kind);
        let kind = ApiResource::from_gvk(&gvk);
        match self.kind {
            "Namespace" => Api::all_with(client.clone(), &kind),
            _ => Api::namespaced_with(client.clone(), &self.namespace, &kind),
        }
    }

    /// Makes it with these annotations, or asks whether that is accepted.
    async fn create(
        &self,
        client: &Client,
        annotations: &Value,
        spec: &Value,
        dry_run: bool,
    ) -> Result<()> {
        let mut object = json!({
            "apiVersion": format!("{}/{}", self.group, self.version).trim_start_matches('/'),
            "kind": self.kind,
            "metadata": {"name": self.name, "namespace": self.namespace, "annotations": annotations},
        });
        if !spec.is_null() {
            object["spec"] = spec.clone();
        }
        let params = PostParams {
            dry_run,
            ..PostParams::default()
        };
        let object = serde_json::from_value(object)?;
        self.api(client).create(&params, &object).await?;
        Ok(())
    }

    pub async fn delete(&self, client: &Client) -> Result<()> {
        let api = self.api(client);
        let done = api.delete(&self.name, &DeleteParams::default()).await;
        done.with_context(|| format!("delete {} {}", self.kind, self.name))?;
        Ok(())
    }

    async fn merge(&self, client: &Client, patch: Value) -> Result<()> {
        let done = merge(&self.api(client), &self.name, patch).await;
        done.with_context(|| self.kind)?;
        Ok(())
    }

    async fn annotate(&self, client: &Client, key: &str, value: impl Into<Value>) -> Result<()> {
        let patch = json!({"metadata": {"annotations": {key: value.into()}}});
        self.merge(client, patch).await
    }
}

impl World {
    fn thing(&self, group: &'static str, version: &'static str, kind: &'static str) -> Thing {
        Thing {
            group,
            version,
            kind,
            namespace: self.namespace().to_owned(),
            name: CLUSTER.to_owned(),
        }
    }

    fn pool_object(&self) -> Thing {
        Thing {
            name: POOL.to_owned(),
            ..self.thing("agent-forge.containeroo.ch", "v1alpha1", "VsphereAgentPool")
        }
    }

    fn vsphere_agent(&self, name: &str) -> Thing {
        Thing {
            name: name.to_owned(),
            ..self.thing("agent-forge.containeroo.ch", "v1alpha1", "VsphereAgent")
        }
    }
}

impl World {
    /// Waits until this condition of the only VsphereAgent names the source.
    async fn until_said(&self, type_: &str, by: &str) -> Result<()> {
        self.until(&format!("{type_} by {by}"), async || {
            let all = self.all_children().await?;
            Ok(all.iter().any(|child| {
                let status = child.status.as_ref();
                let said = status.and_then(|s| find_condition(&s.conditions, type_));
                said.is_some_and(|c| c.status == "True" && c.message.contains(by))
            }))
        })
        .await
    }

    async fn only_record(&self) -> Result<Thing> {
        Ok(self.vsphere_agent(&self.only_child().await?.name_any()))
    }
}

/// Cluster, NodePool and HostedCluster of the pool.
pub async fn above(world: &World) -> Result<[Thing; 3]> {
    let cluster = Thing {
        namespace: world.cluster.control_plane_namespace.clone(),
        ..world.thing("cluster.x-k8s.io", "v1beta2", "Cluster")
    };
    let node_pool = Thing {
        name: POOL.to_owned(),
        ..world.thing("hypershift.openshift.io", "v1beta1", "NodePool")
    };
    let hosted = world.thing("hypershift.openshift.io", "v1beta1", "HostedCluster");
    let services: Vec<Value> = ["APIServer", "OAuthServer", "Konnectivity", "Ignition"]
        .into_iter()
        .map(|s| json!({"service": s, "servicePublishingStrategy": {"type": "LoadBalancer"}}))
        .collect();
    let release = json!({"image": "quay.io/example/release:1"});
    let specs = [
        json!({"paused": false}),
        json!({"clusterName": "demo", "release": release, "platform": {"type": "Agent", "agent": {}},
            "management": {"upgradeType": "Replace"}, "replicas": 1}),
        json!({"release": release, "pullSecret": {"name": "pull"}, "services": services,
            "networking": {"clusterNetwork": [{"cidr": "10.132.0.0/14"}]},
            "platform": {"type": "Agent", "agent": {"agentNamespace": world.namespace()}}}),
    ];
    for (thing, spec) in [&cluster, &node_pool, &hosted].into_iter().zip(specs) {
        let made = thing.create(&world.client, &json!({}), &spec, false).await;
        made.with_context(|| format!("create {}", thing.kind))?;
    }
    Ok([cluster, node_pool, hosted])
}

/// The pool is paused by one source after the other, and in the end until a time.
#[tokio::test(flavor = "multi_thread")]
async fn each_source_pauses_a_pool_until_it_ends() -> Result<()> {
    let world = World::without_pool(Setup::default()).await?;
    let client = &world.client;
    let [cluster, node_pool, hosted] = above(&world).await?;
    let mut paused = agent_forge_lab::lab::manifest::pool(&world.cluster, POOL, &json!({}))?;
    let ours = (PAUSED_ANNOTATION.to_owned(), "true".to_owned());
    paused.metadata.annotations = Some([ours].into());
    let changes = Changes::mark(&world).await?;
    world
        .pools()
        .create(&PostParams::default(), &paused)
        .await?;
    let nodes = world.wanted(1).await?;
    world.until_pool_waits("Paused", "VsphereAgentPool").await?;
    let name = world.cluster.control_plane_namespace.clone();
    world
        .until("an AgentMachine with a Machine", async || {
            Ok(nodes.agent_machines().len() == 1 && nodes.machines().len() == 1)
        })
        .await?;
    let [machine, agent_machine] = [nodes.machines(), nodes.agent_machines()].map(|all| {
        let name = all.first().and_then(|o| o.metadata.name.clone());
        name.unwrap_or_default()
    });
    let machine = Thing {
        name: machine,
        namespace: name.clone(),
        ..world.thing("cluster.x-k8s.io", "v1beta2", "Machine")
    };
    let agent_machine = Thing {
        name: agent_machine,
        namespace: name,
        ..world.thing(
            "capi-provider.agent-install.openshift.io",
            "v1beta1",
            "AgentMachine",
        )
    };
    // The next source begins before the one before ends.
    cluster
        .merge(client, json!({"spec": {"paused": true}}))
        .await?;
    world
        .pool_object()
        .annotate(client, PAUSED_ANNOTATION, "yes")
        .await?;
    world
        .until_pool_waits("Paused", "spec.paused of Cluster")
        .await?;
    cluster.annotate(client, CAPI_PAUSED, "").await?;
    cluster
        .merge(client, json!({"spec": {"paused": false}}))
        .await?;
    let annotation = format!("annotation {CAPI_PAUSED} of Cluster");
    world.until_pool_waits("Paused", &annotation).await?;
    node_pool
        .merge(client, json!({"spec": {"pausedUntil": "true"}}))
        .await?;
    cluster.annotate(client, CAPI_PAUSED, Value::Null).await?;
    world
        .until_pool_waits("Paused", "spec.pausedUntil of NodePool")
        .await?;
    hosted
        .merge(client, json!({"spec": {"pausedUntil": "true"}}))
        .await?;
    // The schema takes it, and it is no time.
    let wrong = json!({"spec": {"pausedUntil": "2026-99-99T00:00:00Z"}});
    node_pool.merge(client, wrong).await?;
    world
        .until_pool_waits("Paused", "spec.pausedUntil of HostedCluster")
        .await?;
    // Nothing else changes for that AgentMachine while it is paused. The finalizer of the pool is not its own.
    changes.none(&world).await?;

    machine.annotate(client, CAPI_PAUSED, "false").await?;
    hosted
        .merge(client, json!({"spec": {"pausedUntil": null}}))
        .await?;
    world
        .until_pool_waits("Paused", &format!("Machine {}", machine.namespace))
        .await?;
    world
        .until_refused(POOL, PAUSED, "PausedUntilInvalid")
        .await?;
    ensure!(world.vms().await?.is_empty());
    agent_machine.annotate(client, CAPI_PAUSED, "no").await?;
    machine.annotate(client, CAPI_PAUSED, Value::Null).await?;
    world
        .until_pool_waits("Paused", "of the AgentMachine")
        .await?;
    ensure!(world.vms().await?.is_empty());

    // The last pause ends by itself.
    let end = Timestamp::now().checked_add(SignedDuration::from_secs(8))?;
    let end = Timestamp::from_second(end.as_second())?;
    let until = json!({"spec": {"pausedUntil": end.to_string()}});
    node_pool.merge(client, until).await?;
    world
        .until_pool_says(POOL, PAUSED, "the end", |[status, _, message]| {
            status == "True" && message.contains(&end.to_string())
        })
        .await?;
    agent_machine
        .annotate(client, CAPI_PAUSED, Value::Null)
        .await?;
    world.running(&nodes, 1).await?;
    ensure!(Timestamp::now() >= end, "it ran before the pause ended");
    let said = world.condition(POOL, PAUSED).await?;
    ensure!(said.is_none(), "{said:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_vm_stays_as_it_is_although_its_machine_goes() -> Result<()> {
    let world = World::start(Setup::default()).await?;
    let client = &world.client;
    let nodes = world.up(1).await?;
    let (child, vm) = (world.only_record().await?, world.only_vm().await?);
    child.annotate(client, PAUSED_ANNOTATION, "true").await?;
    world.until_said(PAUSED, "VsphereAgent").await?;
    let changes = Changes::mark(&world).await?;
    nodes.scale(0);
    world.until_pool_waits("Paused", "VsphereAgent").await?;
    world.machines_left(&nodes, 0).await?;
    changes.none(&world).await?;

    // An administrator of vCenter pauses it as well, and a forced deletion does not override that.
    let pause = VmAction::SetOption("agent-forge.pause", "Yes");
    world.vcenter.act(&vm.moref, pause).await?;
    child
        .annotate(client, FORCE_DELETE_ANNOTATION, "true")
        .await?;
    world
        .children()
        .delete(&child.name, &DeleteParams::default())
        .await?;
    world
        .until_said(PAUSED, "extraConfig agent-forge.pause")
        .await?;
    let vms = world.all_vms().await?;
    ensure!(vms.len() == 1 && vms[0].is_on() == vm.is_on(), "{vms:?}");
    let released = VmAction::SetOption("agent-forge.pause", "");
    world.vcenter.act(&vm.moref, released).await?;
    world
        .until("the end of the VM", async || {
            Ok(world.vms().await?.is_empty())
        })
        .await?;
    world.settled(0).await
}

#[tokio::test(flavor = "multi_thread")]
async fn vetoes_hold_and_skip_delete_leaves_vm_and_agent() -> Result<()> {
    let world = World::start(Setup::default()).await?;
    let client = &world.client;
    let power = format!("{POWER_ON_CHECK_PREFIX}network");
    world
        .pool_object()
        .annotate(client, &power, "no VLAN")
        .await?;
    let nodes = world.wanted(1).await?;
    world
        .until_said(VETOED, "network on VsphereAgentPool")
        .await?;
    world.until_pool_waits("Vetoed", "no VLAN").await?;
    let vm = world.only_vm().await?;
    ensure!(!vm.is_on(), "{vm:?}");
    world
        .pool_object()
        .annotate(client, &power, Value::Null)
        .await?;
    world.running(&nodes, 1).await?;

    let child = world.only_record().await?;
    let [audit, backup] =
        ["audit", "backup"].map(|holder| format!("{DELETE_CHECK_PREFIX}{holder}"));
    child.annotate(client, &audit, "open").await?;
    world
        .pool_object()
        .annotate(client, &backup, "copy runs")
        .await?;
    world.until_said(VETOED, "audit on VsphereAgent").await?;
    world
        .until_said(VETOED, "backup on VsphereAgentPool")
        .await?;
    nodes.scale(0);
    world.machines_left(&nodes, 0).await?;
    world.until_pool_waits("Vetoed", "copy runs").await?;
    child
        .annotate(client, SKIP_DELETE_ANNOTATION, "true")
        .await?;
    child.annotate(client, &audit, Value::Null).await?;
    world.until_pool_waits("Vetoed", "backup").await?;
    ensure!(world.all_children().await?.len() == 1);
    world
        .pool_object()
        .annotate(client, &backup, Value::Null)
        .await?;
    world
        .until("the end of the record", async || {
            Ok(world.all_children().await?.is_empty())
        })
        .await?;
    let left = world.only_vm().await?;
    let mark = left.extra_config.get(MARKER).cloned().unwrap_or_default();
    let before = vm.extra_config.get(MARKER).cloned().unwrap_or_default();
    ensure!(mark == format!("released/{before}"), "{mark} from {before}");
    let agents = world.all_agents().await?;
    ensure!(agents.len() == 1, "{} Agents", agents.len());
    let offered = agents[0].labels();
    let open = pool_labels().keys().any(|key| offered.contains_key(key));
    ensure!(!open, "not fenced: {offered:?}");
    Ok(())
}

/// A client with this user's rights.
async fn client_of(world: &World, account: &str, rules: Value) -> Result<Client> {
    let access = world
        .lab
        .kubeconfig_with(world.namespace(), account, &rules)
        .await?;
    access.client().await
}

#[tokio::test(flavor = "multi_thread")]
async fn only_who_may_changes_vetoes_and_grants() -> Result<()> {
    let world = World::start(Setup::own_lab()).await?;
    let admin = &world.client;
    for object in rendered("admission").await? {
        apply(admin, &object).await?;
    }
    let edit = json!({"apiGroups": ["agent-forge.containeroo.ch"],
        "resources": ["vsphereagentpools", "vsphereagents"], "verbs": ["get", "create", "patch"]});
    let secrets = json!({"apiGroups": [""], "verbs": ["get", "create", "patch", "update"],
        "resources": ["secrets", "namespaces", "namespaces/status", "namespaces/finalize"]});
    let vetoes = json!({"apiGroups": ["agent-forge.containeroo.ch"],
        "resources": ["vsphereagents/vetoes"], "verbs": ["update"]});
    let grants = json!({"apiGroups": [""], "verbs": ["update"],
        "resources": ["secrets/allow-pools", "namespaces/allow-pools"]});
    let editor = client_of(&world, "editor", json!([edit, secrets])).await?;
    let holder = client_of(&world, "holder", json!([edit, secrets, vetoes, grants])).await?;
    let secret = Thing {
        name: agent_forge_lab::lab::manifest::CREDENTIALS.to_owned(),
        ..world.thing("", "v1", "Secret")
    };
    let namespace = Thing {
        name: world.namespace().to_owned(),
        ..world.thing("", "v1", "Namespace")
    };
    // One of no pool: the operator leaves it alone.
    let agent = world.vsphere_agent("guarded");
    let spec = json!({"poolRef": {"name": "none"}});
    agent.create(admin, &json!({}), &spec, false).await?;
    let delete = format!("{DELETE_CHECK_PREFIX}audit");
    let power_on = format!("{POWER_ON_CHECK_PREFIX}audit");
    let guarded = [
        (world.pool_object(), delete.as_str()),
        (world.pool_object(), power_on.as_str()),
        (agent, delete.as_str()),
        (secret, ALLOW_POOLS_FROM_ANNOTATION),
        (namespace, ALLOW_POOLS_FROM_ANNOTATION),
    ];
    for (object, key) in &guarded {
        // The policy takes effect a moment after it is accepted. A write that changes nothing is never refused.
        let mut tries = 0;
        world
            .until(&format!("the refusal of {key}"), async || {
                tries += 1;
                let value = format!("try {tries}");
                let refused = object.annotate(&editor, key, value).await.err();
                let said = refused.map(|e| format!("{e:#}")).unwrap_or_default();
                Ok(said.contains("changed only by who may update"))
            })
            .await?;
        object.annotate(admin, key, Value::Null).await?;
        object.annotate(&holder, key, "why").await?;
        for value in [json!("other"), Value::Null] {
            let refused = object.annotate(&editor, key, value).await;
            ensure!(refused.is_err(), "{key}");
        }
        // Everything else stays open.
        object.annotate(&editor, "example.com/note", "mine").await?;
        object.annotate(&holder, key, Value::Null).await?;
    }
    // A write of a subresource is a write of the annotations, too.
    for (client, may) in [(&editor, false), (&holder, true)] {
        let api: Api<Namespace> = Api::all(client.clone());
        let mut object = api.get(world.namespace()).await?;
        let grant = json!({"metadata": {"annotations": {ALLOW_POOLS_FROM_ANNOTATION: "*"}}});
        let patch = Patch::Merge(grant);
        let done = api
            .patch_status(world.namespace(), &PatchParams::default(), &patch)
            .await;
        ensure!(done.is_ok() == may, "status: {done:?}");
        if let Ok(written) = done {
            object = written;
        }
        let other = (ALLOW_POOLS_FROM_ANNOTATION.to_owned(), "other".to_owned());
        object.annotations_mut().extend([other]);
        let params = PostParams::default();
        let done = api
            .replace_subresource("finalize", world.namespace(), &params, &object)
            .await;
        ensure!(done.is_ok() == may, "finalize: {done:?}");
    }
    let namespace = &guarded[4].0;
    namespace
        .annotate(&holder, ALLOW_POOLS_FROM_ANNOTATION, Value::Null)
        .await?;
    // Neither is there an object that has it from its beginning.
    let made = world.vsphere_agent("made");
    for (client, key, may) in [
        (&editor, delete.as_str(), false),
        (&editor, power_on.as_str(), false),
        (&editor, "example.com/note", true),
        (&holder, delete.as_str(), true),
    ] {
        let done = made.create(client, &json!({key: "why"}), &spec, true).await;
        ensure!(done.is_ok() == may, "{key}: {done:?}");
    }
    let grant = json!({ALLOW_POOLS_FROM_ANNOTATION: "*"});
    let open = Thing {
        name: "open".to_owned(),
        ..world.thing("", "v1", "Secret")
    };
    for (client, may) in [(&editor, false), (&holder, true)] {
        let done = open.create(client, &grant, &Value::Null, true).await;
        ensure!(done.is_ok() == may, "a Secret: {done:?}");
    }
    Ok(())
}
