//! What users see while it happens: Events with the predecessor's reasons and the pool's planned actions, each on the
//! right object. A policy makes the API server refuse writes of the operator, so that a plan stays long enough to be
//! read.

use agent_forge_crds::conditions::{action, event};
use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::{
    witness::Witness,
    world::{POOL, Setup, World},
};

impl World {
    /// Waits until the pool plans exactly these types and objects, in order.
    async fn until_planned(&self, expected: &[(&str, Option<&str>)]) -> Result<()> {
        self.until(&format!("the plan {expected:?}"), async || {
            let planned = self.pool_status().await?.planned_actions;
            let rows = planned
                .iter()
                .map(|p| (p.type_.as_str(), p.name.as_deref()));
            Ok(rows.eq(expected.iter().copied()))
        })
        .await
    }

    /// Waits until the API server applies its policies. It gets them through a watch.
    async fn until_creates_are_refused(&self) -> Result<()> {
        let namespace = self.namespace();
        let path = format!(
            "/apis/agent-forge.containeroo.ch/v1alpha1/namespaces/{namespace}/vsphereagents?dryRun=All"
        );
        let body = serde_json::to_vec(&stray(namespace))?;
        self.until("a refused VsphereAgent", async || {
            let request = http::Request::post(&path)
                .header("content-type", "application/json")
                .header("impersonate-user", &self.access.user)
                .body(body.clone())?;
            match self.client.request::<Value>(request).await {
                Err(kube::Error::Api(status)) if status.code == 422 => Ok(true),
                answered => answered.map(|_| false).context("a dry run"),
            }
        })
        .await
    }
}

/// A VsphereAgent whose pool does not exist.
fn stray(namespace: &str) -> Value {
    json!({
        "apiVersion": "agent-forge.containeroo.ch/v1alpha1", "kind": "VsphereAgent",
        "metadata": {"name": "stray", "namespace": namespace},
        "spec": {"poolRef": {"name": "nobody"}},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn each_plan_and_each_deed_is_told_on_its_object() -> Result<()> {
    let world = World::start(Setup::default()).await?;
    let witness = Witness::start(world.sight());
    let pool = ("VsphereAgentPool", POOL);
    let path = "[iso-datastore] agent-forge/";
    world
        .until_told((event::ISO_UPLOADED, false), pool, path)
        .await?;
    world.until_planned(&[(action::NOOP, None)]).await?;
    let ours = agent_forge_crds::names::GROUP;
    let theirs = "agent-install.openshift.io";
    world
        .forbid("making", ours, "vsphereagents", "CREATE")
        .await?;
    world
        .forbid("preparing", theirs, "agents", "UPDATE")
        .await?;
    world
        .forbid("releasing", ours, "vsphereagents", "DELETE")
        .await?;
    world.until_creates_are_refused().await?;

    // A host is missing and cannot be created.
    let nodes = world.wanted(1).await?;
    world
        .until("an AgentMachine", async || {
            Ok(nodes.agent_machines().len() == 1)
        })
        .await?;
    let machine = nodes.agent_machines().pop().context("it is there")?;
    let machine = machine.name_any();
    let name = Some(machine.as_str());
    world
        .until_planned(&[(action::DEMAND_DEFICIT, name)])
        .await?;
    let refused = "making is not wanted now";
    world
        .until_told((event::APPLY_PLAN_FAILED, true), pool, refused)
        .await?;
    ensure!(world.told(event::PLAN_APPLIED).await?.is_empty());
    ensure!(world.all_children().await?.is_empty());

    // The host is created, but its Agent cannot be prepared.
    world.allow("making").await?;
    world
        .until_told((event::PLAN_APPLIED, false), pool, "1 created")
        .await?;
    world
        .until(
            "an Agent",
            async || Ok(world.all_agents().await?.len() == 1),
        )
        .await?;
    let agent = world.all_agents().await?.pop().context("it is there")?;
    let agent = agent.name_any();
    let registered = Some(agent.as_str());
    world
        .until_planned(&[(action::PATCH_AGENT, registered)])
        .await?;
    let refused = "preparing is not wanted now";
    world
        .until_told((event::APPLY_PLAN_FAILED, true), pool, refused)
        .await?;
    ensure!(!world.agents().get(&agent).await?.spec.approved);
    world.allow("preparing").await?;
    world.running(&nodes, 1).await?;
    world.until_planned(&[(action::NOOP, None)]).await?;

    // Its Machine is deleted, but VM and Agent cannot be deleted.
    nodes.scale(0);
    let both = [
        (action::DELETE_VM, name),
        (action::DELETE_AGENT, registered),
    ];
    world.until_planned(&both).await?;
    let refused = "releasing is not wanted now";
    world
        .until_told((event::APPLY_PLAN_FAILED, true), pool, refused)
        .await?;
    ensure!(world.told(event::AGENT_DELETED).await?.is_empty());
    world.settled(1).await?;
    world.allow("releasing").await?;
    world.settled(0).await?;
    world
        .until_told((event::PLAN_APPLIED, false), pool, "1 released")
        .await?;
    let child = ("VsphereAgent", machine.as_str());
    world
        .until_told((event::AGENT_DELETED, false), child, &agent)
        .await?;
    world.until_planned(&[(action::NOOP, None)]).await?;
    witness.verdict()
}
