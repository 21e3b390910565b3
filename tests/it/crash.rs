//! The operator and its actors die at any moment: no double, no leak.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::{
    trouble::PROMPT,
    witness::Witness,
    world::{LIMIT, Setup, World},
};

/// Kills the actors whose names start with `which`, as the debug endpoint does.
pub async fn kill(world: &World, which: &str, panic: bool) -> Result<usize> {
    let operator = world.operator.as_ref().context("an operator")?;
    let url = format!(
        "{}/actors/kill?which={which}&panic={panic}",
        operator.debug_url()
    );
    let answer = reqwest::Client::new()
        .post(url)
        .header("x-agent-forge-kill", "true")
        .send()
        .await?
        .error_for_status()?;
    let hit: Vec<Value> = answer.json().await?;
    Ok(hit.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_is_killed_again_and_again_during_ten_up() -> Result<()> {
    let mut world = World::start(Setup::default()).await?;
    let witness = Witness::start(world.sight());
    let nodes = world.node_pool().await?;
    nodes.scale(10);
    // Each kill waits for a moment of its own: so many VMs exist, so many of them run.
    for (vms, on) in [(1, 0), (4, 0), (8, 1), (10, 4), (10, 9)] {
        world
            .until(&format!("{vms} VMs, {on} of them on"), async || {
                let all = world.all_vms().await?;
                Ok(all.len() >= vms && all.iter().filter(|vm| vm.is_on()).count() >= on)
            })
            .await?;
        let operator = world.operator.take().context("an operator")?;
        operator.kill().await?;
        world.start_operator().await?;
    }
    world.running(&nodes, 10).await?;
    world.settled(10).await?;
    world.each_serves_its_own().await?;
    nodes.scale(0);
    world
        .until("half of the VMs gone", async || {
            Ok(world.all_vms().await?.len() <= 5)
        })
        .await?;
    world.operator.take().context("an operator")?.kill().await?;
    world.start_operator().await?;
    world.settled(0).await?;
    witness.verdict()
}

#[tokio::test(flavor = "multi_thread")]
async fn actors_are_killed_at_each_stage() -> Result<()> {
    let world = World::start(Setup::default()).await?;
    let witness = Witness::start(world.sight());
    let nodes = world.node_pool().await?;
    nodes.scale(3);
    let mut panic = false;
    for reason in [
        "CreateRequested",
        "VMCreatePending",
        "AgentNotDiscovered",
        "AgentAvailable",
        "AgentBound",
    ] {
        world
            .until(
                &format!("a VsphereAgent at {reason} or past it"),
                async || {
                    let phases = world.phases().await?;
                    Ok(phases
                        .values()
                        .any(|(_, now)| now == reason || now == "AgentBound"))
                },
            )
            .await?;
        for which in ["vm/", "pool/", "sessions", "placement", "iso_cache/"] {
            let hit = kill(&world, which, panic).await?;
            ensure!(hit > 0 || which != "pool/", "no {which} actor was there");
            panic = !panic;
        }
        // They are back before the next stage is looked for.
        tokio::time::timeout(LIMIT, world.actors_back())
            .await
            .context("the actors came back")??;
    }
    world.running(&nodes, 3).await?;
    world.each_serves_its_own().await?;
    nodes.scale(0);
    world
        .until("a VsphereAgent on its way out", async || {
            let children = world.all_children().await?;
            Ok(children.is_empty()
                || children
                    .iter()
                    .any(|c| c.metadata.deletion_timestamp.is_some()))
        })
        .await?;
    kill(&world, "*", false).await?;
    world.settled(0).await?;
    witness.verdict()
}

impl World {
    /// Waits until pool and session actors are alive.
    async fn actors_back(&self) -> Result<()> {
        loop {
            let names: Vec<String> = self
                .actors(PROMPT)
                .await?
                .iter()
                .filter(|a| a["life"]["is"] == "alive")
                .filter_map(|a| a["name"].as_str().map(str::to_owned))
                .collect();
            if ["pool/", "sessions", "placement"]
                .iter()
                .all(|k| names.iter().any(|n| n.starts_with(k)))
            {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}
