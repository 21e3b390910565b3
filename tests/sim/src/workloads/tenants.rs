//! Workloads with a second tenant on the management cluster.

use anyhow::{Context as _, Result};
use serde_json::json;

use super::Run;
use crate::{
    kube::kind,
    oracles::INTRUDER,
    world::{NAMESPACE, SECRET, World, at_home},
};

/// A pool in a namespace that is not admitted. It has credentials of its own and names the same objects as pool `like`.
fn intrude(world: &World, like: &str) -> Result<()> {
    let (pools, secrets) = (kind("vsphereagentpools"), kind("secrets"));
    let pool = world.api.get(&pools, &at_home(like)).context("no pool")?;
    let secret = world.api.get(&secrets, &at_home(SECRET.1));
    let mut spec = pool["spec"].clone();
    spec["infraEnvRef"]["namespace"] = json!(NAMESPACE);
    world.api.namespace(INTRUDER);
    let object = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": SECRET.1}, "data": secret.context("no Secret")?["data"],
    });
    world.api.create(&secrets, INTRUDER, object)?;
    let object = json!({
        "apiVersion": "agent-forge.containeroo.ch/v1alpha1", "kind": "VsphereAgentPool",
        "metadata": {"name": like}, "spec": spec,
    });
    world.api.create(&pools, INTRUDER, object)?;
    Ok(())
}

pub(super) async fn pool_of_unadmitted_tenant(run: &mut Run) -> Result<()> {
    run.world.pool("w", &json!({})).await?;
    intrude(&run.world, "w")?;
    run.scaled("one up", 1).await?;
    run.down().await
}
