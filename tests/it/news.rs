//! Live news: what somebody does to a serving VM in vCenter is known at once, without a scan. Runs the operator's binary.

use std::time::Instant;

use agent_forge_lab::parts::vcenter_trouble::VmAction;
use anyhow::{Context as _, Result, ensure};

use crate::world::{Setup, World};

/// The goal for the time from the change in vCenter to the report. It is printed, not asserted.
const GOAL: &str = "goal 2 s";

impl World {
    /// Waits until a VsphereAgent waits for this reason; without one, until the only one waits for nothing.
    async fn until_child_waits(&self, reason: Option<&str>) -> Result<()> {
        let Some(reason) = reason else {
            let content = async || {
                let status = self.only_child().await?.status.unwrap_or_default();
                Ok(status.waiting_on.is_empty())
            };
            return self
                .until("a VsphereAgent without a concern", content)
                .await;
        };
        self.until_waits(reason, &[]).await
    }

    async fn timed(&self, vm: &str, action: VmAction<'_>, reason: Option<&str>) -> Result<()> {
        let began = Instant::now();
        self.vcenter.act(vm, action).await?;
        self.until_child_waits(reason).await?;
        let took = began.elapsed();
        eprintln!("{action:?} was reported after {took:?} ({GOAL}): {reason:?}");
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_happens_to_a_serving_vm_is_known_at_once() -> Result<()> {
    let mut world = World::start(Setup::default()).await?;
    let _nodes = world.up(1).await?;
    let vm = world.all_vms().await?.pop().context("a VM")?.moref;
    world.until_child_waits(None).await?;
    let scans = world.vcenter.calls().await?.of("CreateContainerView");
    let (off, on) = (VmAction::PowerOff, VmAction::PowerOn);
    world.timed(&vm, off, Some("VMPoweredOff")).await?;
    world.timed(&vm, on, None).await?;
    world
        .timed(&vm, VmAction::Suspend, Some("VMSuspended"))
        .await?;
    world.timed(&vm, VmAction::PowerOn, None).await?;
    // Also what happened while no operator ran.
    world.stop_operator().await?;
    world.vcenter.act(&vm, VmAction::PowerOff).await?;
    world.start_operator().await?;
    world.until_child_waits(Some("VMPoweredOff")).await?;
    let after = world.vcenter.calls().await?.of("CreateContainerView");
    ensure!(after <= scans + 2, "scans showed it: {scans} {after}");
    world.timed(&vm, VmAction::Destroy, Some("VMMissing")).await
}
