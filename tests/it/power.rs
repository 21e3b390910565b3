//! The power of VMs: VMs that run later, and one that somebody switches off.

use agent_forge_crds::conditions::event;
use agent_forge_lab::parts::vcenter_trouble::VmAction;
use anyhow::{Result, ensure};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::world::{POOL, Setup, World};

#[tokio::test(flavor = "multi_thread")]
async fn vms_run_when_they_may_and_one_that_is_switched_off_is_reported() -> Result<()> {
    let far = Timestamp::now().checked_add(SignedDuration::from_hours(1))?;
    let world = World::start(Setup {
        pool_patch: json!({"powerOnAfter": far.to_string()}),
        ..Setup::args(["--orphan-scan-interval=10s"])
    })
    .await?;
    let nodes = world.wanted(1).await?;
    world.until_waits("PowerOnScheduled", &[]).await?;
    let vms = world.all_vms().await?;
    ensure!(vms.len() == 1 && !vms[0].is_on(), "{vms:?}");
    let soon = SignedDuration::from_secs(8);
    let start = Timestamp::from_second(Timestamp::now().checked_add(soon)?.as_second())?;
    world
        .patch_pool(POOL, &json!({"powerOnAfter": start.to_string()}))
        .await?;
    world.running(&nodes, 1).await?;
    ensure!(Timestamp::now() >= start, "it ran too early");
    is_reported_off_and_switched_on_if_the_pool_wants_that(&world).await
}

/// Somebody switches the VM off.
async fn is_reported_off_and_switched_on_if_the_pool_wants_that(world: &World) -> Result<()> {
    let vm = world.only_vm().await?;
    world.vcenter.act(&vm.moref, VmAction::PowerOff).await?;
    world.until_waits("VMPoweredOff", &[]).await?;
    ensure!(!world.only_vm().await?.is_on());

    world
        .patch_pool(POOL, &json!({"power": "EnsureOn"}))
        .await?;
    world
        .until("a VM that is on again", async || {
            Ok(world.only_vm().await?.is_on())
        })
        .await?;
    let told = (event::VM_SWITCHED_ON, true);
    let about = ("VsphereAgent", vm.name.as_str());
    world.until_told(told, about, "EnsureOn").await?;
    world
        .until("a VsphereAgent without a concern", async || {
            let status = world.only_child().await?.status.unwrap_or_default();
            let times = status.vm.unwrap_or_default().switched_on_again;
            Ok(status.waiting_on.is_empty() && times.len() == 1)
        })
        .await
}
