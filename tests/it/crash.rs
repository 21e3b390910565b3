//! Each kind of actor is killed at each stage of a machine. There must never be two VMs for one machine, and nothing may
//! be left over.

use std::time::Duration;

use agent_forge_lab::{
    parts::vcenter_trouble::Rule,
    played::{Delays, object::Facts as _},
};
use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::{
    shared::{PROMPT, kill},
    witness::Witness,
    world::{POOL, Setup, World},
};

/// Kinds of actors, as their names begin. The last one exists once an ISO is needed.
const KINDS: [&str; 7] = [
    "vm/",
    "pool/",
    "sessions",
    "placement",
    "orphans",
    "news",
    "iso_cache/",
];

/// Waits for a VsphereAgent with exactly this reason and kills actors of these kinds, every second one by a panic in a
/// handler. Returns when they are running again.
async fn strike(world: &World, reason: &str, kinds: &[&str], panic: &mut bool) -> Result<()> {
    world
        .until(&format!("a VsphereAgent at {reason}"), async || {
            Ok(world.phases().await?.values().any(|(_, now)| now == reason))
        })
        .await?;
    let mut struck = Vec::new();
    for which in kinds {
        let before = restarts(&world.actors(PROMPT).await?, which);
        let hit = kill(world, which, *panic).await?;
        ensure!(hit > 0, "no {which} actor was there at {reason}");
        struck.push((which, before + u64::try_from(hit)?));
        *panic = !*panic;
    }
    // An actor that is killed this time panics the next time.
    *panic ^= kinds.len().is_multiple_of(2);
    // Compare the number of restarts, because an actor that will panic is alive until then.
    world
        .until("the actors that were killed", async || {
            let actors = world.actors(PROMPT).await?;
            let anew = struck.iter().all(|(k, n)| restarts(&actors, k) >= *n);
            Ok(anew && kinds.iter().all(|k| is_alive(&actors, k)))
        })
        .await
}

/// Actors of a kind, by the beginning of their names.
fn of_kind<'a>(actors: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    let named = move |a: &&Value| a["name"].as_str().is_some_and(|n| n.starts_with(kind));
    actors.iter().filter(named)
}

/// How often actors of this kind were restarted.
fn restarts(actors: &[Value], kind: &str) -> u64 {
    of_kind(actors, kind)
        .filter_map(|a| a["restarts"].as_u64())
        .sum()
}

/// Whether an actor of this kind is alive.
fn is_alive(actors: &[Value], kind: &str) -> bool {
    of_kind(actors, kind).any(|a| a["life"]["is"] == "alive")
}

/// Each stage waits until its actors were killed, so that the kill meets this stage and no later one.
#[tokio::test(flavor = "multi_thread")]
async fn an_actor_that_is_killed_at_any_stage_costs_no_host() -> Result<()> {
    let world = World::without_pool(Setup {
        delays: Delays {
            boot: Duration::from_secs(20),
            ..Delays::fast()
        },
        ..Setup::default()
    })
    .await?;
    let witness = Witness::start(world.sight());
    let service = world.upstream.service(&world.cluster.agent_namespace)?;
    service.withhold_image("demo", true);
    world
        .until("an InfraEnv without URL", async || {
            let seen = service.infra_envs().fetch("demo").await?;
            Ok(seen.is_some_and(|i| i.text("/status/isoDownloadURL").is_empty()))
        })
        .await?;
    let agents = "agent-install.openshift.io";
    world
        .forbid("preparing", agents, "agents", "UPDATE")
        .await?;
    let hangs = async |method| world.vcenter.add_rule(&Rule::hangs(method)).await;
    let create = hangs("CreateVM_Task").await?;
    let power_on = hangs("PowerOnVM_Task").await?;
    world.create_pool(POOL, &json!({})).await?;
    let nodes = world.wanted(3).await?;
    let mut panic = false;

    strike(&world, "CreateRequested", &KINDS[..6], &mut panic).await?;
    service.withhold_image("demo", false);
    world
        .until("a create on its way", async || {
            Ok(world.vcenter.rule_hits(&create).await? > Some(0))
        })
        .await?;
    strike(&world, "VMCreatePending", &KINDS, &mut panic).await?;
    ensure!(world.vms().await?.is_empty(), "made all the same");
    world.vcenter.remove_rule(&create).await?;
    world
        .until("three VMs, and one on its way to be on", async || {
            let made = world.vms().await?.len() == 3;
            Ok(made && world.vcenter.rule_hits(&power_on).await? > Some(0))
        })
        .await?;
    strike(&world, "VMCreatePending", &KINDS, &mut panic).await?;
    world.vcenter.remove_rule(&power_on).await?;
    strike(&world, "AgentNotDiscovered", &KINDS, &mut panic).await?;
    strike(&world, "AgentAvailable", &KINDS, &mut panic).await?;
    world.allow("preparing").await?;
    world.running(&nodes, 3).await?;
    strike(&world, "AgentBound", &KINDS, &mut panic).await?;
    world.running(&nodes, 3).await?;
    world.each_serves_its_own().await?;
    let actors = world.actors(PROMPT).await?;
    for kind in KINDS {
        let restarts = restarts(&actors, kind);
        ensure!(restarts >= 5, "{kind} was started again {restarts} times");
    }
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
