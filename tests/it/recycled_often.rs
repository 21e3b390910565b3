//! One VM lives many lives while the operator is killed every five seconds: one VM, one Agent, no other host id.

use std::time::Duration;

use agent_forge_lab::played::HostedClusterPlay;
use anyhow::{Result, ensure};
use kube::ResourceExt as _;
use serde_json::json;
use tokio::time::{Instant, timeout};

use crate::{
    witness::Witness,
    world::{POOL, Setup, World},
};

/// How often a VM is recycled.
const LIVES: usize = 6;
/// Between two kills, and longer while nothing has changed: on a slow machine a start alone may take as long.
const KILL: Duration = Duration::from_secs(5);
/// Longest time for half a life.
const LIMIT: Duration = Duration::from_secs(180);

/// Waits until the host serves, or waits in the buffer in that life, and kills the operator meanwhile.
async fn until(
    world: &mut World,
    nodes: &HostedClusterPlay,
    life: usize,
    serves: bool,
) -> Result<()> {
    let what = format!("life {life}, serves: {serves}");
    let begun = Instant::now();
    let mut before = String::new();
    while begun.elapsed() < LIMIT {
        let there = async || {
            let child = world.all_children().await?.pop();
            let vm = child.and_then(|c| c.status).and_then(|s| s.vm);
            let Some(vm) = vm else { return Ok(false) };
            let now = usize::try_from(vm.generation.unwrap_or(1)).unwrap_or(0);
            if serves {
                return Ok(now == life && nodes.running().len() == 1);
            }
            let ready = world.ready_in_buffer().await?;
            Ok(now == life && ready == 1 && vm.recycle.is_none() && nodes.machines().is_empty())
        };
        if let Ok(done) = timeout(KILL, world.until_within(LIMIT, &what, there)).await {
            return done;
        }
        let now = format!(
            "{:?} {:?}",
            world.all_children().await?,
            world.all_vms().await?
        );
        if now != before {
            world.crash().await?;
            before = now;
        }
    }
    anyhow::bail!("not within {LIMIT:?}: {what}\n{}", world.explain().await)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_that_is_recycled_again_and_again_under_kills_stays_one() -> Result<()> {
    let mut world = World::start(Setup::recycling()).await?;
    let witness = Witness::start(world.sight());
    let nodes = world.node_pool().await?;
    let mut host = None;
    for life in 1..=LIVES {
        nodes.scale(1);
        until(&mut world, &nodes, life, true).await?;
        let vms = world.all_vms().await?;
        let agents = world.all_agents().await?;
        ensure!(
            vms.len() == 1 && agents.len() == 1,
            "{} VMs, {} Agents",
            vms.len(),
            agents.len()
        );
        let now = (vms[0].moref.clone(), agents[0].name_any(), agents[0].uid());
        ensure!(
            *host.get_or_insert(now.clone()) == now,
            "{host:?} became {now:?}"
        );
        nodes.scale(0);
        until(&mut world, &nodes, life + 1, false).await?;
    }
    world
        .patch_pool(POOL, &json!({"release": {"policy": "Delete"}}))
        .await?;
    world.settled(0).await?;
    witness.verdict()
}
