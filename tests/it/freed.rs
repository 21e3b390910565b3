//! Hosts that are given back: all of a hosted cluster that is deleted with its NodePool, and one that another
//! AgentMachine waits for.

use agent_forge_crds::conditions::{READY, Reason};
use agent_forge_lab::lab::{apply::apply, manifest::namespace};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, api::DeleteParams};
use serde_json::json;

use crate::{
    holds::above,
    witness::Witness,
    world::{POOL, Setup, World},
};

async fn ready(world: &World, hosts: i32) -> Result<()> {
    let are = async || Ok(world.ready_in_buffer().await? == hosts);
    world.until(&format!("{hosts} ready hosts"), are).await
}

/// Three hosts serve a hosted cluster that goes in HyperShift's order: the NodePool and its Machines, the Cluster, the
/// namespace of the control plane, the HostedCluster. The hosts are back in the buffer afterwards.
async fn of_a_hosted_cluster_that_went(setup: Setup) -> Result<World> {
    let world = World::start(setup).await?;
    let [cluster, node_pool, hosted] = above(&world).await?;
    let nodes = world.up(3).await?;
    let before = world.morefs().await?;
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
    let after = world.morefs().await?;
    ensure!(before == after, "{before:?} became {after:?}");
    ensure!(world.all_agents().await?.len() == 3, "an Agent was lost");
    world.pools().delete(POOL, &DeleteParams::default()).await?;
    Ok(world)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_hosted_cluster_gives_its_hosts_back_and_the_pool_takes_them_along() -> Result<()>
{
    let setup = Setup {
        own_lab: true,
        ..Setup::recycling()
    };
    of_a_hosted_cluster_that_went(setup).await?.settled(0).await
}

/// The operator serves some namespaces by Roles in them. That of the control plane takes its Role along.
#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_took_its_role_along_holds_hosts_with_a_reason_until_it_is_back()
-> Result<()> {
    let setup = Setup::recycling();
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
    let world = World::start(Setup {
        pool_patch: json!({"release": {"policy": "Recycle"}, "scaling": {"maxVMs": 1}}),
        ..Setup::recycling()
    })
    .await?;
    let witness = Witness::start(world.sight());
    let nodes = world.up(1).await?;
    let before = world.morefs().await?;
    let first = nodes.running().pop().context("a Machine")?;
    nodes.scale(2);
    world.until_pool_waits("CreateCapReached", "").await?;
    nodes.prefer_for_deletion(&first).await?;
    nodes.scale(1);
    world.running(&nodes, 1).await?;
    let second = nodes.running().pop().context("a Machine")?;
    ensure!(second != first, "the Machine was not exchanged");
    let after = world.morefs().await?;
    ensure!(before == after, "{before:?} became {after:?}");
    nodes.scale(0);
    ready(&world, 1).await?;
    witness.verdict()
}
