//! Pools of one group lend each other free hosts, across namespaces, on the real API server and the simulated vCenter.

use std::collections::BTreeSet;

use agent_forge_crds::{VsphereAgent, agent::VmStatus, names::ALLOW_POOLS_FROM_ANNOTATION};
use agent_forge_lab::lab::{
    apply::apply,
    manifest::{CREDENTIALS, namespace},
};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Event, Secret};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::{
    look::merge,
    witness::Witness,
    world::{Setup, World},
};

/// Namespace and NodePool of the pool that takes a host.
const TAKER: &str = "green";

/// A pool of the group with one host that waits.
fn lender() -> Value {
    json!({"reassign": {"group": "lab-a"}, "scaling": {"bufferAgents": 1}})
}

/// A pool of the other namespace, which the lender's namespace admits, as the Secret there does.
async fn taker(world: &World) -> Result<()> {
    apply(&world.client, &namespace(TAKER)).await?;
    world.admit(world.namespace(), json!(TAKER)).await?;
    let grant = json!({"metadata": {"annotations": {ALLOW_POOLS_FROM_ANNOTATION: TAKER}}});
    let secrets = Api::<Secret>::namespaced(world.client.clone(), world.namespace());
    merge(&secrets, CREDENTIALS, grant).await?;
    let patch = json!({
        "infraEnvRef": {"namespace": world.namespace()},
        "vsphere": {"credentialsSecretRef": {"name": CREDENTIALS, "namespace": world.namespace()}},
        "reassign": {"group": "lab-a"},
    });
    world.create_pool_in(TAKER, TAKER, &patch).await
}

/// The VM on record of the only VsphereAgent of that namespace.
async fn recorded(world: &World, namespace: &str) -> Result<VmStatus> {
    let all = Api::<VsphereAgent>::namespaced(world.client.clone(), namespace);
    let mut all = all.list(&Default::default()).await?.items;
    ensure!(all.len() == 1, "{} VsphereAgents", all.len());
    let status = all.pop().and_then(|c| c.status);
    status.and_then(|s| s.vm).context("no VM on record")
}

async fn events(world: &World, namespace: &str) -> Result<Vec<String>> {
    let all = Api::<Event>::namespaced(world.client.clone(), namespace);
    let all = all.list(&Default::default()).await?.items;
    Ok(all.into_iter().filter_map(|e| e.reason).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_gets_the_free_host_of_another_namespace_with_its_vm_and_agent() -> Result<()> {
    let world = World::start(Setup {
        pool_patch: lender(),
        ..Setup::own_lab()
    })
    .await?;
    world.hosts_wait(1, 1).await?;
    let agent = world.all_agents().await?.pop().context("an Agent")?;
    let before = recorded(&world, world.namespace()).await?;

    taker(&world).await?;
    let nodes = world.node_pool_named(TAKER).await?;
    nodes.scale(1);
    world.running(&nodes, 1).await?;
    let after = recorded(&world, TAKER).await?;
    ensure!(after.moref == before.moref, "{after:?} is not {before:?}");
    ensure!(after.bios_uuid == before.bios_uuid && after.name == before.name);
    let from = after.taken_from.context("taken from nobody")?;
    ensure!(from.stamped == Some(true) && from.namespace == world.namespace());
    let serves = world.all_agents().await?;
    let serves = serves.iter().find(|a| a.uid() == agent.uid());
    ensure!(serves.is_some_and(|a| a.claimed_by().is_some()));
    world
        .until("Events on both sides", async || {
            let lent = events(&world, world.namespace()).await?;
            let borrowed = events(&world, TAKER).await?;
            let has = |all: &[String], reason: &str| all.iter().any(|r| r == reason);
            Ok(has(&lent, "HostLent") && has(&borrowed, "HostBorrowed"))
        })
        .await?;

    // The buffer is filled again, and the host goes with its Machine, for good.
    world.hosts_wait(1, 2).await?;
    nodes.scale(0);
    world.hosts_wait(1, 1).await
}

/// The VMs that pools took over from another one.
async fn taken(world: &World) -> Result<Vec<String>> {
    let vms = world.all_children().await?.into_iter();
    let vms = vms.filter_map(|c| c.status?.vm);
    let taken = vms.filter(|vm| {
        vm.taken_from
            .as_ref()
            .is_some_and(|f| f.stamped == Some(true))
    });
    Ok(taken.filter_map(|vm| vm.moref).collect())
}

/// One host waits, and eight pools of the group want it at the same moment.
#[tokio::test(flavor = "multi_thread")]
async fn of_eight_pools_that_want_a_host_at_once_one_gets_it_and_the_others_a_vm_of_their_own()
-> Result<()> {
    let world = World::start(Setup::pool(lender())).await?;
    let witness = Witness::start(world.sight());
    world.hosts_wait(1, 1).await?;
    let host = world.only_vm().await?.moref;
    let mut takers = Vec::new();
    for number in 1..=8 {
        let name = format!("taker-{number}");
        let group = json!({"reassign": {"group": "lab-a"}});
        world.create_pool(&name, &group).await?;
        takers.push(world.node_pool_named(&name).await?);
    }
    for nodes in &takers {
        nodes.scale(1);
    }
    for nodes in &takers {
        world.running(nodes, 1).await?;
    }
    // A taker that comes late may get the next host of the buffer.
    let taken = taken(&world).await?;
    let winners = taken.iter().filter(|vm| **vm == host).count();
    ensure!(winners == 1, "not one winner: {taken:?}");
    let distinct: BTreeSet<&String> = taken.iter().collect();
    ensure!(
        distinct.len() == taken.len(),
        "a host with two winners: {taken:?}"
    );
    // Eight that serve, and the buffer is filled again.
    world.hosts_wait(1, 9).await?;
    for nodes in &takers {
        nodes.scale(0);
    }
    world.hosts_wait(1, 1).await?;
    witness.verdict()
}
