//! Rogue hosts: none of them is approved, labelled or deleted by us (`rogue::touched`).

use std::time::Duration;

use agent_forge_actors::domain::names::ObjectKey;
use anyhow::Result;
use futures::future::BoxFuture;
use serde_json::json;

use super::{ANY_OUTAGE, Run};
use crate::{
    kube::kind,
    oracles::OURS,
    rogue,
    world::{NAMESPACE, World},
};

/// S1 beside one of each kind.
pub fn beside(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        run.world.pool("w", &json!({})).await?;
        run.world.play("w")?.scale(1);
        rogue::all_but_one_thing(&run.world, run.patience + ANY_OUTAGE).await?;
        run.rest_with("one up", &[("w", 1)]).await?;
        run.world.play("w")?.scale(0);
        run.rest_with("down", &[("w", 0)]).await
    })
}

/// The VsphereAgent names both Agents that match its VM, or has another one by now.
fn is_told(world: &World, rival: &str) -> bool {
    if !world
        .vcenter
        .read(|i| i.vms.values().any(|v| v.uuid == rival))
    {
        return true;
    }
    let key = ObjectKey::new(NAMESPACE, rival).to_string();
    let children = world.api.read(|s| s.list(&kind(OURS, "vsphereagents"), ""));
    children.iter().any(|c| {
        let said = c["status"]["waitingOn"].to_string();
        said.contains("RivalAgents") && said.contains(&key)
    })
}

/// Nobody is approved while there are two; when a person has removed the other one, all goes on.
pub fn rival(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        run.world.pool("w", &json!({})).await?;
        run.world.play("w")?.scale(1);
        let patience = run.patience + ANY_OUTAGE;
        let (name, late) = rogue::rival(&run.world, patience).await?;
        let world = &run.world;
        // A pair that is bound already stays one.
        let told = || late || is_told(world, &name);
        world
            .patiently("the rivals are told", patience, told)
            .await?;
        tokio::time::sleep(Duration::from_secs(60)).await;
        if !late && world.play("w")?.running().len() == 1 {
            let claimed = "O3 rogue: a machine came up although two Agents match its VM";
            world.director.violated(claimed);
        }
        rogue::remove(world, &name);
        run.rest_with("one up", &[("w", 1)]).await?;
        run.world.play("w")?.scale(0);
        run.rest_with("down", &[("w", 0)]).await
    })
}
