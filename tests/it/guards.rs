//! An InfraEnv whose hosts could not be kept, or whose ISO is not the one that it asks for, gets no VM. Each reason is
//! reported, and disappears when the InfraEnv is corrected.

use agent_forge_crds::external::infra_env::InfraEnv;
use anyhow::{Result, ensure};
use kube::Api;
use serde_json::{Value, json};

use crate::{
    look::{merge, merge_status},
    world::{LIMIT, POOL, Setup, World},
};

fn infra_envs(world: &World) -> Api<InfraEnv> {
    Api::namespaced(world.client.clone(), world.namespace())
}

async fn change(world: &World, spec: Value) -> Result<()> {
    merge(&infra_envs(world), "demo", json!({ "spec": spec })).await?;
    Ok(())
}

async fn image_created(world: &World, status: &str, message: &str) -> Result<()> {
    let condition = json!({
        "type": "ImageCreated", "status": status, "reason": "ImageCreationError", "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let status = json!({"conditions": [condition]});
    merge_status(&infra_envs(world), "demo", status).await?;
    Ok(())
}

/// Waits until a machine waits for this reason, and checks that nothing was created for it.
async fn until_kept_back(world: &World, reason: &str) -> Result<()> {
    world.until_pool_waits(reason, "").await?;
    ensure!(
        world.phases().await?.is_empty() && world.vms().await?.is_empty(),
        "something was made in spite of {reason}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_infra_env_whose_hosts_could_not_be_kept_gets_no_vm() -> Result<()> {
    let world = World::without_pool(Setup::default()).await?;
    change(&world, json!({"clusterRef": {"name": "other"}})).await?;
    world.create_pool(POOL, &json!({})).await?;
    let nodes = world.wanted(1).await?;
    until_kept_back(&world, "LateBindingUnavailable").await?;

    let other = json!({"clusterRef": null, "osImageVersion": "4.99"});
    change(&world, other).await?;
    until_kept_back(&world, "ISOStale").await?;

    image_created(&world, "False", "no space is left for the image").await?;
    change(&world, json!({"osImageVersion": null})).await?;
    until_kept_back(&world, "ImageNotCreated").await?;

    image_created(&world, "True", "Image has been created").await?;
    nodes.wait_running(1, LIMIT).await?;
    ensure!(world.vms().await?.len() == 1);
    Ok(())
}
