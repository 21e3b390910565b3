//! Pools of one group give each other free hosts, across namespaces, on the real API server and the simulated vCenter.

use std::collections::BTreeSet;

use agent_forge_actors::domain::{goal, names::ObjectKey};
use agent_forge_crds::{
    VsphereAgentPool,
    conditions::{PAUSED, find_condition},
    names::ALLOW_POOLS_FROM_ANNOTATION,
};
use agent_forge_lab::lab::{
    apply::apply,
    manifest::{CREDENTIALS, namespace},
};
use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{Event, Secret};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::{
    look::merge,
    witness::Witness,
    world::{POOL, Setup, World},
};

/// Namespace and NodePool of the pool that takes a host.
const TAKER: &str = "green";

/// A pool of the group with one host that waits.
fn lender() -> Value {
    json!({"reassign": {"group": "lab-a"}, "scaling": {"bufferAgents": 1}})
}

/// A pool of the other namespace. Both namespaces admit each other, as the Secret does.
async fn taker(world: &World) -> Result<()> {
    apply(&world.client, &namespace(TAKER)).await?;
    world.admit(world.namespace(), json!(TAKER)).await?;
    world.admit(TAKER, json!(world.namespace())).await?;
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

/// The hosts by the pool that uses them: namespace and name, with the reference of the VM.
async fn used(world: &World) -> Result<Vec<(ObjectKey, String)>> {
    let all = world.all_children().await?.into_iter();
    let hosts = all.filter_map(|c| {
        let vm = c.status.as_ref()?.vm.as_ref()?.moref.clone()?;
        Some((goal::user(&c), vm))
    });
    Ok(hosts.collect())
}

async fn events(world: &World, namespace: &str) -> Result<Vec<String>> {
    let all = Api::<Event>::namespaced(world.client.clone(), namespace);
    let all = all.list(&Default::default()).await?.items;
    Ok(all.into_iter().filter_map(|e| e.reason).collect())
}

/// How many hosts of other namespaces a pool uses, and how many of its own others use.
async fn shared(world: &World, namespace: &str, pool: &str) -> Result<(i32, i32)> {
    let pools = Api::<VsphereAgentPool>::namespaced(world.client.clone(), namespace);
    let status = pools.get(pool).await?.status.and_then(|s| s.reassign);
    let status = status.unwrap_or_default();
    Ok((status.borrowed, status.lending))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_gets_the_free_host_of_another_namespace_with_its_vm_and_agent() -> Result<()> {
    let world = World::start(Setup {
        pool_patch: lender(),
        ..Setup::own_lab()
    })
    .await?;
    world.hosts_wait(1, 1).await?;
    let before = world.only_child().await?;
    let host = world.only_vm().await?.moref;

    taker(&world).await?;
    let nodes = world.node_pool_named(TAKER).await?;
    nodes.scale(1);
    world.running(&nodes, 1).await?;
    let user = ObjectKey::new(TAKER, TAKER);
    let serves = used(&world).await?;
    ensure!(serves.contains(&(user, host.clone())), "{serves:?}");
    let after = world.children().get(&before.name_any()).await?;
    ensure!(after.uid() == before.uid() && goal::maker(&after) == goal::maker(&before));
    world
        .until("Events and counts on both sides", async || {
            let lent = events(&world, world.namespace()).await?;
            let borrowed = events(&world, TAKER).await?;
            let has = |all: &[String], reason: &str| all.iter().any(|r| r == reason);
            let counts = [
                shared(&world, world.namespace(), POOL).await?,
                shared(&world, TAKER, TAKER).await?,
            ];
            let told = has(&lent, "HostLent") && has(&borrowed, "HostBorrowed");
            Ok(told && counts == [(0, 1), (1, 0)])
        })
        .await?;

    // The buffer is filled again. While one namespace does not admit the other, the host stays as it is.
    world.hosts_wait(1, 2).await?;
    world.admit(TAKER, json!(null)).await?;
    let name = before.name_any();
    world
        .until("the pause of the host", async || {
            let status = world.children().get(&name).await?.status;
            let status = status.unwrap_or_default();
            let said = find_condition(&status.conditions, PAUSED);
            Ok(said.is_some_and(|c| c.message.contains("admits no pools")))
        })
        .await?;
    nodes.scale(0);
    world.machines_left(&nodes, 0).await?;
    world.settled(2).await?;
    ensure!(
        world
            .all_vms()
            .await?
            .iter()
            .any(|vm| vm.moref == host && vm.is_on())
    );
    // With its Machine gone and the grant back, it goes for good.
    world.admit(TAKER, json!(world.namespace())).await?;
    world.hosts_wait(1, 1).await
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
    let used = used(&world).await?;
    let winners = used
        .iter()
        .filter(|(pool, vm)| *vm == host && pool.name != POOL);
    ensure!(winners.count() == 1, "not one winner: {used:?}");
    let distinct: BTreeSet<&String> = used.iter().map(|(_, vm)| vm).collect();
    ensure!(
        distinct.len() == used.len(),
        "a host with two winners: {used:?}"
    );
    // Eight that serve, and the buffer is filled again.
    world.hosts_wait(1, 9).await?;
    for nodes in &takers {
        nodes.scale(0);
    }
    world.hosts_wait(1, 1).await?;
    witness.verdict()
}
