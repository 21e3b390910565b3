//! Agents in other namespaces.

use anyhow::{Result, ensure};

use crate::{
    witness::Witness,
    world::{CLUSTER, Setup, World},
};

/// Agents are in the InfraEnv's namespace. The spec names it, or it is the control plane's by default.
#[tokio::test(flavor = "multi_thread")]
async fn a_pool_is_served_with_agents_of_another_namespace() -> Result<()> {
    let named = Setup {
        agents_beside: Some("agents"),
        ..Setup::default()
    };
    let implied = Setup {
        agents_beside: Some(CLUSTER),
        ..Setup::default()
    };
    tokio::try_join!(one_up_and_down(named), one_up_and_down(implied))?;
    Ok(())
}

async fn one_up_and_down(setup: Setup) -> Result<()> {
    let world = World::start(setup).await?;
    let witness = Witness::start(world.sight());
    let nodes = world.up(1).await?;
    world.settled(1).await?;
    world.each_serves_its_own().await?;
    world
        .until("the Agent in the VM's record", async || {
            let recorded = world.all_children().await?.pop().and_then(|c| c.status?.vm);
            let agent = recorded.and_then(|vm| vm.agent_ref);
            let namespace = agent.and_then(|agent| agent.namespace);
            Ok(namespace.as_deref() == Some(world.cluster.agent_namespace.as_str()))
        })
        .await?;
    nodes.scale(0);
    world.settled(0).await?;
    // What it served stays known after its VsphereAgent went.
    let past = world.pool_status().await?.past_hosts;
    ensure!(past.len() == 1, "{past:?}");
    let served = past[0].machine.is_some() && past[0].until.is_some();
    ensure!(served && past[0].infra_env.is_some(), "{past:?}");
    let home = world.pool().await?.spec.control_plane_namespace;
    ensure!(past[0].control_plane == Some(home), "{past:?}");
    witness.verdict()
}
