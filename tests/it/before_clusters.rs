//! Hosts that exist before clusters ask for them: a pool without a NodePool, pools of two namespaces that take its hosts, and hosts
//! that people move, under kills, on the real API server and the simulated vCenter.

use std::collections::BTreeSet;

use agent_forge_actors::domain::{goal, names::ObjectKey};
use agent_forge_crds::{agent::VsphereAgent, names::ALLOW_POOLS_FROM_ANNOTATION};
use agent_forge_lab::{
    lab::{
        apply::apply,
        manifest::{CREDENTIALS, namespace},
    },
    played::capi::HostedClusterPlay,
};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::{
    cli::{Shown, command},
    look::merge,
    shared::kill,
    witness::Witness,
    world::{POOL, Setup, World},
};

/// Namespace and name of the pool that takes large hosts.
const TEAM: &str = "team";
/// The pool without a NodePool.
const HOSTS: &str = "hosts";
/// Hosts of each class that wait.
const SMALL: usize = 6;
const LARGE: usize = 4;

fn group() -> Value {
    json!({"group": "lab-a"})
}

/// It keeps hosts of two sizes.
fn keeper() -> Value {
    json!({
        "nodePoolRef": null, "hostedClusterRef": null, "controlPlaneNamespace": null,
        "vsphere": {"folder": "hosts"},
        "classes": [{"name": "large", "template": {"numCPUs": 16}, "labels": {"size": "large"}, "bufferAgents": LARGE}],
        "scaling": {"bufferAgents": SMALL, "bufferMax": 12, "maxVMs": 20},
        "release": {"policy": "Recycle"},
        "reassign": group(),
    })
}

/// A pool of the other namespace that wants large hosts.
async fn team(world: &World) -> Result<()> {
    apply(&world.client, &namespace(TEAM)).await?;
    world.admit(world.namespace(), json!(TEAM)).await?;
    world.admit(TEAM, json!(world.namespace())).await?;
    let grant = json!({"metadata": {"annotations": {ALLOW_POOLS_FROM_ANNOTATION: TEAM}}});
    let secrets = Api::<Secret>::namespaced(world.client.clone(), world.namespace());
    merge(&secrets, CREDENTIALS, grant).await?;
    let patch = json!({
        "infraEnvRef": {"namespace": world.namespace()},
        "vsphere": {"credentialsSecretRef": {"name": CREDENTIALS, "namespace": world.namespace()}},
        "template": {"numCPUs": 16},
        "release": {"policy": "Recycle"},
        "scaling": {"bufferMax": 0},
        "reassign": group(),
    });
    world.create_pool_in(TEAM, TEAM, &patch).await
}

/// The hosts that a pool uses.
async fn hosts_of(world: &World, pool: &ObjectKey) -> Result<Vec<VsphereAgent>> {
    let mut all = world.all_children().await?;
    all.retain(|c| goal::user(c) == *pool);
    Ok(all)
}

/// How many hosts wait in the buffer of the pool without a NodePool, small and large.
async fn waiting(world: &World) -> Result<(i32, i32)> {
    let status = world.pools().get(HOSTS).await?.status.unwrap_or_default();
    let buffer = status.buffer.unwrap_or_default();
    let large = buffer.classes.iter().map(|class| class.ready).sum();
    Ok((buffer.ready - large, large))
}

async fn until_waiting(world: &World, small: usize, large: usize) -> Result<()> {
    let wanted = (i32::try_from(small)?, i32::try_from(large)?);
    let what = format!("{small} small and {large} large hosts that wait");
    world
        .until(&what, async || Ok(waiting(world).await? == wanted))
        .await
}

/// Each host has one VM, and each VM one host.
async fn each_host_once(world: &World) -> Result<()> {
    let children = world.all_children().await?;
    let vms = children.iter().filter_map(|c| {
        let vm = c.status.as_ref()?.vm.as_ref()?;
        vm.moref.clone()
    });
    let vms: Vec<String> = vms.collect();
    let distinct: BTreeSet<&String> = vms.iter().collect();
    ensure!(
        distinct.len() == vms.len(),
        "a VM with two records: {vms:?}"
    );
    Ok(())
}

/// A NodePool as HyperShift has it. Only the command reads it: the played controllers have a number of their own.
async fn node_pool(world: &World, name: &str, scale: Value) -> Result<()> {
    let mut spec = json!({
        "clusterName": "demo", "release": {"image": "registry.example.com/release:4.20"},
        "platform": {"type": "Agent", "agent": {}}, "management": {"upgradeType": "Replace"},
    });
    for (key, value) in scale.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    let object = json!({
        "apiVersion": "hypershift.openshift.io/v1beta1", "kind": "NodePool",
        "metadata": {"name": name, "namespace": world.namespace()}, "spec": spec,
    });
    apply(&world.client, &object).await?;
    Ok(())
}

/// Runs `agent-forge move` as an administrator of the hub.
async fn moves(world: &World, asked: &[&str]) -> Result<Shown> {
    let admin = world.lab.kubeconfig_admin_path();
    let admin = admin.to_str().context("a path")?;
    command(
        world,
        &[&["move"], asked, &["--kubeconfig", admin]].concat(),
    )
    .await
}

/// Gives a host that serves to the pool without a NodePool: a person runs the command, and Cluster API deletes the Machine.
async fn give_back(
    world: &World,
    pool: &ObjectKey,
    nodes: &HostedClusterPlay,
    left: usize,
) -> Result<()> {
    node_pool(world, &pool.name, json!({"replicas": left + 1})).await?;
    let hosts = hosts_of(world, pool).await?;
    let host = hosts.first().context("a host")?;
    let (name, to) = (host.name_any(), format!("{}/{HOSTS}", world.namespace()));
    let preview = [name.as_str(), "--to", &to];
    let shown = moves(world, &preview).await?;
    ensure!(
        shown.code == 0 && shown.text.contains("open: set spec.replicas"),
        "{}",
        shown.said()
    );
    let apply = [name.as_str(), "--to", &to, "--apply"];
    let done = moves(world, &apply).await?;
    ensure!(
        done.code == 0 && !done.text.contains("open:"),
        "{}",
        done.said()
    );
    // A second person, or the same after a crash: the replicas are lowered once.
    let again = moves(world, &apply).await?;
    ensure!(
        again.code == 0 && !again.text.contains("open:"),
        "{}",
        again.said()
    );
    let elsewhere = moves(world, &[&name, "--to", &pool.to_string()]).await?;
    ensure!(
        elsewhere.code == 1 && elsewhere.text.contains("has the host"),
        "{}",
        elsewhere.said()
    );
    nodes.scale(left);
    for which in ["pool/", "vm/"] {
        kill(world, which, true).await?;
    }
    let vm = |c: &VsphereAgent| c.status.as_ref()?.vm.as_ref()?.moref.clone();
    let before = vm(host);
    let home = ObjectKey::new(world.namespace(), HOSTS);
    world
        .until("the host in its old pool", async || {
            let now = world.children().get(&name).await?;
            Ok(goal::user(&now) == home && goal::maker(&now) == home && vm(&now) == before)
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_hosts_of_two_sizes_are_taken_moved_and_given_back_under_kills() -> Result<()> {
    let takes = json!({
        "reassign": group(), "release": {"policy": "Recycle"}, "scaling": {"bufferMax": 0},
    });
    let world = World::start(Setup {
        pool_patch: takes,
        ..Setup::own_lab()
    })
    .await?;
    let witness = Witness::start(world.sight());
    world.create_pool(HOSTS, &keeper()).await?;
    team(&world).await?;
    until_waiting(&world, SMALL, LARGE).await?;

    let own = world.node_pool().await?;
    let theirs = world.node_pool_named(TEAM).await?;
    own.scale(SMALL);
    theirs.scale(LARGE);
    for which in ["pool/", "vm/", "sessions", "placement"] {
        kill(&world, which, true).await?;
    }
    world.running(&own, SMALL).await?;
    world.running(&theirs, LARGE).await?;
    until_waiting(&world, SMALL, LARGE).await?;
    each_host_once(&world).await?;
    let (here, there) = (
        ObjectKey::new(world.namespace(), POOL),
        ObjectKey::new(TEAM, TEAM),
    );
    let large = hosts_of(&world, &there).await?;
    let sized = |c: &VsphereAgent| {
        let vm = c.status.as_ref().and_then(|s| s.vm.as_ref());
        vm.and_then(|vm| vm.template.as_ref()?.num_cpus)
    };
    ensure!(
        large.len() == LARGE && large.iter().all(|c| sized(c) == Some(16)),
        "{large:?}"
    );
    ensure!(world.all_vms().await?.len() == 2 * (SMALL + LARGE));

    give_back(&world, &here, &own, SMALL - 1).await?;
    give_back(&world, &there, &theirs, LARGE - 1).await?;
    until_waiting(&world, SMALL + 1, LARGE + 1).await?;
    each_host_once(&world).await?;
    world.running(&own, SMALL - 1).await?;
    world.running(&theirs, LARGE - 1).await?;

    own.scale(0);
    theirs.scale(0);
    kill(&world, "vm/", true).await?;
    world.machines_left(&own, 0).await?;
    world.machines_left(&theirs, 0).await?;
    world.settled(SMALL + LARGE + 2).await?;
    each_host_once(&world).await?;
    witness.verdict()
}

/// What `agent-forge move` refuses, and that it changes nothing then.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_cannot_move_is_refused_with_the_reason() -> Result<()> {
    let world = World::start(Setup::pool(json!({"reassign": group()}))).await?;
    world.up(1).await?;
    world.create_pool(HOSTS, &keeper()).await?;
    world.create_pool("other", &json!({})).await?;
    let host = world.children().list(&Default::default()).await?.items;
    let serves = |c: &&VsphereAgent| c.spec.pool_ref.name == POOL;
    let name = host.iter().find(serves).context("a host")?.name_any();
    let refused = async |to: &str| -> Result<String> {
        let shown = moves(&world, &[&name, "--to", to, "--apply"]).await?;
        ensure!(shown.code == 1, "{}", shown.said());
        Ok(shown.text)
    };
    node_pool(&world, POOL, json!({"replicas": 1})).await?;
    let said = refused(HOSTS).await?;
    ensure!(said.contains("does not recycle"), "{said}");
    let said = refused("other").await?;
    ensure!(said.contains("another group"), "{said}");
    world
        .patch_pool(POOL, &json!({"release": {"policy": "Recycle"}}))
        .await?;
    let scale = json!({"replicas": null, "autoScaling": {"min": 1, "max": 3}});
    node_pool(&world, POOL, scale).await?;
    let said = refused(HOSTS).await?;
    ensure!(said.contains("the autoscaler sets the replicas"), "{said}");
    let unknown = moves(&world, &[&name, "--to", "nowhere"]).await?;
    ensure!(
        unknown.code == 2 && unknown.said().contains("no VsphereAgentPool"),
        "{}",
        unknown.said()
    );
    let child = world.children().get(&name).await?;
    ensure!(
        !child.annotations().keys().any(|k| k.contains("move-")),
        "{:?}",
        child.annotations()
    );
    Ok(())
}
