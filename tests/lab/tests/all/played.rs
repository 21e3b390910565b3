//! The played controllers with the real API server. Each does what was observed of the real one.

use std::time::Duration;

use crate::playing::{
    LIMIT, Scene, Stage, fits_pool, guests, lives, machines, pool_labels, stays, until, wedge,
};
use agent_forge_lab::{
    LabOptions, MachineVersions, ProviderGeneration,
    played::{MachineApi, foreign, kinds, object::Facts as _, provider},
};
use anyhow::{Context as _, Result, ensure};
use serde_json::json;

/// The pairs of provider, CRD and Machine version that work.
async fn claims_installs_and_releases(stage: &Stage) -> Result<()> {
    let scene = stage.scene(MachineApi::V1Beta2, "claim").await?;
    claim_and_release(&scene).await
}

async fn claim_and_release(scene: &Scene) -> Result<()> {
    let pool = scene.pool("workers", Some(fits_pool())).await?;
    pool.scale(1);
    // It waits first: conditions of the generation, swapped owner, and finally the finalizer.
    let waiting = until(
        &scene.agent_machines,
        "an AgentMachine that waits with a finalizer",
        |object| {
            object.has_finalizer(provider::FINALIZER) && object.condition("AgentReserved").is_some()
        },
    )
    .await?;
    let reserved = waiting
        .condition("AgentReserved")
        .context("AgentReserved")?;
    ensure!(
        (reserved.status, reserved.reason) == ("False", "NoSuitableAgents"),
        "{reserved:?}"
    );
    let ready = waiting.condition("Ready").context("Ready")?;
    let wanted = if scene.is_legacy() {
        "NoSuitableAgents"
    } else {
        "IssuesReported"
    };
    ensure!(ready.reason == wanted, "{ready:?}");
    ensure!(
        waiting
            .metadata
            .owner_references
            .iter()
            .flatten()
            .any(|owner| owner.kind == "Machine"),
        "the Machine owns it before the finalizer comes"
    );
    let machine = pool.machines().pop().context("one Machine")?;
    ensure!(
        machine.annotation(provider::HOOK).is_some(),
        "the hook comes before the finalizer"
    );

    // One host that fits, and one that does not and so stays free.
    let other = scene.metal(1, json!({"pool": "other"}), true).await?;
    let host = scene.metal(2, pool_labels(), true).await?;
    pool.wait_running(1, LIMIT).await?;
    let agent = scene.agent(host.name()).await?;
    ensure!(
        agent.label(provider::AGENT_MACHINE_REF) == Some(machine.name()),
        "label names the AgentMachine"
    );
    ensure!(agent.text("/status/debugInfo/state") == "added-to-existing-cluster");
    ensure!(
        agent.text("/spec/clusterDeploymentName/namespace")
            == scene.cluster.control_plane_namespace
    );
    let installed = until(&scene.agent_machines, "a ready AgentMachine", |object| {
        object.flag("/status/ready")
    })
    .await?;
    ensure!(installed.text("/spec/providerID") == format!("agent://{}", host.name()));
    ensure!(
        installed
            .condition("Installed")
            .is_some_and(|condition| condition.status == "True")
    );

    // Scale down again: the Agent is free, and keeps everything that makes it eligible.
    pool.scale(0);
    pool.wait("no Machine", LIMIT, || {
        pool.machines().is_empty() && pool.agent_machines().is_empty()
    })
    .await?;
    let freed = until(&scene.agents, "the freed Agent", |agent| {
        agent.name() == host.name() && agent.text("/status/debugInfo/state") == "known-unbound"
    })
    .await?;
    ensure!(freed.label(provider::AGENT_MACHINE_REF).is_none());
    ensure!(freed.at("/spec/clusterDeploymentName").is_none());
    ensure!(freed.flag("/spec/approved"), "approval survives");
    ensure!(freed.label("pool") == Some("a"), "labels survive");
    ensure!(
        foreign::fingerprint(&other)? == foreign::fingerprint(&*scene.agent(other.name()).await?)?
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn current_generation() -> Result<()> {
    let stage = Stage::open(LabOptions::default()).await?;
    tokio::try_join!(
        claims_installs_and_releases(&stage),
        machines::never_reserved(&stage),
        wedge::unfenced_agent_wedges(&stage),
        wedge::fenced_agent_does_not_wedge(&stage),
        machines::rolling_upgrade(&stage),
        machines::node_pool_deletion(&stage),
        machines::remediation(&stage),
        machines::paused_deletion(&stage),
        guests::scenario(&stage),
        lives::scenario(&stage),
    )?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn legacy_generation() -> Result<()> {
    let stage = Stage::open(LabOptions::default().generation(ProviderGeneration::Legacy)).await?;
    let scene = stage.scene(MachineApi::V1Beta1, "claim").await?;
    claim_and_release(&scene).await
}

/// Conditions are refused, everything else is stored. The Machine runs in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn current_provider_on_the_bundled_crd() -> Result<()> {
    let stage = Stage::open(LabOptions {
        machine_versions: Some(MachineVersions::V1Beta2),
        ..LabOptions::default().generation(ProviderGeneration::CurrentOnBundledCrd)
    })
    .await?;
    let scene = stage.scene(MachineApi::V1Beta2, "mixed").await?;
    let pool = scene.pool("workers", Some(fits_pool())).await?;
    pool.scale(1);
    until(
        &scene.agent_machines,
        "an accepted AgentMachine",
        |object| object.has_finalizer(provider::FINALIZER),
    )
    .await?;
    scene.metal(1, pool_labels(), true).await?;
    pool.wait_running(1, LIMIT).await?;
    let agent_machine = pool.agent_machines().pop().context("one AgentMachine")?;
    ensure!(
        agent_machine.at("/status/conditions").is_none(),
        "{:?}",
        agent_machine.at("/status/conditions")
    );
    ensure!(agent_machine.flag("/status/ready"));
    Ok(())
}

/// No status is written, and a fitting Agent is never claimed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn legacy_provider_on_the_upstream_crd() -> Result<()> {
    let stage =
        Stage::open(LabOptions::default().generation(ProviderGeneration::LegacyOnUpstreamCrd))
            .await?;
    let scene = stage.scene(MachineApi::V1Beta1, "mixed").await?;
    let pool = scene.pool("workers", Some(fits_pool())).await?;
    let host = scene.metal(1, pool_labels(), true).await?;
    pool.scale(1);
    pool.wait("a Machine", LIMIT, || pool.machines().len() == 1)
        .await?;
    stays(
        "nothing claimed and nothing said",
        Duration::from_secs(3),
        || {
            pool.agent_machines()
                .iter()
                .all(|object| object.at("/status").is_none())
                && scene
                    .agents
                    .get(host.name())
                    .is_some_and(|agent| agent.label(provider::AGENT_MACHINE_REF).is_none())
        },
    )
    .await
}

/// CAPI writes v1beta2 owners, but the legacy provider accepts only v1beta1. It waits for ever, without a finalizer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn legacy_provider_does_not_accept_new_owners() -> Result<()> {
    let stage = Stage::open(LabOptions {
        machine_versions: Some(MachineVersions::V1Beta2),
        ..LabOptions::default().generation(ProviderGeneration::Legacy)
    })
    .await?;
    let scene = stage.scene(MachineApi::V1Beta2, "owner").await?;
    let pool = scene.pool("workers", Some(fits_pool())).await?;
    let host = scene.metal(1, pool_labels(), true).await?;
    pool.scale(1);
    until(
        &scene.agent_machines,
        "an AgentMachine owned by its Machine that waits",
        |object| {
            object
                .condition("AgentReserved")
                .is_some_and(|c| c.reason == "NoSuitableAgents")
                && object
                    .metadata
                    .owner_references
                    .iter()
                    .flatten()
                    .any(|owner| owner.kind == "Machine")
        },
    )
    .await?;
    stays("never accepted", Duration::from_secs(3), || {
        pool.agent_machines()
            .iter()
            .all(|object| !object.has_finalizer(provider::FINALIZER))
            && scene
                .agents
                .get(host.name())
                .is_some_and(|agent| agent.label(provider::AGENT_MACHINE_REF).is_none())
    })
    .await
}

/// The installed CRDs serve all these kinds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kinds_are_served() -> Result<()> {
    let stage = Stage::open(LabOptions {
        controller_manager: false,
        ..LabOptions::default()
    })
    .await?;
    let client = stage.lab.admin();
    for resource in [
        kinds::agent(),
        kinds::infra_env(),
        kinds::agent_machine(),
        kinds::agent_machine_template(),
        kinds::machine(MachineApi::V1Beta1),
        kinds::machine(MachineApi::V1Beta2),
        kinds::machine_set(MachineApi::V1Beta2),
    ] {
        let api: kube::Api<kube::core::DynamicObject> =
            kube::Api::all_with(client.clone(), &resource);
        api.list(&kube::api::ListParams::default())
            .await
            .with_context(|| resource.kind.clone())?;
    }
    Ok(())
}
