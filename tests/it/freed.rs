//! Hosts that a NodePool gives back: all of a NodePool that is deleted, and one that another AgentMachine waits for.

use std::{collections::BTreeSet, time::Duration};

use agent_forge_lab::played::Delays;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::{
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
    world
        .pools()
        .delete(POOL, &kube::api::DeleteParams::default())
        .await?;
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
