//! A host whose Machine is gone waits for the next one: the same VM, the same Agent, on the real API server and the
//! simulated vCenter.

use agent_forge_lab::played::HostedClusterPlay;
use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use serde_json::json;

use crate::{
    witness::Witness,
    world::{POOL, Setup, World},
};

/// The one host waits in the buffer, in that life. Returns the reference of its VM and the uid of its Agent.
async fn waits(world: &World, life: i32) -> Result<(String, String)> {
    let is = async || {
        let ready = world.ready_in_buffer().await?;
        let child = world.all_children().await?.pop();
        let vm = child.and_then(|c| c.status).and_then(|s| s.vm);
        let there = vm.is_some_and(|vm| {
            vm.generation.unwrap_or(1) == life && vm.recycle.is_none() && vm.served.is_none()
        });
        Ok(ready == 1 && there && world.all_vms().await?.len() == 1)
    };
    world.until(&format!("a host in life {life}"), is).await?;
    identity(world).await
}

async fn identity(world: &World) -> Result<(String, String)> {
    let vm = world.all_vms().await?.pop().context("a VM")?;
    let agents = world.all_agents().await?;
    let [agent] = agents.as_slice() else {
        anyhow::bail!("{} Agents", agents.len());
    };
    Ok((vm.moref, agent.uid().context("a uid")?))
}

async fn one_life(world: &World, nodes: &HostedClusterPlay, life: i32) -> Result<()> {
    nodes.scale(1);
    world.running(nodes, 1).await?;
    let before = identity(world).await?;
    if life > 1 {
        let agent = world.all_agents().await?.pop().context("an Agent")?;
        let hostname = agent.spec.hostname.unwrap_or_default();
        ensure!(hostname.ends_with(&format!("-{life}")), "{hostname}");
    }
    nodes.scale(0);
    let after = waits(world, life + 1).await?;
    ensure!(before == after, "{before:?} became {after:?}");
    Ok(())
}

/// Both lives are on record, each with a machine, a name and a trace of its own.
async fn past_lives(world: &World) -> Result<()> {
    let child = world.only_child().await?;
    let vm = child.status.and_then(|s| s.vm).context("its VM")?;
    let [first, second] = vm.lives.as_slice() else {
        anyhow::bail!("two lives, not {:?}", vm.lives)
    };
    ensure!((first.generation, second.generation) == (1, 2));
    for (one, other) in [
        (&first.machine, &second.machine),
        (&first.host_name, &second.host_name),
        (&first.trace_id, &second.trace_id),
    ] {
        ensure!(
            one.is_some() && other.is_some() && one != other,
            "{:?}",
            vm.lives
        );
    }
    ensure!(first.since < first.until && first.until <= second.since);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_given_back_serves_again_with_the_same_vm_and_agent() -> Result<()> {
    let world = World::start(Setup::recycling()).await?;
    let witness = Witness::start(world.sight());
    let nodes = world.node_pool().await?;
    one_life(&world, &nodes, 1).await?;
    one_life(&world, &nodes, 2).await?;
    past_lives(&world).await?;
    // With a limit of uses that is reached, the host goes with its Machine.
    world
        .patch_pool(POOL, &json!({"release": {"maxUses": 3}}))
        .await?;
    nodes.scale(1);
    world.running(&nodes, 1).await?;
    nodes.scale(0);
    world.settled(0).await?;
    witness.verdict()
}
