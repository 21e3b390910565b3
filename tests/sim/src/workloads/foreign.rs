//! Workloads with hosts that are not VMs of the operator, and that serve its NodePools.

use agent_forge_lab::played::{foreign, object::Facts as _};
use anyhow::Result;
use serde_json::json;

use super::{Run, children, marked};
use crate::{kube::kind, world::NAMESPACE};

/// A free bare-metal host fits the pool `w`. From then on the API server takes each write of the operator to it for a broken
/// promise.
async fn metal(run: &Run) -> Result<()> {
    let labels = json!({"customer": "example", "hypershift.openshift.io/nodepool-role": "w"});
    let service = run.world.upstream.service(NAMESPACE)?;
    let host = foreign::bare_metal(service, "demo", 1, labels, true).await?;
    let name = (NAMESPACE.to_owned(), host.name().to_owned());
    let agents = kind("agents");
    run.world.api.write(|s, _| s.foreign.insert((agents, name)));
    Ok(())
}

pub(super) async fn foreign_host_counts(run: &mut Run) -> Result<()> {
    let counts = json!({"hosts": {"countForeign": true}});
    run.world.pool("w", &counts).await?;
    metal(run).await?;
    run.quiet().await?;
    run.begins = run.world.director.now();
    run.world.play("w")?.scale(2);
    run.rest("the host serves, and one VM", |world| {
        world.runs("w", 2) && marked(world) == 1 && children(world) == 1
    })
    .await?;
    run.down().await
}
