//! `--late-binding`: two hosts wait, a NodePool takes them within seconds, they come back, and another hosted cluster
//! gets one of them.

use std::collections::BTreeSet;

use agent_forge_crds::{VsphereAgent, VsphereAgentPool, agent::VmStatus};
use anyhow::{Context as _, Result, bail, ensure};
use kube::{
    Api,
    api::{ListParams, PostParams},
};
use serde_json::{Value, json};
use tokio::time::{Instant, interval};

use super::{
    Args, LOOK,
    stage::{NAMESPACE, POOL, Stage},
};
use crate::{
    lab::manifest::{agent_selector, pool},
    played::HostedCluster,
};

const HOSTS: usize = 2;
/// NodePool and pool of the other hosted cluster.
const OTHER: &str = "other-worker";
/// The pools of this group give each other hosts.
const GROUP: &str = "demo";

/// What the pool has beside the usual.
pub(super) fn spec() -> Value {
    json!({
        "scaling": {"bufferAgents": HOSTS, "bufferMax": HOSTS, "maxVMs": HOSTS},
        "release": {"policy": "Recycle"},
        "reassign": {"group": GROUP},
    })
}

/// Another hosted cluster with the NodePools and Agents of this one.
pub(super) fn second(first: &HostedCluster) -> HostedCluster {
    HostedCluster {
        generation: first.generation,
        machine_api: first.machine_api,
        ..HostedCluster::new(&first.namespace, "other")
    }
}

/// The pool of the other hosted cluster. It has no buffer.
async fn add_pool(stage: &Stage, cluster: &HostedCluster) -> Result<()> {
    let name = &stage.cluster.name;
    let patch = json!({
        "infraEnvRef": {"name": name},
        "vsphere": {"folder": name},
        "reassign": {"group": GROUP},
    });
    let pools: Api<VsphereAgentPool> = Api::namespaced(stage.client.clone(), NAMESPACE);
    pools
        .create(&PostParams::default(), &pool(cluster, OTHER, &patch)?)
        .await?;
    Ok(())
}

fn is_of_other(child: &VsphereAgent) -> bool {
    child.spec.pool_ref.name == OTHER
}

/// The VM of the other pool.
async fn vm_of_other(stage: &Stage) -> Result<VmStatus> {
    let all: Api<VsphereAgent> = Api::namespaced(stage.client.clone(), NAMESPACE);
    let all = all.list(&ListParams::default()).await?.items;
    let mut of_other = all.into_iter().filter(is_of_other);
    let vm = of_other.next().and_then(|c| c.status).and_then(|s| s.vm);
    vm.with_context(|| format!("no VM on record in pool {OTHER}"))
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
    /// VsphereAgents of the other hosted cluster's pool.
    of_other: usize,
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
        of_other: seen.children.iter().filter(|c| is_of_other(c)).count(),
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
            sight.vms.len() <= HOSTS + sight.of_other,
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
    serve_another(args, stage, &back.vms).await
}

/// A hosted cluster whose pool has no host gets one of those that wait.
async fn serve_another(args: &Args, stage: &Stage, hosts: &BTreeSet<String>) -> Result<()> {
    let voice = &stage.voice;
    let cluster = stage.second.as_ref().context("a second hosted cluster")?;
    add_pool(stage, cluster).await?;
    let nodes = stage
        .upstream
        .node_pool(cluster, OTHER, Some(agent_selector()))
        .await?;
    voice.say(&format!(
        "NodePool {OTHER} of the other hosted cluster is scaled to 1; its pool has no host"
    ));
    nodes.scale(1);
    let bound = |_: &Sight| {
        let all = nodes.agent_machines();
        all.iter()
            .any(|am| am.data["status"]["agentRef"].is_object())
    };
    until(args, stage, "it has a host", bound).await?;
    let runs = |_: &Sight| nodes.running().len() == 1;
    until(args, stage, "it is a node", runs).await?;
    let vm = vm_of_other(stage).await?;
    let moref = vm.moref.as_deref().unwrap_or_default();
    ensure!(hosts.contains(moref), "{moref} is a new VM");
    voice.say(&format!(
        "it is VM {moref}, which pool {POOL} had until then"
    ));
    until(args, stage, "the buffer is full again", |s| {
        s.ready == HOSTS
    })
    .await?;
    Ok(())
}
