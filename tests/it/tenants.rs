//! Two tenants on one management cluster. A pool may use another namespace only while that namespace admits it.

use agent_forge_crds::{
    VsphereAgent, VsphereAgentPool, conditions::find_condition, names::ALLOW_POOLS_FROM_ANNOTATION,
};
use agent_forge_lab::{
    lab::{
        apply::apply,
        manifest::{CREDENTIALS, credentials, namespace, secret},
    },
    played::assisted::image_server::ImageFaults,
};
use anyhow::{Context as _, Result, ensure};
use kube::Api;
use serde_json::{Value, json};

use crate::{
    look::merge,
    world::{LIMIT, POOL, Setup, World},
};

const ATTACKER: &str = "attacker";

fn pools(world: &World) -> Api<VsphereAgentPool> {
    Api::namespaced(world.client.clone(), ATTACKER)
}

/// Creates a pool in another namespace that names the NodePool, control plane and InfraEnv of this one.
async fn intrude(world: &World) -> Result<()> {
    apply(&world.client, &namespace(ATTACKER)).await?;
    let keys = credentials(&world.process);
    apply(&world.client, &secret(ATTACKER, CREDENTIALS, &keys)).await?;
    let patch = json!({"infraEnvRef": {"namespace": world.namespace()}});
    world.create_pool_in(ATTACKER, POOL, &patch).await
}

/// Waits until this condition of that pool says that the namespace does not admit it.
async fn until_turned_away(world: &World, type_: &str) -> Result<()> {
    world
        .until(
            &format!("{type_} of the pool that is not admitted"),
            async || {
                let status = pools(world).get(POOL).await?.status.unwrap_or_default();
                let said = find_condition(&status.conditions, type_);
                Ok(said.is_some_and(|c| {
                    c.reason == "NamespaceNotAllowed"
                        && c.message
                            .contains(&format!("namespace {} ", world.namespace()))
                        && c.message.contains(ALLOW_POOLS_FROM_ANNOTATION)
                }))
            },
        )
        .await
}

async fn children(world: &World) -> Result<usize> {
    let all: Api<VsphereAgent> = Api::namespaced(world.client.clone(), ATTACKER);
    Ok(all.list(&Default::default()).await?.items.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_reaches_into_another_namespace_only_while_that_admits_it() -> Result<()> {
    let world = World::without_pool(Setup::own_lab()).await?;
    intrude(&world).await?;
    let nodes = world.wanted(1).await?;
    until_turned_away(&world, "InfraEnvAvailable").await?;
    until_turned_away(&world, "AgentMachineDemandFound").await?;
    until_turned_away(&world, "Ready").await?;
    let images = &world.upstream.images;
    let asked = images.counters();
    ensure!(asked.gets + asked.heads == 0, "no ISO URL is in a request");
    let machine = nodes.agent_machines();
    let machine = machine.first().and_then(|am| am.metadata.name.clone());
    let machine = machine.context("an AgentMachine")?;
    let said = serde_json::to_string(&pools(&world).get(POOL).await?.status)?;
    ensure!(!said.contains(&machine), "{said}");
    ensure!(children(&world).await? == 0 && world.vms().await?.is_empty());

    // Its own pool serves at the same time, and no conflict is reported.
    world.create_pool(POOL, &json!({})).await?;
    nodes.wait_running(1, LIMIT).await?;
    world.until_true(POOL, "AgentMachineDemandFound").await?;
    until_turned_away(&world, "Ready").await?;
    ensure!(children(&world).await? == 0 && world.vms().await?.len() == 1);

    // Another NodePool of that namespace, for a pool that is now admitted.
    let patch = json!({"spec": {"nodePoolRef": {"name": "lent"}}});
    merge(&pools(&world), POOL, patch).await?;
    let lent = world.node_pool_named("lent").await?;
    lent.scale(1);
    until_turned_away(&world, "AgentMachineDemandFound").await?;
    world
        .admit(world.namespace(), json!(format!("somebody, {ATTACKER}")))
        .await?;
    world.running(&lent, 1).await?;
    ensure!(children(&world).await? == 1);

    // The admission is withdrawn. Existing VMs continue to serve, no new ones are created, and VMs that are no longer
    // needed are destroyed.
    world.admit(world.namespace(), Value::Null).await?;
    until_turned_away(&world, "InfraEnvAvailable").await?;
    lent.scale(2);
    until_turned_away(&world, "AgentMachineDemandFound").await?;
    ensure!(children(&world).await? == 1 && lent.running().len() == 1);
    lent.scale(0);
    world
        .until("the end of its host", async || {
            Ok(children(&world).await? == 0 && world.vms().await?.len() == 1)
        })
        .await
}

/// The namespace of the InfraEnv, which is not that of the pool.
const ELSEWHERE: &str = "demo-demo";

async fn until_elsewhere_refuses(world: &World) -> Result<()> {
    let message = world
        .until_refused(POOL, "InfraEnvAvailable", "NamespaceNotAllowed")
        .await?;
    ensure!(message.contains(ELSEWHERE), "{message}");
    Ok(())
}

/// With Roles alone the operator polls the grants, because it cannot watch them.
#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_under_way_ends_when_its_grant_is_taken_back() -> Result<()> {
    let world = World::without_pool(Setup {
        agents_beside: Some("demo"),
        operator_args: vec![
            format!("--namespaces=demo,{ELSEWHERE}"),
            "--iso-stall-timeout=1h".to_owned(),
        ],
        rules: Some("overlays/namespaced"),
        ..Setup::default()
    })
    .await?;
    let images = &world.upstream.images;
    images.set_faults(ImageFaults {
        stall_after: Some(images.image_size() / 2),
        times: Some(1),
        ..ImageFaults::default()
    });
    world.admit(ELSEWHERE, Value::Null).await?;
    world
        .until_read_again(&format!("/api/v1/namespaces/{ELSEWHERE}"))
        .await?;
    let there = json!({"infraEnvRef": {"name": "demo", "namespace": ELSEWHERE}});
    world.create_pool(POOL, &there).await?;
    let nodes = world.wanted(1).await?;
    until_elsewhere_refuses(&world).await?;
    ensure!(images.counters().gets == 0, "no ISO URL is in a request");

    world.admit(ELSEWHERE, json!(world.namespace())).await?;
    world
        .until("half of a transfer", async || {
            Ok(images.counters().bytes > 0)
        })
        .await?;
    world.admit(ELSEWHERE, Value::Null).await?;
    until_elsewhere_refuses(&world).await?;
    world
        .until("the end of the transfer", async || {
            let files = world.vcenter.inventory().await?.files;
            Ok(!files.iter().any(|f| f.path.contains(".partial-")))
        })
        .await?;
    ensure!(images.counters().completed == 0 && world.vms().await?.is_empty());

    world.admit(ELSEWHERE, json!(world.namespace())).await?;
    nodes.wait_running(1, LIMIT).await?;
    let asked = images.counters();
    ensure!((asked.gets, asked.completed) == (2, 1), "{asked:?}");
    Ok(())
}
