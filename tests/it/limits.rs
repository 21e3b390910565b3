//! Limits of a pool and of creates, on the real API server and the simulated vCenter.

use std::time::Duration;

use agent_forge_crds::conditions::CAPACITY_SATISFIED;
use agent_forge_lab::{parts::VCenterOptions, played::object::Facts as _};
use anyhow::{Result, bail, ensure};
use serde_json::json;

use crate::world::{POOL, Setup, World};

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_has_no_more_vms_than_it_may_and_the_oldest_come_first() -> Result<()> {
    let world = World::start(Setup::pool(
        json!({"scaling": {"maxVMs": 1, "maxProvisioning": 1}}),
    ))
    .await?;
    let nodes = world.up(1).await?;
    nodes.scale(2);
    let said = world
        .until_refused(POOL, CAPACITY_SATISFIED, "CreateCapReached")
        .await?;
    let words = "spec.scaling.maxVMs is 1, and the pool has 1 VMs";
    ensure!(said.contains(words), "{said}");
    ensure!(world.all_children().await?.len() == 1);
    ensure!(world.all_vms().await?.len() == 1);
    let waits = world.pool_status().await?;
    let mut waits = waits.waiting_on.into_iter();
    let wait = waits.find(|w| w.reason.as_str() == "CreateCapReached");
    ensure!(wait.is_some_and(|w| w.message.ends_with("ahead: 0")));

    // The third one comes later, so the second one gets the next VM.
    let first = nodes.running();
    let mut older = nodes.agent_machines();
    older.retain(|am| !first.contains(&am.name().to_owned()));
    let [second] = older.as_slice() else {
        bail!("one AgentMachine waits, not {}", older.len())
    };
    nodes.scale(3);
    world
        .until_pool_waits("CreateCapReached", "ahead: 1")
        .await?;
    world
        .patch_pool(POOL, &json!({"scaling": {"maxVMs": 2}}))
        .await?;
    world
        .until("two that run", async || Ok(nodes.running().len() == 2))
        .await?;
    ensure!(nodes.running().contains(&second.name().to_owned()));
    world
        .patch_pool(POOL, &json!({"scaling": {"maxVMs": 3}}))
        .await?;
    world.running(&nodes, 3).await?;
    world.each_serves_its_own().await
}

/// Creates take long. Never do two of them run at once.
#[tokio::test(flavor = "multi_thread")]
async fn vms_are_created_one_at_a_time() -> Result<()> {
    let world = World::start(Setup {
        operator_args: vec!["--max-concurrent-creates=1".to_owned()],
        vcenter: VCenterOptions {
            create_delay: Duration::from_secs(1),
            ..VCenterOptions::default()
        },
        ..Setup::default()
    })
    .await?;
    let nodes = world.wanted(3).await?;
    let mut most = 0;
    world
        .until("three VMs", async || {
            // A create counts until vCenter has made the VM. The record of its task stays a little longer.
            let begun = world.vcenter.calls().await?.of("CreateVM_Task");
            let made = world.all_vms().await?.len();
            most = begun.saturating_sub(made as u64).max(most);
            Ok(made == 3)
        })
        .await?;
    ensure!(most == 1, "{most} creates at once");
    world.running(&nodes, 3).await
}

#[tokio::test(flavor = "multi_thread")]
async fn no_vm_is_made_where_it_would_leave_too_little_space() -> Result<()> {
    let world = World::start(Setup::args(["--min-free-datastore-gib=1000000"])).await?;
    let _nodes = world.wanted(1).await?;
    let words = "--min-free-datastore-gib keeps 1000000 GiB free";
    world.until_waits("NoDiskSpace", &[words]).await?;
    ensure!(world.all_vms().await?.is_empty());
    Ok(())
}
