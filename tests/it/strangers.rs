//! Objects of other owners that upstream never writes like this, or only for a moment. None of them may stop the work
//! for the others.

use agent_forge_lab::{
    lab::apply::{api_of, apply},
    played::foreign,
};
use anyhow::{Result, ensure};
use kube::{Api, ResourceExt, core::DynamicObject};
use serde_json::{Value, json};

use crate::{
    look::merge_status,
    shared::PROMPT,
    witness::Witness,
    world::{POOL, Setup, World, pool_labels},
};

/// An Agent with the pool's labels, this status, and nothing else.
fn agent(namespace: &str, name: &str, status: Value) -> Value {
    let mut object = json!({
        "apiVersion": "agent-install.openshift.io/v1beta1", "kind": "Agent",
        "metadata": {"name": name, "namespace": namespace, "labels": pool_labels()},
        "spec": {"approved": false, "role": ""},
    });
    if !status.is_null() {
        object["status"] = status;
    }
    object
}

fn serial(text: &str) -> Value {
    json!({"inventory": {"systemVendor": {"manufacturer": "VMware, Inc.", "serialNumber": text}}})
}

fn agents(namespace: &str) -> Vec<Value> {
    let nic = |mac: &str| json!({"macAddress": mac, "flags": [], "ipV4Addresses": [], "ipV6Addresses": []});
    let condition = |type_: &str, status: &str| {
        json!({
            "type": type_, "status": status, "reason": "", "message": "",
            "lastTransitionTime": "1970-01-01T00:00:00Z",
        })
    };
    let cases = [
        ("without-status", Value::Null),
        ("empty-status", json!({})),
        ("empty-inventory", json!({"inventory": {}})),
        ("empty-conditions", json!({"conditions": []})),
        ("no-serial", serial("")),
        ("odd-serial", serial("VMware-42 3e zz")),
        ("short-serial", serial("VMware-")),
        (
            "long-serial",
            serial(&format!("VMware-{}", "42 ".repeat(64))),
        ),
        (
            "wide-serial",
            serial("VMware-ä ö ü 42 3e 36 c8 72 3d 2b-24 85 90 0e 11 22"),
        ),
        ("00000000-0000-0000-0000-000000000000", serial("None")),
        (
            "strange-macs",
            json!({"inventory": {
                "interfaces": [nic(""), nic("not a mac"), nic("00:00:00:00:00:00"), nic("ää:ää:ää:ää:ää:ää")],
                "systemVendor": {},
            }}),
        ),
        (
            "strange-conditions",
            json!({"conditions": [
                condition("Bound", "Maybe"), condition("Bound", "True"), condition("", "Unknown"),
                condition("Validated", "True"), condition("Connected", "True"),
            ]}),
        ),
        (
            "strange-state",
            json!({"debugInfo": {"state": "", "stateInfo": ""}}),
        ),
    ];
    cases
        .into_iter()
        .map(|(name, status)| agent(namespace, name, status))
        .collect()
}

fn agent_machines(world: &World) -> Vec<Value> {
    let namespace = &world.cluster.control_plane_namespace;
    let named = |name: &str, metadata: Value, spec: Value| {
        let mut object = json!({
            "apiVersion": "capi-provider.agent-install.openshift.io/v1beta1", "kind": "AgentMachine",
            "metadata": {"name": name, "namespace": namespace},
            "spec": spec,
        });
        for (key, value) in metadata.as_object().into_iter().flatten() {
            object["metadata"][key] = value.clone();
        }
        object
    };
    let of_pool =
        json!({"hypershift.openshift.io/nodePool": format!("{}/{POOL}", world.namespace())});
    let owner = |name: &str| {
        json!([{
            "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Machine", "name": name,
            "uid": "00000000-0000-4000-8000-000000000001",
        }])
    };
    vec![
        named("orphan", json!({}), json!({})),
        named("orphan-of-pool", json!({"annotations": of_pool}), json!({})),
        named(
            "owner-gone",
            json!({"annotations": of_pool, "finalizers": ["example.com/held"]}),
            json!({}),
        ),
        named(
            "odd-pool-name",
            json!({"annotations": {"hypershift.openshift.io/nodePool": "not/a/node/pool"}, "ownerReferences": owner("gone")}),
            json!({}),
        ),
        named(
            "odd-selector",
            json!({"annotations": of_pool, "finalizers": ["example.com/held"]}),
            json!({"agentLabelSelector": {
                "matchLabels": {"": ""},
                "matchExpressions": [
                    {"key": "customer", "operator": "In", "values": []},
                    {"key": "", "operator": "Strange"},
                ],
            }}),
        ),
    ]
}

fn infra_envs(namespace: &str) -> Vec<Value> {
    let named = |name: &str, status: Value| {
        json!({
            "apiVersion": "agent-install.openshift.io/v1beta1", "kind": "InfraEnv",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"pullSecretRef": {"name": "pull-secret"}},
            "status": status,
        })
    };
    vec![
        named("empty", json!({})),
        named("no-address", json!({"isoDownloadURL": ""})),
        named(
            "odd-address",
            json!({"isoDownloadURL": "::not an address::"}),
        ),
        named("file", json!({"isoDownloadURL": "file:///etc/passwd"})),
    ]
}

impl World {
    /// Creates `object` with its status. `None` if the CRD does not allow it, so that it cannot occur.
    async fn place(&self, object: &Value) -> Result<Option<DynamicObject>> {
        let Ok(made) = apply(&self.client, object).await else {
            return Ok(None);
        };
        let api = api_of(&self.client, object).await?;
        let Some(status) = object.get("status") else {
            return Ok(Some(made));
        };
        let patched = merge_status(&api, &made.name_any(), status.clone()).await;
        Ok(patched.ok())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_objects_of_others_are_skipped() -> Result<()> {
    let world = World::without_pool(Setup::default()).await?;
    let witness = Witness::start(world.sight());
    let theirs = &world.cluster.agent_namespace;
    let mut objects = agents(theirs);
    objects.extend(agent_machines(&world));
    objects.extend(infra_envs(theirs));
    let (mut agents, mut refused) = (Vec::new(), Vec::new());
    for object in &objects {
        match world.place(object).await? {
            Some(made) if made.types.as_ref().is_some_and(|t| t.kind == "Agent") => {
                agents.push(made.name_any());
            }
            Some(_) => {}
            None => refused.push(object["metadata"]["name"].to_string()),
        }
    }
    ensure!(
        refused.len() <= 3,
        "these cannot occur, so they prove nothing: {refused:?}"
    );
    let as_they_are = async || -> Result<Vec<Vec<u8>>> {
        let mut all = Vec::new();
        let api: Api<DynamicObject> = Api::namespaced_with(
            world.client.clone(),
            theirs,
            &agent_forge_lab::played::kinds::agent(),
        );
        for name in &agents {
            all.push(foreign::fingerprint(&api.get(name).await?)?);
        }
        Ok(all)
    };
    let before = as_they_are().await?;

    // One pool with a correct InfraEnv, and one pool for each of the others. (Empty InfraEnvs get a URL after a while.)
    world.create_pool(POOL, &json!({})).await?;
    for name in ["empty", "no-address", "odd-address", "file"] {
        let patch = json!({"infraEnvRef": {"name": name}});
        world.create_pool(&format!("of-{name}"), &patch).await?;
    }
    let nodes = world.wanted(2).await?;
    // This NodePool also has malformed AgentMachines. Only those with their own Machine count.
    let served = || nodes.running().len() == 2;
    world.until_nodes(&nodes, "two Machines", served).await?;
    ensure!(world.vms().await?.len() == 2, "{:?}", world.vms().await?);
    for name in ["odd-address", "file"] {
        world
            .until_refused(&format!("of-{name}"), "InfraEnvAvailable", "InvalidISOURL")
            .await?;
    }

    nodes.scale(0);
    world
        .until("no VM of ours", async || {
            Ok(world.vms().await?.is_empty() && world.all_children().await?.is_empty())
        })
        .await?;
    ensure!(
        as_they_are().await? == before,
        "a foreign Agent was touched"
    );
    for actor in world.actors(PROMPT).await? {
        ensure!(actor["restarts"] == 0, "an actor died: {actor}");
    }
    let log = world.operator()?.log()?;
    ensure!(!log.contains("panicked"), "a panic:\n{log}");
    witness.verdict()
}
