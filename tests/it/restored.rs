//! A hub is lost and restored from its objects: each has its status, and another uid.

use std::collections::BTreeMap;

use agent_forge_lab::{
    lab::apply::api_of,
    played::{PlayedOptions, Upstream},
    tools::kubectl,
};
use anyhow::{Context as _, Result, ensure};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use tokio::process::Command;

use crate::{
    cli::command,
    world::{Setup, World},
};

/// What is saved, in the order in which it is restored: owners first.
const SAVED: [(&str, &str); 8] = [
    ("agent-install.openshift.io/v1beta1", "InfraEnv"),
    ("agent-install.openshift.io/v1beta1", "Agent"),
    (
        "capi-provider.agent-install.openshift.io/v1beta1",
        "AgentMachineTemplate",
    ),
    ("cluster.x-k8s.io/v1beta2", "MachineSet"),
    ("cluster.x-k8s.io/v1beta2", "Machine"),
    (
        "capi-provider.agent-install.openshift.io/v1beta1",
        "AgentMachine",
    ),
    ("agent-forge.containeroo.ch/v1alpha1", "VsphereAgentPool"),
    ("agent-forge.containeroo.ch/v1alpha1", "VsphereAgent"),
];

/// How many machines serve.
const MACHINES: usize = 10;

/// All objects of these kinds, as a backup has them.
async fn saved(world: &World) -> Result<Vec<DynamicObject>> {
    let mut all = Vec::new();
    for (api_version, kind) in SAVED {
        let any = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "any"}});
        let api = all_of(world, &any).await?;
        for mut object in api.list(&ListParams::default()).await.context(kind)? {
            object.types = Some(kube::core::TypeMeta {
                api_version: api_version.to_owned(),
                kind: kind.to_owned(),
            });
            all.push(object);
        }
    }
    Ok(all)
}

/// All objects of the kind of `object`, in all namespaces.
async fn all_of(world: &World, object: &Value) -> Result<Api<DynamicObject>> {
    let api_version = object["apiVersion"].as_str().context("a version")?;
    let (group, version) = api_version.split_once('/').context("a group")?;
    let kind = object["kind"].as_str().context("a kind")?;
    let of_kind = kube::core::GroupVersionKind::gvk(group, version, kind);
    let (resource, _) = kube::discovery::pinned_kind(&world.client, &of_kind).await?;
    Ok(Api::all_with(world.client.clone(), &resource))
}

/// The hub is lost: its objects go at once, and no controller sees to that.
async fn lose(world: &World, objects: &[DynamicObject]) -> Result<()> {
    for object in objects.iter().rev() {
        let api = api_of(&world.client, &serde_json::to_value(object)?).await?;
        let name = object.name_any();
        let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        api.patch(&name, &PatchParams::default(), &free).await?;
        api.delete(&name, &DeleteParams::default()).await?;
    }
    ensure!(saved(world).await?.is_empty(), "something is left");
    Ok(())
}

/// Each object comes back with its status. References to owners lead to the owners' new uids, as Cluster API mends them.
async fn restore(world: &World, objects: &[DynamicObject]) -> Result<()> {
    let mut uids = BTreeMap::new();
    for object in objects {
        let mut value = serde_json::to_value(object)?;
        let status = value
            .as_object_mut()
            .and_then(|fields| fields.remove("status"));
        let metadata = value["metadata"].as_object_mut().context("metadata")?;
        for own in [
            "uid",
            "resourceVersion",
            "creationTimestamp",
            "generation",
            "managedFields",
        ] {
            metadata.remove(own);
        }
        for owner in metadata
            .get_mut("ownerReferences")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            let old = owner["uid"].as_str().context("a uid")?;
            let new: &String = uids
                .get(old)
                .with_context(|| format!("the owner of {}", object.name_any()))?;
            owner["uid"] = new.as_str().into();
        }
        let api = api_of(&world.client, &value).await?;
        let made = api
            .create(&PostParams::default(), &serde_json::from_value(value)?)
            .await;
        let made = made.with_context(|| format!("create {}", object.name_any()))?;
        uids.insert(
            object.uid().unwrap_or_default(),
            made.uid().unwrap_or_default(),
        );
        if let Some(status) = status {
            let status = Patch::Merge(json!({"status": status}));
            api.patch_status(&object.name_any(), &PatchParams::default(), &status)
                .await?;
        }
    }
    Ok(())
}

/// Runs the lines that `agent-forge orphans` prints for VMs of restored records.
async fn linked(world: &World) -> Result<()> {
    let found = command(world, &["orphans", "-o", "json"]).await?;
    let report = found.json()?;
    let all = report["orphans"].as_array().context("orphans")?;
    ensure!(all.len() == MACHINES, "{report}");
    for orphan in all {
        let line = orphan["link"]
            .as_str()
            .with_context(|| report.to_string())?;
        let words = line.strip_prefix("kubectl ").context(line.to_owned())?;
        let done = Command::new(kubectl()?)
            .args(words.split(' '))
            .env("KUBECONFIG", world.lab.kubeconfig_admin_path())
            .output()
            .await?;
        ensure!(
            done.status.success(),
            "{line}: {}",
            String::from_utf8_lossy(&done.stderr)
        );
    }
    let none = command(world, &["orphans"]).await?;
    ensure!(none.code == 0, "{}", none.said());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hub_that_is_restored_with_new_uids_goes_on_and_removes_one_host_for_one_machine()
-> Result<()> {
    let mut world = World::start(Setup::own_lab()).await?;
    let mut nodes = world.up(MACHINES).await?;
    world.settled(MACHINES).await?;
    let before = world.all_vms().await?;
    world.stop_operator().await?;
    nodes.retire();
    world.upstream.retire();
    let objects = saved(&world).await?;
    let calls = world.mutations().await?;
    lose(&world, &objects).await?;
    restore(&world, &objects).await?;
    let played = PlayedOptions {
        clusters: vec![world.cluster.clone()],
        delays: world.setup.delays.clone(),
        image: world.setup.image.clone(),
    };
    let images = world.upstream.images.clone();
    let vcenter = world.process.admin()?;
    world.upstream = Upstream::start_with(&world.client, Some(vcenter), images, played).await?;
    world.start_operator().await?;
    let nodes = world.up(MACHINES).await?;
    linked(&world).await?;
    world
        .until("new uids in each record", async || {
            let (children, machines) = (world.all_children().await?, nodes.agent_machines());
            let uids: Vec<_> = machines.iter().filter_map(|am| am.uid()).collect();
            let linked = children.iter().filter(|child| {
                let goal = child
                    .spec
                    .goal
                    .as_ref()
                    .and_then(|goal| goal.agent_machine.as_ref());
                goal.is_some_and(|am| uids.contains(&am.uid))
            });
            Ok(linked.count() == MACHINES)
        })
        .await?;
    world.each_serves_its_own().await?;
    // No VM was switched, made, changed or removed. The ISO is another one: its InfraEnv has a new uid.
    let of_vms = |calls: &BTreeMap<String, u64>| -> BTreeMap<String, u64> {
        let of_vm =
            |(call, _): &(&String, &u64)| call.contains("VM_Task") || call.starts_with("Destroy");
        calls
            .iter()
            .filter(of_vm)
            .map(|(call, count)| (call.clone(), *count))
            .collect()
    };
    let after = world.mutations().await?;
    ensure!(
        of_vms(&after) == of_vms(&calls),
        "{calls:?}, then {after:?}"
    );
    ensure!(of_vms(&calls).len() == 3, "{calls:?}");
    nodes.scale(MACHINES - 1);
    world.running(&nodes, MACHINES - 1).await?;
    world.settled(MACHINES - 1).await?;
    world.each_serves_its_own().await?;
    let left = world.vms().await?;
    let gone: Vec<_> = before
        .iter()
        .filter(|vm| !left.contains(&vm.name))
        .collect();
    ensure!(gone.len() == 1, "{gone:?}");
    Ok(())
}
