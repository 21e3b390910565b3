//! The deletion hook of a Machine waits for a guest that is dead.
//!
//! The provider waits until the assisted service has taken the host back. A dead guest never answers, so without the
//! operator the Machine would stay for ever.

use std::time::Duration;

use agent_forge_crds::conditions::event;
use agent_forge_lab::{parts::vcenter_trouble::VmAction, played::Delays};
use anyhow::{Result, bail, ensure};
use kube::ResourceExt as _;

use crate::world::{Setup, World};

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_vm_does_not_hold_its_machine_for_ever() -> Result<()> {
    let world = World::start(Setup {
        delays: Delays {
            // The operator notices a host that is off before the service would have taken it back. The service never
            // gives up.
            reclaim: Duration::from_secs(4),
            reclaim_limit: Duration::from_secs(24 * 3600),
            ..Delays::fast()
        },
        ..Setup::default()
    })
    .await?;
    let nodes = world.up(2).await?;
    let vms = world.all_vms().await?;
    let [dead, sound] = vms.as_slice() else {
        bail!("{} VMs", vms.len())
    };
    let agent = world.agent_on(dead).await?.name_any();
    world.vcenter.act(&dead.moref, VmAction::PowerOff).await?;
    nodes.scale(0);

    // The healthy Machine is deleted as usual. The other Machine waits for its Agent, and the Agent waits for its dead
    // guest.
    world.machines_left(&nodes, 1).await?;
    world
        .until("an Agent that waits for its dead guest", async || {
            Ok(world.agents().get(&agent).await?.state() == "reclaiming")
        })
        .await?;
    world
        .until("the VM of the Machine that went", async || {
            Ok(world.vms().await? == [dead.name.as_str()])
        })
        .await?;
    let gone = ("VsphereAgent", sound.name.as_str());
    world
        .until_told((event::AGENT_DELETED, false), gone, "proven absent")
        .await?;
    let told = world.told(event::AGENT_DELETED).await?;
    ensure!(told.iter().all(|t| t.about.1 != dead.name), "{told:?}");

    world.machines_left(&nodes, 0).await?;
    world.settled(0).await?;
    let released = ("VsphereAgent", dead.name.as_str());
    world
        .until_told((event::AGENT_DELETED, false), released, "its VM is dead")
        .await?;
    let told = world.told(event::AGENT_DELETED).await?;
    let released = told.iter().find(|t| t.about.1 == dead.name);
    ensure!(
        released.is_some_and(|t| t.note.contains(&agent) && t.note.contains("its VM is dead")),
        "{released:?}"
    );
    let calls = world.vcenter.calls().await?;
    ensure!(calls.of("PowerOnVM_Task") == 2, "the dead VM was woken");
    ensure!(calls.of("Destroy_Task") == 2);
    Ok(())
}
