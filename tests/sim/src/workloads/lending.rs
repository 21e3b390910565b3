//! Workloads in which pools give each other hosts.

use std::sync::Arc;

use agent_forge_actors::domain::marker::Marker;
use agent_forge_crds::names::{MOVE_TO_ANNOTATION, MOVE_UNTIL_ANNOTATION};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::{Run, children, marked};
use crate::{
    kube::{kind, store::name_of},
    oracles,
    promise::Oracle,
    world::{NAMESPACE, World},
};

/// The pool that has the hosts.
const LENDER: &str = "x";

fn of_group() -> Value {
    json!({"reassign": {"group": "lab"}})
}

/// One host waits in the buffer of the lender.
fn one_is_ready(world: &World) -> bool {
    world.of_pool(LENDER, "/status/buffer/ready") == 1
}

/// Each of these pools has a machine that runs, or none. One host waits in the buffer of the lender, and there is nothing else.
fn has(world: &World, takers: &[&str], running: usize) -> bool {
    let all = takers.len() * running + 1;
    takers.iter().all(|pool| world.runs(pool, running))
        && one_is_ready(world)
        && marked(world) == all
        && children(world) == all
        && world.vcenter.read(|i| i.vms.values().all(|vm| vm.on))
}

/// A pool that keeps one host.
fn lender() -> Value {
    json!({"reassign": {"group": "lab"}, "scaling": {"bufferAgents": 1}})
}

async fn lend(run: &mut Run, takers: &[&str]) -> Result<()> {
    for pool in takers {
        run.world.pool(pool, &of_group()).await?;
    }
    run.rest("a host waits", |world| has(world, takers, 0))
        .await?;
    run.begins = run.world.director.now();
    for pool in takers {
        run.world.play(pool)?.scale(1);
    }
    run.rest("they serve, and another host waits", |world| {
        has(world, takers, 1)
    })
    .await?;
    for pool in takers {
        run.world.play(pool)?.scale(0);
    }
    run.rest("down", |world| has(world, takers, 0)).await
}

pub(super) async fn host_lent(run: &mut Run) -> Result<()> {
    run.world.pool(LENDER, &lender()).await?;
    lend(run, &["w"]).await
}

pub(super) async fn host_before_clusters(run: &mut Run) -> Result<()> {
    run.world.pool_alone(LENDER, &alone())?;
    lend(run, &["w"]).await
}

/// A pool without a NodePool that keeps one host, and up to two.
fn alone() -> Value {
    let mut alone = lender();
    for field in ["nodePoolRef", "hostedClusterRef", "controlPlaneNamespace"] {
        alone[field] = Value::Null;
    }
    alone["scaling"]["bufferMax"] = json!(2);
    alone
}

/// A pool has taken a host and serves with it. A person gives it back, and lowers the NodePool.
pub(super) async fn host_moved(run: &mut Run) -> Result<()> {
    let recycles = json!({"reassign": {"group": "lab"}, "release": {"policy": "Recycle"}, "scaling": {"bufferMax": 0}});
    run.world.pool_alone(LENDER, &alone())?;
    run.world.pool("w", &recycles).await?;
    run.rest("a host waits", |world| has(world, &["w"], 0))
        .await?;
    run.begins = run.world.director.now();
    run.world.play("w")?.scale(1);
    run.rest("it serves, and another one waits", |world| {
        has(world, &["w"], 1)
    })
    .await?;
    let mut serving = run.world.vsphere_agents();
    serving.retain(|c| c["spec"]["poolRef"]["name"] == "w");
    let host = serving.first().context("no host serves")?;
    let until = "2100-01-01T00:00:00Z";
    let to = format!("{NAMESPACE}/{LENDER}");
    let patch = json!({"metadata": {"annotations": {MOVE_TO_ANNOTATION: to, MOVE_UNTIL_ANNOTATION: until}}});
    let name = name_of(host);
    run.world.api.merge(&kind("vsphereagents"), &name, &patch)?;
    run.world.play("w")?.scale(0);
    run.rest("both wait", |world| {
        world.runs("w", 0)
            && world.of_pool(LENDER, "/status/buffer/ready") == 2
            && marked(world) == 2
            && children(world) == 2
    })
    .await?;
    let one = json!({"spec": {"scaling": {"bufferMax": 1}}});
    run.world.merge_pool(LENDER, &one)?;
    run.rest("down", |world| has(world, &["w"], 0)).await
}

/// The class that the NodePool of that workload chooses.
const LARGE: &str = "large";

pub(super) async fn host_of_a_class(run: &mut Run) -> Result<()> {
    let class = json!({
        "name": LARGE, "template": {"numCPUs": 16}, "labels": {"size": LARGE}, "bufferAgents": 1,
    });
    run.world.pool_alone("w", &json!({"classes": [class]}))?;
    let cluster = run.world.cluster.clone();
    let labels = json!({"hypershift.openshift.io/nodepool-role": "w", "size": LARGE});
    run.world.node_pool(&cluster, "w", &labels).await?;
    let has = |world: &World, running: usize| {
        let of_class = |c: &Arc<Value>| {
            c["spec"]["class"] == LARGE && c["status"]["vm"]["template"]["numCPUs"] == 16
        };
        world.runs("w", running)
            && world.of_pool("w", "/status/buffer/classes/0/ready") == 1
            && marked(world) == running + 1
            && children(world) == running + 1
            && world.vsphere_agents().iter().all(of_class)
    };
    run.rest("a host waits", |world| has(world, 0)).await?;
    run.begins = run.world.director.now();
    run.world.play("w")?.scale(1);
    run.rest("it serves, and another one waits", |world| has(world, 1))
        .await?;
    run.world.play("w")?.scale(0);
    run.rest("down", |world| has(world, 0)).await
}

/// The pool of another hosted cluster.
const OTHER: &str = "v";

/// As many machines of each of the two hosted clusters run as are wanted.
fn run_of_each(world: &World, wanted: [usize; 2]) -> bool {
    let mut all = [LENDER, OTHER].into_iter().zip(wanted);
    all.all(|(pool, wanted)| world.runs(pool, wanted))
}

/// The disks of the VMs that a pool has.
fn disks_of(world: &World, pool: &str) -> Vec<Value> {
    let mut all = world.vsphere_agents();
    all.retain(|child| child["spec"]["poolRef"]["name"] == pool);
    let is_of = |m: Marker| all.iter().any(|child| child["metadata"]["uid"] == m.uid);
    let mut vms = world.our_vms();
    vms.retain(|vm| oracles::marker(vm).is_some_and(is_of));
    let devices = vms.iter().flat_map(|vm| &vm.devices);
    let uuids = devices.map(|d| d["backing"]["uuid"].clone());
    uuids.filter(Value::is_string).collect()
}

pub(super) async fn kept_disk_stays_with_its_cluster(run: &mut Run) -> Result<()> {
    let keeps =
        json!({"reassign": {"group": "lab"}, "release": {"policy": "Recycle", "disk": "Keep"}});
    run.world.pool(LENDER, &keeps).await?;
    run.world
        .another_cluster("other", OTHER, &of_group())
        .await?;
    run.world.play(LENDER)?.scale(1);
    run.rest("it serves", |world| run_of_each(world, [1, 0]))
        .await?;
    let with_data = disks_of(&run.world, LENDER);
    run.world.play(LENDER)?.scale(0);
    run.rest("it waits with its data", |world| {
        run_of_each(world, [0, 0]) && one_is_ready(world)
    })
    .await?;
    run.world.play(OTHER)?.scale(1);
    let apart = run
        .rest("the other one has a VM of its own", |world| {
            run_of_each(world, [0, 1]) && one_is_ready(world) && marked(world) == 2
        })
        .await;
    let theirs = disks_of(&run.world, OTHER);
    if with_data.iter().any(|disk| theirs.contains(disk)) {
        let data = Oracle::ForeignAndServingUntouched
            .broken("a disk with data went to another hosted cluster");
        run.world.director.violated(data);
    }
    apart?;
    run.world.play(OTHER)?.scale(0);
    let gone = json!({"spec": {"release": {"policy": "Delete"}}});
    run.world.merge_pool(LENDER, &gone)?;
    run.rest("down", |world| {
        run_of_each(world, [0, 0]) && marked(world) == 0 && children(world) == 0
    })
    .await
}

pub(super) async fn host_wanted_by_two(run: &mut Run) -> Result<()> {
    run.world.pool(LENDER, &lender()).await?;
    lend(run, &["w", "y"]).await
}
