//! Several lives of one VM: it is installed, released, and discovered again, with a new disk or with the old one.

use std::time::Duration;

use agent_forge_lab::played::{
    Delays, HostedClusterPlay, MachineApi,
    assisted::{Assisted, state::HostState},
    guests::vcenter::VCenter,
    mirror::Object,
    object::Facts as _,
};
use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::{LIMIT, Scene, Stage, fits_pool, inventory::Inventory, stays, until};

const UUID: &str = "423e36c8-723d-2b24-8590-0eb1d9180ab1";
const HOST: &str = "c8363e42-3d72-242b-8590-0eb1d9180ab1";
const NEW_DISK: &str = "6000c290-0000-4000-8000-000000000002";
const SKIP: &str = "agent.agent-install.openshift.io/skip-spoke-cleanup";
/// Long enough for anything that must not happen.
const WHILE: Duration = Duration::from_millis(800);

async fn state(scene: &Scene, state: &str) -> Result<Object> {
    until(&scene.agents, &format!("the host in {state}"), |agent| {
        agent.name() == HOST && agent.text("/status/debugInfo/state") == state
    })
    .await
}

/// Patches the Agent. The service writes it at the same time, so it is tried again.
async fn patch(scene: &Scene, patch: serde_json::Value) -> Result<()> {
    while scene
        .agents
        .patch(&*scene.agent(HOST).await?, patch.clone())
        .await
        .is_err()
    {
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// The free host serves a Machine of the pool.
async fn serves(scene: &Scene, pool: &HostedClusterPlay) -> Result<Object> {
    let prepare = json!({
        "metadata": {"labels": {"pool": "a"}},
        "spec": {"approved": true, "hostname": "lives", "role": "worker"},
    });
    patch(scene, prepare).await?;
    pool.scale(1);
    state(scene, "added-to-existing-cluster").await
}

pub async fn scenario(stage: &Stage) -> Result<()> {
    let inventory = Inventory::start().await?;
    let vcenter = VCenter::new(&inventory.url, "")?;
    let delays = Delays {
        disconnect: Duration::from_millis(400),
        reclaim_limit: Duration::from_millis(400),
        ..Delays::fast()
    };
    let scene = stage
        .scene_of(MachineApi::V1Beta2, "lives", delays, Some(vcenter))
        .await?;
    let service = scene.upstream.service(&scene.cluster.agent_namespace)?;
    let env = service.infra_envs().get("env").context("the InfraEnv")?;
    let url = env.text("/status/isoDownloadURL");
    inventory.put_file("good.iso", reqwest::get(url).await?.bytes().await?);
    let order = ["disk:2000", "cdrom"];
    let vm = inventory.add_vm("lives", UUID, "00:50:56:aa:bb:09", "good.iso", &order);
    inventory.boot(&vm);
    let pool = scene.pool("workers", Some(fits_pool())).await?;
    state(&scene, "known-unbound").await?;
    let first = serves(&scene, &pool).await?;
    // The installed disk boots, and there is no agent process in its system.
    inventory.boot(&vm);
    let kept = || service.host_state(HOST) == Some(HostState::AddedToExistingCluster);
    stays("the installed host in its cluster", WHILE, kept).await?;
    new_disk(&scene, service, &inventory, &vm, &pool, &first).await?;
    kept_disk(&scene, service, &inventory, &vm, &pool).await
}

/// The reclaim fails. The VM gets a new disk and the image, and its Agent shows that only after the spoke clean-up.
async fn new_disk(
    scene: &Scene,
    service: &Assisted,
    inventory: &Inventory,
    vm: &str,
    pool: &HostedClusterPlay,
    first: &Object,
) -> Result<()> {
    service.stall_reclaims(true);
    service.break_kubeconfig(true);
    pool.scale(0);
    state(scene, "reclaiming").await?;
    state(scene, "unbinding-pending-user-action").await?;
    inventory.power_off(vm);
    inventory.replace_disk(vm, NEW_DISK);
    inventory.boot(vm);
    let free = || service.host_state(HOST) == Some(HostState::KnownUnbound);
    tokio::time::timeout(LIMIT, async {
        while !free() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .context("the host did not register with its new disk")?;
    let shows = || {
        let agent = scene.agents.get(HOST);
        agent.is_some_and(|a| a.text("/status/debugInfo/state") == "unbinding-pending-user-action")
    };
    stays("the old state while the clean-up fails", WHILE, shows).await?;
    patch(scene, json!({"metadata": {"annotations": {SKIP: "true"}}})).await?;
    let second = state(scene, "known-unbound").await?;
    ensure!(second.uid() == first.uid(), "the same Agent");
    let disk = |agent: &Object| agent.text("/status/inventory/disks/0/id").to_owned();
    let new = NEW_DISK.replace('-', "");
    ensure!(disk(&second) != disk(first) && disk(&second).ends_with(&new));
    service.stall_reclaims(false);
    service.break_kubeconfig(false);
    patch(scene, json!({"metadata": {"annotations": {SKIP: null}}})).await
}

/// The reclaim works. The disk stays, and starts discovery from now on, also without an image in the drive.
async fn kept_disk(
    scene: &Scene,
    service: &Assisted,
    inventory: &Inventory,
    vm: &str,
    pool: &HostedClusterPlay,
) -> Result<()> {
    serves(scene, pool).await?;
    pool.scale(0);
    state(scene, "known-unbound").await?;
    inventory.power_off(vm);
    state(scene, "disconnected-unbound").await?;
    inventory.eject(vm);
    inventory.boot(vm);
    state(scene, "known-unbound").await?;
    // The next install overwrites it.
    serves(scene, pool).await?;
    inventory.boot(vm);
    let kept = || service.host_state(HOST) == Some(HostState::AddedToExistingCluster);
    stays("the installed host in its cluster", WHILE, kept).await
}
