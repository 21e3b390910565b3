//! Hosts that boot the ISO instead of their disk, because somebody changed the boot order of their VM.

use agent_forge_crds::conditions::event;
use agent_forge_lab::{parts::vcenter_trouble::VmAction, played::guests::identity::Quirk};
use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use crate::world::{POOL, Setup, World};

/// How often vCenter was asked to reset a VM.
async fn resets(world: &World) -> Result<u64> {
    let calls = world.vcenter.calls().await?.by_method;
    Ok(calls.get("ResetVM_Task").copied().unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_boots_its_iso_again_is_reset_once_and_one_that_is_slow_is_not() -> Result<()> {
    let world = World::start(Setup::pool(json!({"agent": {"approve": false}}))).await?;
    let nodes = world.wanted(1).await?;
    world
        .until("an Agent", async || {
            Ok(!world.all_agents().await?.is_empty())
        })
        .await?;
    let vm = world.all_vms().await?.pop().context("its VM")?;
    world.vcenter.act(&vm.moref, VmAction::BootFromCd).await?;
    let approve = json!({"agent": {"approve": true}});
    world.patch_pool(POOL, &approve).await?;
    world.running(&nodes, 1).await?;

    let now = world.all_vms().await?.pop().context("its VM")?;
    let order = [format!("disk:{}", now.disks[0].key), "cdrom".to_owned()];
    ensure!(now.boot_order == order, "{:?}", now.boot_order);
    ensure!(now.cdroms.iter().all(|drive| drive.path.is_empty()));
    let agent = world.agent_on(&now).await?;
    ensure!(agent.state() == "added-to-existing-cluster");
    let about = ("VsphereAgent", now.name.as_str());
    let told = (event::VM_RESET, true);
    world.until_told(told, about, "1 of 2 times").await?;
    world
        .until("a VsphereAgent without a concern", async || {
            let status = world.children().get(&now.name).await?.status;
            let status = status.unwrap_or_default();
            let repair = status.vm.unwrap_or_default().boot_repair;
            let count = repair.context("no reset is on record")?.count;
            Ok(status.waiting_on.is_empty() && count == 1)
        })
        .await?;
    ensure!(resets(&world).await? == 1);

    // The service has the same state for a guest that is slow to fetch its configuration.
    let guests = world.upstream.guests.as_ref().context("guests")?;
    guests.add_quirk("/", Quirk::PullsSlowly);
    nodes.scale(2);
    world
        .until("what the Agent says", async || {
            let all = world.all_children().await?;
            let status = all.iter().filter_map(|child| child.status.as_ref());
            let mut waits = status.flat_map(|status| &status.waiting_on);
            Ok(waits.any(|w| w.message.contains("timed out when pulling")))
        })
        .await?;
    let vms = world.all_vms().await?;
    let slow = vms.iter().find(|vm| vm.name != now.name);
    let agent = world.agent_on(slow.context("its VM")?).await?;
    ensure!(agent.state() == "installing-pending-user-action");
    nodes.scale(0);
    world.settled(0).await?;
    ensure!(resets(&world).await? == 1);
    Ok(())
}
