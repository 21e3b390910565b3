//! `--late-binding`: two hosts wait, a NodePool takes them within seconds, and they come back.

use std::collections::BTreeSet;

use agent_forge_crds::VsphereAgentPool;
use anyhow::{Result, bail, ensure};
use kube::Api;
use serde_json::{Value, json};
use tokio::time::{Instant, interval};

use super::{
    Args, LOOK,
    stage::{NAMESPACE, POOL, Stage},
};

const HOSTS: usize = 2;

/// What the pool has beside the usual.
pub(super) fn spec() -> Value {
    json!({
        "scaling": {"bufferAgents": HOSTS, "bufferMax": HOSTS, "maxVMs": HOSTS},
        "release": {"policy": "Recycle"},
    })
}

/// What waits and serves.
struct Sight {
    ready: usize,
    running: usize,
    machines: usize,
    /// References of the VMs.
    vms: BTreeSet<String>,
    /// Numbers of their lives.
    lives: Vec<i32>,
}

async fn look(stage: &Stage) -> Result<Sight> {
    let pools: Api<VsphereAgentPool> = Api::namespaced(stage.client.clone(), NAMESPACE);
    let status = pools.get(POOL).await?.status.unwrap_or_default();
    let seen = stage.look().await?;
    let life = |c: &agent_forge_crds::VsphereAgent| {
        let vm = c.status.as_ref().and_then(|s| s.vm.as_ref());
        vm.map_or(1, |vm| vm.generation.unwrap_or(1))
    };
    Ok(Sight {
        ready: status
            .buffer
            .map_or(0, |b| usize::try_from(b.ready).unwrap_or(0)),
        running: seen.running.len(),
        machines: seen.machines,
        vms: seen.vms.into_iter().map(|vm| vm.moref).collect(),
        lives: seen.children.iter().map(life).collect(),
    })
}

/// Waits, and says how long it took.
async fn until(
    args: &Args,
    stage: &Stage,
    what: &str,
    done: impl Fn(&Sight) -> bool,
) -> Result<Sight> {
    let begun = Instant::now();
    let mut ticks = interval(LOOK);
    loop {
        tokio::select! {
            biased;
            ended = stage.operator.process.ended() => {
                bail!("the operator has ended ({}); its log ends with:\n{}", ended?, stage.operator.process.tail());
            }
            _ = ticks.tick() => {}
        }
        let sight = look(stage).await?;
        ensure!(
            sight.vms.len() <= HOSTS,
            "more VMs than hosts: {:?}",
            sight.vms
        );
        if done(&sight) {
            stage.voice.say(&format!(
                "{what}, after {:.1} s",
                begun.elapsed().as_secs_f64()
            ));
            return Ok(sight);
        }
        if begun.elapsed() >= args.limit {
            bail!(
                "not within {:?}: {what}; the operator's log ends with:\n{}",
                args.limit,
                stage.operator.process.tail()
            );
        }
    }
}

/// Plays it.
pub(super) async fn play(args: &Args, stage: &Stage) -> Result<()> {
    let voice = &stage.voice;
    voice.say(&format!(
        "the pool wants {HOSTS} hosts that wait, and recycles"
    ));
    let first = until(args, stage, "both hosts wait", |s| s.ready == HOSTS).await?;
    voice.say(&format!(
        "NodePool {} is scaled to {HOSTS}",
        stage.node_pool
    ));
    stage.nodes.scale(HOSTS);
    let taken = |s: &Sight| s.machines == HOSTS && s.ready == 0 && stage.bound() == HOSTS;
    until(args, stage, "both are bound", taken).await?;
    until(args, stage, "both are nodes", |s| s.running == HOSTS).await?;
    voice.say(&format!("NodePool {} is scaled to 0", stage.node_pool));
    stage.nodes.scale(0);
    until(args, stage, "both Machines are gone", |s| s.machines == 0).await?;
    let back = until(args, stage, "both hosts wait again", |s| s.ready == HOSTS).await?;
    ensure!(
        first.vms == back.vms,
        "{:?} became {:?}",
        first.vms,
        back.vms
    );
    ensure!(
        back.lives.iter().all(|life| *life == 2),
        "lives {:?}",
        back.lives
    );
    voice.say("they are the same VMs, in their second life");
    voice.say(&format!("NodePool {} is scaled to 1", stage.node_pool));
    stage.nodes.scale(1);
    until(args, stage, "a host of the second life is a node", |s| {
        s.running == 1
    })
    .await?;
    Ok(())
}
