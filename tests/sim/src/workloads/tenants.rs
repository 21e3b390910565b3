//! Workloads with a second tenant on the management cluster.

use anyhow::{Context as _, Result};
use futures::future::BoxFuture;
use serde_json::json;

use super::Run;
use crate::{
    kube::kind,
    oracles::{self, INTRUDER},
    world::{NAMESPACE, SECRET, World},
};

/// A pool in a namespace that is not admitted. It has credentials of its own and names the same objects as pool `like`.
fn intrude(world: &World, like: &str) -> Result<()> {
    let (pools, secrets) = (
        kind(oracles::OURS, "vsphereagentpools"),
        kind("", "secrets"),
    );
    let at_home = |name: &str| (NAMESPACE.to_owned(), name.to_owned());
    let (pool, secret) = world.api.read(|s| {
        let pool = s.get(&pools, &at_home(like));
        (pool, s.get(&secrets, &at_home(SECRET.1)))
    });
    let (pool, secret) = (pool.context("no pool")?, secret.context("no Secret")?);
    let mut spec = pool["spec"].clone();
    spec["infraEnvRef"]["namespace"] = json!(NAMESPACE);
    world.api.namespace(INTRUDER);
    for (kind, object) in [
        (
            secrets,
            json!({
                "apiVersion": "v1", "kind": "Secret",
                "metadata": {"name": SECRET.1}, "data": secret["data"],
            }),
        ),
        (
            pools,
            json!({
                "apiVersion": "agent-forge.containeroo.ch/v1alpha1", "kind": "VsphereAgentPool",
                "metadata": {"name": like}, "spec": spec,
            }),
        ),
    ] {
        world.api.create(&kind, INTRUDER, object)?;
    }
    Ok(())
}

pub(super) fn pool_of_unadmitted_tenant(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        run.world.pool("w", &json!({})).await?;
        intrude(&run.world, "w")?;
        run.world.play("w")?.scale(1);
        run.rest_with("one up", &[("w", 1)]).await?;
        run.world.play("w")?.scale(0);
        run.rest_with("down", &[("w", 0)]).await
    })
}
