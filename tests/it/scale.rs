//! Scale up and down beside hosts of others.

use agent_forge_crds::names::AGENT_MACHINE_LABEL;
use agent_forge_lab::played::object::Facts as _;
use anyhow::{Result, ensure};
use kube::ResourceExt as _;
use serde_json::json;

use crate::world::{Setup, World};

/// The provider binds existing hosts. The operator only creates what is missing, and never changes those hosts.
#[tokio::test(flavor = "multi_thread")]
async fn a_free_agent_is_taken_before_a_vm_is_made() -> Result<()> {
    let world = World::start(Setup::default()).await?;
    let service = world.upstream.service(&world.cluster.agent_namespace)?;
    let labels = json!({"customer": "example"});
    let metal =
        agent_forge_lab::played::foreign::bare_metal(service, "demo", 7, labels, true).await?;
    let nodes = world.up(2).await?;
    ensure!(world.vms().await?.len() == 1, "one host was there already");
    let bound = world.agents().get(metal.name()).await?;
    ensure!(bound.is_claimed_or_bound());
    ensure!(!bound.labels().contains_key(AGENT_MACHINE_LABEL));
    nodes.scale(0);
    world
        .until("the one VM's end", async || {
            Ok(world.vms().await?.is_empty() && world.all_agents().await?.len() == 1)
        })
        .await?;
    let kept = world.agents().get(metal.name()).await?;
    ensure!(kept.spec.approved, "a foreign host was fenced");
    ensure!(kept.labels().get("customer").map(String::as_str) == Some("example"));
    Ok(())
}
