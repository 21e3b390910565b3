//! Hosts that are given back: all of a NodePool or of a hosted cluster that is deleted, and one that another AgentMachine
//! waits for.

use std::{collections::BTreeSet, time::Duration};

use agent_forge_crds::conditions::{READY, Reason};
use agent_forge_lab::{
    lab::{apply::apply, manifest::namespace},
    played::Delays,
};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, api::DeleteParams};
use serde_json::{Value, json};

use crate::{
    holds::above,
    witness::Witness,
    world::{POOL, Setup, World},
};

fn releasing(patch: Value) -> Setup {
    Setup {
        pool_patch: patch,
        // A guest needs tens of seconds to report. The operator sees it come back by that.
        delays: Delays {
            inventory: Duration::from_secs(3),
            ..Delays::fast()
        },
        ..Setup::default()
    }
}

async fn morefs(world: &World) -> Result<BTreeSet<String>> {
    let vms = world.all_vms().await?;
    Ok(vms.into_iter().map(|vm| vm.moref).collect())
}

async fn ready(world: &World, hosts: i32) -> Result<()> {
    let are = async || Ok(world.ready_in_buffer().await? == hosts);
    world.until(&format!("{hosts} ready hosts"), are).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_node_pool_gives_its_hosts_back_and_the_pool_takes_them_along() -> Result<()> {
    let world = World::start(releasing(json!({"release": {"policy": "Recycle"}}))).await?;
    let witness = Witness::start(world.sight());
    let nodes = world.node_pool().await?;
    nodes.scale(5);
    world.running(&nodes, 5).await?;
    let before = morefs(&world).await?;
    nodes.delete_node_pool().await?;
    world.machines_left(&nodes, 0).await?;
    ready(&world, 5).await?;
    let after = morefs(&world).await?;
    ensure!(before == after, "{before:?} became {after:?}");
    ensure!(world.all_agents().await?.len() == 5, "an Agent was lost");
    world.pools().delete(POOL, &DeleteParams::default()).await?;
    world.settled(0).await?;
    witness.verdict()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_node_pool_leaves_nothing_where_hosts_are_deleted() -> Result<()> {
    let world = World::start(releasing(json!({"release": {"policy": "Delete"}}))).await?;
    let witness = Witness::start(world.sight());
    let nodes = world.node_pool().await?;
    nodes.scale(5);
    world.running(&nodes, 5).await?;
    nodes.delete_node_pool().await?;
    world.settled(0).await?;
    witness.verdict()
}

/// Three hosts serve a hosted cluster that goes in HyperShift's order: the NodePool and its Machines, the Cluster, the
/// namespace of the control plane, the HostedCluster. The hosts are back in the buffer afterwards.
async fn of_a_hosted_cluster_that_went(setup: Setup) -> Result<World> {
    let world = World::start(setup).await?;
    let [cluster, node_pool, hosted] = above(&world).await?;
    let nodes = world.node_pool().await?;
    nodes.scale(3);
    world.running(&nodes, 3).await?;
    let before = morefs(&world).await?;
    nodes.delete_node_pool().await?;
    world.machines_left(&nodes, 0).await?;
    node_pool.delete(&world.client).await?;
    cluster.delete(&world.client).await?;
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    let control_plane = &world.cluster.control_plane_namespace;
    namespaces
        .delete(control_plane, &DeleteParams::default())
        .await?;
    world
        .until("no namespace of the control plane", async || {
            Ok(namespaces.get_metadata_opt(control_plane).await?.is_none())
        })
        .await?;
    hosted.delete(&world.client).await?;
    ready(&world, 3).await?;
    let after = morefs(&world).await?;
    ensure!(before == after, "{before:?} became {after:?}");
    world.pools().delete(POOL, &DeleteParams::default()).await?;
    Ok(world)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_hosted_cluster_gives_its_hosts_back_and_the_pool_takes_them_along() -> Result<()>
{
    let setup = Setup {
        own_lab: true,
        ..releasing(json!({"release": {"policy": "Recycle"}}))
    };
    of_a_hosted_cluster_that_went(setup).await?.settled(0).await
}

/// The operator serves some namespaces by Roles in them. That of the control plane takes its Role along.
#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_took_its_role_along_holds_hosts_with_a_reason_until_it_is_back()
-> Result<()> {
    let setup = releasing(json!({"release": {"policy": "Recycle"}}));
    let world = of_a_hosted_cluster_that_went(setup).await?;
    let control_plane = world.cluster.control_plane_namespace.as_str();
    let told = world
        .until_refused(POOL, READY, Reason::Forbidden.as_str())
        .await?;
    ensure!(told.contains(control_plane), "{told}");
    ensure!(
        world.vms().await?.len() == 3,
        "a hold that nobody could read was passed"
    );
    apply(&world.client, &namespace(control_plane)).await?;
    let [own, operator] = [world.namespace(), world.operator_namespace()];
    world
        .lab
        .kubeconfig_for_namespaces(operator, own, &[control_plane.to_owned()])
        .await?;
    world.settled(0).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_freed_host_goes_to_the_agent_machine_that_waits() -> Result<()> {
    let world = World::start(releasing(json!({
        "release": {"policy": "Recycle"},
        "scaling": {"maxVMs": 1},
    })))
    .await?;
    let witness = Witness::start(world.sight());
    let nodes = world.node_pool().await?;
    nodes.scale(1);
    world.running(&nodes, 1).await?;
    let before = morefs(&world).await?;
    let first = nodes.running().pop().context("a Machine")?;
    nodes.scale(2);
    let capped = async || {
        let waits = world.waiting_on().await?;
        Ok(waits.values().any(|reason| reason == "CreateCapReached"))
    };
    world.until("an AgentMachine that waits", capped).await?;
    nodes.prefer_for_deletion(&first).await?;
    nodes.scale(1);
    world.running(&nodes, 1).await?;
    let second = nodes.running().pop().context("a Machine")?;
    ensure!(second != first, "the Machine was not exchanged");
    let after = morefs(&world).await?;
    ensure!(before == after, "{before:?} became {after:?}");
    nodes.scale(0);
    ready(&world, 1).await?;
    witness.verdict()
}
