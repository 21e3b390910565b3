//! How Machines are created, deleted and replaced: counts and order.

use agent_forge_lab::played::{MachineApi, object::Facts as _, provider};
use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::{LIMIT, Stage, fits_pool, pool_labels};

/// A Machine that never got an Agent is deleted at once.
pub async fn never_reserved(stage: &Stage) -> Result<()> {
    let scene = stage.scene(MachineApi::V1Beta2, "never").await?;
    let pool = scene.pool("workers", Some(fits_pool())).await?;
    pool.scale(2);
    pool.wait("two Machines with hooks", LIMIT, || {
        let machines = pool.machines();
        machines.len() == 2
            && machines
                .iter()
                .all(|machine| machine.annotation(provider::HOOK).is_some())
    })
    .await?;
    pool.scale(0);
    pool.wait("no Machine", LIMIT, || {
        pool.machines().is_empty() && pool.agent_machines().is_empty()
    })
    .await
}

/// All Machines are replaced. There is never more than one too many, and never one too few.
pub async fn rolling_upgrade(stage: &Stage) -> Result<()> {
    let scene = stage.scene(MachineApi::V1Beta2, "rolling").await?;
    let pool = scene.pool("workers", Some(fits_pool())).await?;
    for number in 10..16 {
        scene.metal(number, pool_labels(), true).await?;
    }
    pool.scale(2);
    pool.wait_running(2, LIMIT).await?;
    let old: Vec<String> = pool.running();
    pool.rolling_upgrade(1)?;
    let most = std::cell::Cell::new(0);
    let least = std::cell::Cell::new(usize::MAX);
    pool.wait("a complete rollout", LIMIT, || {
        most.set(most.get().max(pool.machines().len()));
        least.set(least.get().min(pool.running().len()));
        let running = pool.running();
        pool.machines().len() == 2
            && running.len() == 2
            && running.iter().all(|name| !old.contains(name))
    })
    .await?;
    ensure!(
        (least.get(), most.get()) == (2, 3),
        "{} to {} Machines",
        least.get(),
        most.get()
    );
    Ok(())
}

/// HyperShift's order: AgentMachines are deleted first, and the Machines are not drained.
pub async fn node_pool_deletion(stage: &Stage) -> Result<()> {
    let scene = stage.scene(MachineApi::V1Beta2, "delete").await?;
    let pool = scene.pool("workers", Some(fits_pool())).await?;
    for number in 20..22 {
        scene.metal(number, pool_labels(), true).await?;
    }
    pool.scale(2);
    pool.wait_running(2, LIMIT).await?;
    let mut machines = scene.machines.changes();
    let mut agent_machines = scene.agent_machines.changes();
    pool.delete_node_pool().await?;
    pool.wait("nothing left", LIMIT, || {
        pool.machines().is_empty() && pool.agent_machines().is_empty()
    })
    .await?;
    let mut kept = std::collections::BTreeSet::new();
    while let Ok(change) = agent_machines.try_recv() {
        kept.extend(
            change
                .new
                .filter(|object| object.is_deleting() && object.has_finalizer(provider::FINALIZER))
                .map(|object| object.name().to_owned()),
        );
    }
    ensure!(kept.len() == 2, "finalizers keep them: {kept:?}");
    let mut drained = false;
    while let Ok(change) = machines.try_recv() {
        let deleting = change
            .new
            .as_ref()
            .and_then(|machine| machine.condition("Deleting").map(|c| c.reason.to_owned()));
        drained |= deleting.as_deref() == Some("DrainingNode");
    }
    ensure!(
        !drained,
        "a Machine was drained although its AgentMachine was going"
    );
    Ok(())
}

/// A remediated Machine is replaced only after it is gone.
pub async fn remediation(stage: &Stage) -> Result<()> {
    let scene = stage.scene(MachineApi::V1Beta2, "remedy").await?;
    let pool = scene.pool("workers", Some(fits_pool())).await?;
    for number in 30..32 {
        scene.metal(number, pool_labels(), true).await?;
    }
    pool.scale(1);
    pool.wait_running(1, LIMIT).await?;
    let first = pool.running().pop().context("one Machine")?;
    let most = std::cell::Cell::new(0);
    pool.remediate(&first).await?;
    pool.wait("a replacement", LIMIT, || {
        most.set(most.get().max(pool.machines().len()));
        pool.running().iter().any(|name| *name != first)
    })
    .await?;
    ensure!(most.get() == 1, "{} Machines at once", most.get());
    Ok(())
}

/// A paused AgentMachine that is deleted goes at once, before its Machine. Its Agent stays bound.
pub async fn paused_deletion(stage: &Stage) -> Result<()> {
    let scene = stage.scene(MachineApi::V1Beta2, "paused").await?;
    let pool = scene.pool("workers", Some(fits_pool())).await?;
    let host = scene.metal(40, pool_labels(), true).await?;
    pool.scale(1);
    pool.wait_running(1, LIMIT).await?;
    let name = pool.running().pop().context("one Machine")?;
    let pause = json!({"metadata": {"annotations": {provider::PAUSED: "true"}}});
    let paused = scene.agent_machines.merge(&name, pause).await?;
    scene.agent_machines.delete(&paused).await?;
    pool.wait("a Machine without AgentMachine and hook", LIMIT, || {
        pool.agent_machines().is_empty()
            && pool
                .machines()
                .iter()
                .all(|machine| machine.annotation(provider::HOOK).is_none())
    })
    .await?;
    pool.scale(0);
    pool.wait("no Machine", LIMIT, || pool.machines().is_empty())
        .await?;
    let agent = scene.agent(host.name()).await?;
    ensure!(agent.label(provider::AGENT_MACHINE_REF) == Some(name.as_str()));
    ensure!(agent.at("/spec/clusterDeploymentName").is_some());
    Ok(())
}
