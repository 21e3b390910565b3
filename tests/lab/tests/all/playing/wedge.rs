//! A freed Agent and a waiting AgentMachine: what happens with and without a fence.

use std::time::Duration;

use agent_forge_lab::played::{Delays, MachineApi, object::Facts as _, provider};
use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::{LIMIT, Stage, fits_pool, pool_labels, stays, until};

/// Without a fence, a freed Agent is claimed before its Machine is gone. After that neither makes progress.
pub async fn unfenced_agent_wedges(stage: &Stage) -> Result<()> {
    // As in the field, the provider's poll is slow compared with the claim of another AgentMachine. If a poll saw the
    // Agent free and not yet claimed, there would be no deadlock. This interval is long enough even on a very slow
    // machine.
    let delays = Delays {
        hook_poll: Duration::from_secs(60),
        ..Delays::fast()
    };
    let scene = stage
        .scene_with(MachineApi::V1Beta2, "wedge", delays)
        .await?;
    let pool = scene.pool("workers", Some(fits_pool())).await?;
    let host = scene.metal(3, pool_labels(), true).await?;
    pool.scale(1);
    pool.wait_running(1, LIMIT).await?;
    let first = pool.machines().pop().context("one Machine")?;
    pool.scale(2);
    pool.wait("a second AgentMachine that waits", LIMIT, || {
        pool.agent_machines().iter().any(|object| {
            object.name() != first.name() && object.has_finalizer(provider::FINALIZER)
        })
    })
    .await?;
    pool.prefer_for_deletion(first.name()).await?;
    pool.scale(1);
    pool.wait("the first Machine gone", LIMIT, || {
        pool.machines()
            .iter()
            .all(|machine| machine.name() != first.name())
    })
    .await?;
    let second = pool.machines().pop().context("the second Machine")?;
    until(
        &scene.agent_machines,
        "an AgentMachine that thinks it has the Agent",
        |object| {
            object.name() == second.name()
                && object.text("/status/agentRef/name") == host.name()
                && object
                    .condition("AgentReserved")
                    .is_some_and(|c| c.status == "True")
        },
    )
    .await?;
    until(&scene.agents, "an Agent in no cluster", |agent| {
        agent.name() == host.name() && agent.at("/spec/clusterDeploymentName").is_none()
    })
    .await?;
    stays("the wedge", Duration::from_secs(2), || {
        pool.running().is_empty()
            && scene
                .agents
                .get(host.name())
                .is_some_and(|agent| agent.at("/spec/clusterDeploymentName").is_none())
    })
    .await
}

/// With the fence, the waiting AgentMachine keeps waiting, and the freed Agent stays free.
pub async fn fenced_agent_does_not_wedge(stage: &Stage) -> Result<()> {
    let scene = stage.scene(MachineApi::V1Beta2, "fence").await?;
    let pool = scene.pool("workers", Some(fits_pool())).await?;
    let host = scene.metal(4, pool_labels(), true).await?;
    pool.scale(1);
    pool.wait_running(1, LIMIT).await?;
    let first = pool.machines().pop().context("one Machine")?;
    pool.scale(2);
    pool.wait("two Machines", LIMIT, || pool.machines().len() == 2)
        .await?;
    pool.prefer_for_deletion(first.name()).await?;
    // Before the Machine is deleted, because afterwards its Agent may become free at any moment.
    let fence = json!({"metadata": {"labels": {"pool": null}}});
    let mut fenced = false;
    while !fenced {
        // The service writes the Agent at the same time.
        fenced = scene
            .agents
            .patch(&*scene.agent(host.name()).await?, fence.clone())
            .await
            .is_ok();
    }
    pool.scale(1);
    pool.wait("the first Machine gone", LIMIT, || {
        pool.machines()
            .iter()
            .all(|machine| machine.name() != first.name())
    })
    .await?;
    until(&scene.agents, "a free Agent", |agent| {
        agent.name() == host.name()
            && agent.label(provider::AGENT_MACHINE_REF).is_none()
            && agent.text("/status/debugInfo/state") == "known-unbound"
    })
    .await?;
    let waiting = pool
        .agent_machines()
        .pop()
        .context("the second AgentMachine")?;
    ensure!(
        waiting
            .condition("AgentReserved")
            .is_some_and(|c| c.reason == "NoSuitableAgents"),
        "{waiting:?}"
    );
    Ok(())
}
