//! The buffer of a pool, on the real API server and the simulated vCenter.

use agent_forge_crds::{
    external::agent::Agent,
    names::{AGENT_MACHINE_LABEL, CREATED_FOR_BUFFER, CREATED_FOR_LABEL},
};
use agent_forge_lab::played::HostedClusterPlay;
use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use serde_json::json;

use crate::world::{POOL, Setup, World};

fn label<'a>(agent: &'a Agent, key: &str) -> Option<&'a str> {
    agent.labels().get(key).map(String::as_str)
}

/// The names of the VsphereAgents, and whether an AgentMachine has them.
async fn hosts(world: &World) -> Result<Vec<(String, bool)>> {
    let all = world.all_children().await?;
    let taken = |labels: &std::collections::BTreeMap<String, String>| {
        labels.contains_key(AGENT_MACHINE_LABEL)
    };
    for child in &all {
        let made_for = child.labels().get(CREATED_FOR_LABEL);
        ensure!(made_for.is_some_and(|v| v == CREATED_FOR_BUFFER));
    }
    Ok(all
        .iter()
        .map(|c| (c.name_any(), taken(c.labels())))
        .collect())
}

async fn claims(world: &World, nodes: &HostedClusterPlay) -> Result<()> {
    let waits = world.all_agents().await?;
    let [waits] = waits.as_slice() else {
        anyhow::bail!("{} Agents", waits.len());
    };
    // Nothing chooses it: it has none of the pool's labels. All else is done.
    ensure!(label(waits, AGENT_MACHINE_LABEL).is_none() && label(waits, "customer").is_none());
    let host = hosts(world).await?.pop().context("a host")?.0;
    ensure!(waits.spec.hostname == Some(format!("{host}-1")) && waits.spec.approved);
    nodes.scale(1);
    world.running(nodes, 1).await?;
    let serves = world.all_agents().await?;
    let serves = serves.iter().find(|a| a.uid() == waits.uid());
    let serves = serves.context("the Agent of the buffer")?;
    ensure!(
        serves.claimed_by() == label(serves, AGENT_MACHINE_LABEL) && serves.claimed_by().is_some()
    );
    ensure!(serves.spec.hostname == Some(format!("{host}-1")));
    let taken = hosts(world).await?;
    ensure!(taken.contains(&(host, true)), "{taken:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_gets_the_host_that_waits_and_the_buffer_is_filled_again() -> Result<()> {
    let world = World::start(Setup::pool(json!({"scaling": {"bufferAgents": 1}}))).await?;
    let nodes = world.node_pool().await?;
    world.hosts_wait(1, 1).await?;
    claims(&world, &nodes).await?;
    world.hosts_wait(1, 2).await?;
    // A window that is always open empties the buffer.
    let window = json!({"days": "Mon-Sun", "from": "00:00", "to": "00:00", "timeZone": "Europe/Zurich", "bufferAgents": 0});
    world
        .patch_pool(POOL, &json!({"scaling": {"bufferSchedule": [window]}}))
        .await?;
    world.hosts_wait(0, 1).await?;
    nodes.scale(0);
    world.hosts_wait(0, 0).await
}
