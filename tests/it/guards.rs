//! An InfraEnv whose hosts could not be kept, or whose ISO is not the one that it asks for, gets no VM. Each reason is
//! reported, and disappears when the InfraEnv is corrected.

use agent_forge_crds::external::infra_env::InfraEnv;
use anyhow::{Result, ensure};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::world::{LIMIT, POOL, Setup, World};

fn infra_envs(world: &World) -> Api<InfraEnv> {
    Api::namespaced(world.client.clone(), world.namespace())
}

async fn change(world: &World, spec: Value) -> Result<()> {
    let patch = Patch::Merge(json!({ "spec": spec }));
    infra_envs(world)
        .patch("demo", &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

async fn image_created(world: &World, status: &str, message: &str) -> Result<()> {
    let condition = json!({
        "type": "ImageCreated", "status": status, "reason": "ImageCreationError", "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let patch = Patch::Merge(json!({"status": {"conditions": [condition]}}));
    infra_envs(world)
        .patch_status("demo", &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

/// Waits until a machine waits for this reason, and checks that nothing was created for it.
async fn until_kept_back(world: &World, reason: &str) -> Result<()> {
    world
        .until(&format!("{reason} in waitingOn"), async || {
            let status = world.pool_status().await?;
            Ok(status
                .waiting_on
                .iter()
                .any(|w| w.reason.as_str() == reason))
        })
        .await?;
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
    let nodes = world.node_pool().await?;
    nodes.scale(1);
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
