//! What happens inside VMs: registration, silence, wrong boot order, and images of others.

use std::time::Duration;

use agent_forge_lab::played::{
    Delays, MachineApi, assisted::INFRA_ENV_LABEL, guests::identity::Quirk,
    guests::vcenter::VCenter, object::Facts as _,
};
use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::{LIMIT, Scene, Stage, fits_pool, inventory::Inventory, stays, until};

/// BIOS uuids and the resulting host ids in the guest.
const FIRST: (&str, &str) = (
    "423e36c8-723d-2b24-8590-0eb1d9180aa2",
    "c8363e42-3d72-242b-8590-0eb1d9180aa2",
);
const SECOND: (&str, &str) = (
    "423e36c8-723d-2b24-8590-0eb1d9180aa3",
    "c8363e42-3d72-242b-8590-0eb1d9180aa3",
);
const DARK: (&str, &str) = (
    "423e36c8-723d-2b24-8590-0eb1d9180aa4",
    "c8363e42-3d72-242b-8590-0eb1d9180aa4",
);
const FOREIGN: (&str, &str) = (
    "423e36c8-723d-2b24-8590-0eb1d9180aa5",
    "c8363e42-3d72-242b-8590-0eb1d9180aa5",
);
const MAC: &str = "00:50:56:aa:bb:0";

async fn in_state(
    scene: &Scene,
    id: &str,
    state: &str,
) -> Result<agent_forge_lab::played::mirror::Object> {
    until(&scene.agents, &format!("{id} in {state}"), |agent| {
        agent.name() == id && agent.text("/status/debugInfo/state") == state && !agent.is_deleting()
    })
    .await
}

pub async fn scenario(stage: &Stage) -> Result<()> {
    let inventory = Inventory::start().await?;
    let vcenter = VCenter::new(&inventory.url, "")?;
    let delays = Delays {
        disconnect: Duration::from_millis(400),
        ..Delays::fast()
    };
    let scene = stage
        .scene_of(MachineApi::V1Beta2, "guests", delays, Some(vcenter))
        .await?;
    let service = scene.upstream.service(&scene.cluster.agent_namespace)?;
    let url = service
        .infra_envs()
        .get("env")
        .context("the InfraEnv")?
        .text("/status/isoDownloadURL")
        .to_owned();
    inventory.put_file("good.iso", reqwest::get(&url).await?.bytes().await?);
    let strange = url.replace("/byapikey/", "/nobody/");
    inventory.put_file("other.iso", reqwest::get(&strange).await?.bytes().await?);
    registration_silence_and_ghost(&scene, &inventory).await?;
    wrong_boot_order(&scene, &inventory).await?;
    let guests = scene.upstream.guests.as_ref().context("guests")?;
    guests.add_quirk("dark", Quirk::DeadOnArrival);
    let dark = inventory.add_vm(
        "dark",
        DARK.0,
        &format!("{MAC}3"),
        "good.iso",
        &["disk:2000", "cdrom"],
    );
    let foreign = inventory.add_vm(
        "foreign",
        FOREIGN.0,
        &format!("{MAC}4"),
        "other.iso",
        &["disk:2000", "cdrom"],
    );
    inventory.boot(&dark);
    inventory.boot(&foreign);
    stays(
        "no Agent of a dead guest, nor of one without a discovery image",
        Duration::from_secs(1),
        || scene.agents.get(DARK.1).is_none() && scene.agents.get(FOREIGN.1).is_none(),
    )
    .await
}

async fn registration_silence_and_ghost(scene: &Scene, inventory: &Inventory) -> Result<()> {
    let vm = inventory.add_vm(
        "first",
        FIRST.0,
        &format!("{MAC}1"),
        "good.iso",
        &["disk:2000", "cdrom"],
    );
    inventory.boot(&vm);
    let agent = in_state(scene, FIRST.1, "known-unbound").await?;
    ensure!(
        !agent.flag("/spec/approved"),
        "nobody approves it by itself"
    );
    ensure!(agent.label(INFRA_ENV_LABEL) == Some("env"));
    ensure!(
        agent.label("inventory.agent-install.openshift.io/host-productname") == Some("VMware201")
    );
    let serial = agent.text("/status/inventory/systemVendor/serialNumber");
    ensure!(
        serial == "VMware-42 3e 36 c8 72 3d 2b 24-85 90 0e b1 d9 18 0a a2",
        "{serial}"
    );

    inventory.power_off(&vm);
    in_state(scene, FIRST.1, "disconnected-unbound").await?;
    inventory.boot(&vm);
    in_state(scene, FIRST.1, "known-unbound").await?;

    // The Agent is deleted while its guest runs. The guest does nothing until it boots again. Then it registers as a
    // new host.
    let mut labelled = false;
    while !labelled {
        let seen = scene.agent(FIRST.1).await?;
        labelled = scene
            .agents
            .patch(&seen, json!({"metadata": {"labels": {"pool": "a"}}}))
            .await
            .is_ok();
    }
    let before = scene.agent(FIRST.1).await?;
    let mut changes = scene.agents.changes();
    scene.agents.delete(&before).await?;
    let gone = || scene.agents.get(FIRST.1).is_none();
    while !gone() {
        changes.recv().await.context("the watch ended")?;
    }
    stays("the frozen guest's silence", Duration::from_secs(1), gone).await?;
    inventory.boot(&vm);
    let ghost = in_state(scene, FIRST.1, "known-unbound").await?;
    ensure!(
        ghost.uid() != before.uid()
            && ghost.label("pool").is_none()
            && !ghost.flag("/spec/approved")
    );
    Ok(())
}

/// If the disk does not come first, the install's reboot boots the discovery image again.
async fn wrong_boot_order(scene: &Scene, inventory: &Inventory) -> Result<()> {
    let vm = inventory.add_vm("second", SECOND.0, &format!("{MAC}2"), "good.iso", &[]);
    inventory.boot(&vm);
    in_state(scene, SECOND.1, "known-unbound").await?;
    let pool = scene.pool("workers", Some(fits_pool())).await?;
    pool.scale(1);
    let prepare = json!({
        "metadata": {"labels": {"pool": "a"}},
        "spec": {"approved": true, "hostname": "second", "role": "worker"},
    });
    while scene
        .agents
        .patch(&*scene.agent(SECOND.1).await?, prepare.clone())
        .await
        .is_err()
    {
        // The service writes the Agent at the same time.
    }
    in_state(scene, SECOND.1, "installing-pending-user-action").await?;
    let waiting = until(&scene.agent_machines, "an unfinished install", |object| {
        object
            .condition("Installed")
            .is_some_and(|condition| condition.reason == "InstallationInProgress")
    })
    .await?;
    ensure!(!waiting.flag("/status/ready"));
    pool.scale(0);
    pool.wait("no Machine", LIMIT, || pool.machines().is_empty())
        .await
}
