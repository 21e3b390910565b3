//! The power of VMs: one that somebody switches off, and VMs that run later.

use agent_forge_crds::conditions::event;
use agent_forge_lab::parts::vcenter_trouble::VmAction;
use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::world::{POOL, Setup, World};

impl World {
    /// Waits until a VsphereAgent waits for that reason.
    async fn until_vm_waits(&self, reason: &str) -> Result<()> {
        self.until(&format!("a VM that waits for {reason}"), async || {
            let all = self.all_children().await?;
            let status = all.iter().filter_map(|child| child.status.as_ref());
            let mut waits = status.flat_map(|status| &status.waiting_on);
            Ok(waits.any(|wait| wait.reason.as_str() == reason))
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_that_somebody_switches_off_is_reported_and_switched_on_if_the_pool_wants_that()
-> Result<()> {
    let world = World::start(Setup {
        operator_args: vec!["--orphan-scan-interval=10s".to_owned()],
        ..Setup::default()
    })
    .await?;
    let nodes = world.node_pool().await?;
    nodes.scale(1);
    world.running(&nodes, 1).await?;
    let vm = world.all_vms().await?.pop().context("a VM")?;
    world.vcenter.act(&vm.moref, VmAction::PowerOff).await?;
    world.until_vm_waits("VMPoweredOff").await?;
    ensure!(!world.all_vms().await?[0].is_on());

    world
        .patch_pool(POOL, &json!({"power": "EnsureOn"}))
        .await?;
    world
        .until("a VM that is on again", async || {
            Ok(world.all_vms().await?.iter().all(|vm| vm.is_on()))
        })
        .await?;
    let child = world
        .all_children()
        .await?
        .pop()
        .context("a VsphereAgent")?;
    let name = child.metadata.name.clone().unwrap_or_default();
    let about = ("VsphereAgent", name.as_str());
    let told = (event::VM_SWITCHED_ON, true);
    world.until_told(told, about, "EnsureOn").await?;
    world
        .until("a VsphereAgent without a concern", async || {
            let child = world.children().get(&name).await?;
            let status = child.status.unwrap_or_default();
            let times = status.vm.unwrap_or_default().switched_on_again;
            Ok(status.waiting_on.is_empty() && times.len() == 1)
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn vms_are_made_now_and_run_later() -> Result<()> {
    let far = Timestamp::now().checked_add(SignedDuration::from_hours(1))?;
    let world = World::start(Setup {
        pool_patch: json!({"powerOnAfter": far.to_string()}),
        ..Setup::default()
    })
    .await?;
    let nodes = world.node_pool().await?;
    nodes.scale(1);
    world.until_vm_waits("PowerOnScheduled").await?;
    let vms = world.all_vms().await?;
    ensure!(vms.len() == 1 && !vms[0].is_on(), "{vms:?}");
    let soon = SignedDuration::from_secs(8);
    let start = Timestamp::from_second(Timestamp::now().checked_add(soon)?.as_second())?;
    world
        .patch_pool(POOL, &json!({"powerOnAfter": start.to_string()}))
        .await?;
    world.running(&nodes, 1).await?;
    ensure!(Timestamp::now() >= start, "it ran too early");
    Ok(())
}
