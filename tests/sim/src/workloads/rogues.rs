//! Workloads with foreign hosts that look like ours. The operator may not approve, label or delete one of them
//! (`oracles::is_foreign`).

use std::{sync::Arc, time::Duration};

use agent_forge_actors::domain::names::ObjectKey;
use anyhow::Result;
use serde_json::{Value, json};

use super::{ANY_OUTAGE, Run};
use crate::{
    promise::Oracle,
    rogue,
    vcenter::model::Inventory,
    world::{NAMESPACE, World},
};

/// One machine comes up and goes down, beside one foreign host of each kind.
pub async fn lookalike_agents(run: &mut Run) -> Result<()> {
    run.world.pool("w", &json!({})).await?;
    run.world.play("w")?.scale(1);
    // They register before the guest of that VM does.
    let vm = rogue::running(&run.world, run.patience + ANY_OUTAGE).await?;
    rogue::all_but_one_thing(&run.world.api, &vm)?;
    run.rest_with("one up", &[("w", 1)]).await?;
    run.down().await
}

/// Whether the VsphereAgent names both Agents that match its VM, or has another VM by now.
fn is_told(world: &World, rival: &str) -> bool {
    let key = ObjectKey::new(NAMESPACE, rival).to_string();
    let says = |c: &Arc<Value>| {
        let said = c["status"]["waitingOn"].to_string();
        said.contains("RivalAgents") && said.contains(&key)
    };
    let has_it = |i: &Inventory| i.vms.values().any(|vm| vm.uuid == rival);
    !world.vcenter.read(has_it) || world.vsphere_agents().iter().any(says)
}

/// While two Agents match, the operator approves none of them. When a person has removed the other one, the machine
/// comes up.
pub async fn rival_agent(run: &mut Run) -> Result<()> {
    run.world.pool("w", &json!({})).await?;
    run.world.play("w")?.scale(1);
    let (name, late) = rogue::rival(&run.world, run.patience + ANY_OUTAGE).await?;
    let world = &run.world;
    // If its own Agent was bound before the other one came, the machine keeps it.
    run.waits("the rivals are told", |world| late || is_told(world, &name))
        .await?;
    tokio::time::sleep(Duration::from_secs(60)).await;
    if !late && world.running("w").len() == 1 {
        let claimed = Oracle::ForeignAndServingUntouched
            .broken("a machine came up although two Agents match its VM");
        world.director.violated(claimed);
    }
    rogue::remove(world, &name);
    run.rest_with("one up", &[("w", 1)]).await?;
    run.down().await
}
