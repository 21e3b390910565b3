//! Workloads in which the environment changes: images, credentials, specs, VMs, the namespace.

use std::time::Duration;

use agent_forge_crds::{conditions::CONFIG_SYNCED, names::REPLACE_ANNOTATION};
use agent_forge_lab::played::guests::identity::Quirk;
use anyhow::{Context as _, Result};
use base64::Engine as _;
use serde_json::json;

use super::{Run, children, guests::says, marked};
use crate::{
    edits::{self, Edit},
    kube::{
        kind,
        store::{Name, list, name_of},
    },
    oracles, strangers,
    vcenter::model::Vm,
    world::{NAMESPACE, SECRET, World, at_home},
};

/// The password after its rotation. It may not appear in an object either.
pub const NEXT_PASSWORD: &str = "canary-p4ssw0rd-next";

/// How long an edit of a pool stands.
const EDITED: Duration = Duration::from_secs(900);

/// Whether the pool has an ISO.
pub(super) fn has_iso(world: &World, pool: &str) -> bool {
    world.of_pool(pool, "/status/iso/sha256").is_string()
}

pub(super) fn agents(world: &World) -> usize {
    world.api.list(&kind("agents"), NAMESPACE).len()
}

pub(super) async fn machine_deleted_after_registration(run: &mut Run) -> Result<()> {
    run.world.pool("w", &json!({})).await?;
    run.world.play("w")?.scale(1);
    run.waits("an Agent has registered", |world| agents(world) > 0)
        .await?;
    run.world.play("w")?.scale(0);
    tokio::time::sleep(Duration::from_secs(1)).await;
    run.scaled("one up", 1).await
}

pub(super) async fn guest_never_registers(run: &mut Run) -> Result<()> {
    replaced(run, Quirk::DeadOnArrival).await
}

pub(super) async fn guest_falls_silent(run: &mut Run) -> Result<()> {
    replaced(run, Quirk::FallsSilent).await
}

/// The first guest does not become a host, and the operator replaces its VM.
async fn replaced(run: &mut Run, quirk: Quirk) -> Result<()> {
    run.patience += Duration::from_secs(2700);
    let guests = run.world.upstream.guests.as_ref().context("guests")?;
    guests.add_quirk("/", quirk);
    run.world.pool("w", &json!({})).await?;
    run.world.play("w")?.scale(1);
    run.waits("a guest starts", |world| {
        world.our_vms().iter().any(|vm| vm.on)
    })
    .await?;
    // The first boot has applied the quirk by then. Later boots are normal.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let guests = run.world.upstream.guests.as_ref().context("guests")?;
    guests.clear_quirks();
    run.one_up_or_asked().await?;
    run.rest_with("one up", &[("w", 1)]).await
}

impl Run {
    /// The InfraEnv gets another image.
    pub(super) async fn rotate_image(&self) -> Result<()> {
        let service = self.world.upstream.service(NAMESPACE)?;
        service.rotate_image("demo").await
    }

    /// Waits for one machine. A process that did not switch a guest on cannot know that one without an answer never served:
    /// it asks a person, who allows the replacement.
    pub(super) async fn one_up_or_asked(&self) -> Result<()> {
        let world = &self.world;
        let up = || world.running("w").len() == 1;
        self.waits("one up, or a person is asked", |world| {
            up() || asks_to_replace(world).is_some()
        })
        .await?;
        let Some((name, attempt)) = asks_to_replace(world).filter(|_| !up()) else {
            return Ok(());
        };
        let allow = json!({"metadata": {"annotations": {REPLACE_ANNOTATION: attempt}}});
        world.api.merge(&kind("vsphereagents"), &name, &allow)?;
        self.waits("one up after the answer", |_| up()).await
    }
}

/// A VsphereAgent that asks a person whether its VM may be replaced, and the attempt to name.
fn asks_to_replace(world: &World) -> Option<(Name, String)> {
    world.vsphere_agents().iter().find_map(|child| {
        let message = child.pointer("/status/waitingOn/0/message")?.as_str()?;
        let (_, attempt) = message.split_once(&format!("{REPLACE_ANNOTATION}="))?;
        let attempt = attempt.chars().take_while(char::is_ascii_digit).collect();
        Some((name_of(child), attempt))
    })
}

pub(super) async fn new_discovery_image(run: &mut Run) -> Result<()> {
    run.patience += Duration::from_secs(1200);
    let retain = json!({"iso": {"retainVersions": 1}});
    run.world.pool("w", &retain).await?;
    run.rest("first image", |world| has_iso(world, "w")).await?;
    another_image(run).await
}

/// The InfraEnv gets another image. At the end, the pool lists only that one.
async fn another_image(run: &mut Run) -> Result<()> {
    let before = run.world.of_pool("w", "/status/iso/sourceKey");
    run.rotate_image().await?;
    run.rest("next image alone", |world| {
        let history = world.of_pool("w", "/status/iso/history");
        world.of_pool("w", "/status/iso/sourceKey") != before
            && history.as_array().is_some_and(|h| h.len() == 1)
    })
    .await
}

pub(super) async fn vm_renamed_and_destroyed(run: &mut Run) -> Result<()> {
    run.one_up(&json!({})).await?;
    let rename = |vm: &mut Vm| "somebody-renamed-it".clone_into(&mut vm.name);
    let _ = run.world.change_vm(rename);
    run.rest_with("renamed", &[("w", 1)]).await?;
    let (sick, vm) = (run.running(), run.world.vm_of_ours().ok());
    (run.world.vcenter).write(|i| vm.map(|vm| i.remove_vm(&vm.object.id)));
    tokio::time::sleep(Duration::from_secs(300)).await;
    run.remediate(&sick).await
}

pub(super) async fn invalid_network_corrected(run: &mut Run) -> Result<()> {
    let wrong = json!({"vsphere": {"network": "no such network"}});
    run.world.pool("w", &wrong).await?;
    run.world.play("w")?.scale(1);
    run.rest("refused", |world| {
        // Waits for this reason alone, because an outage causes other reasons first.
        let ready = world.condition("w", "Ready");
        ready["reason"] == "VsphereObjectNotFound" && marked(world) == 0
    })
    .await?;
    let mended = json!({"spec": {"vsphere": {"network": "VM Network"}}});
    run.world.merge_pool("w", &mended)?;
    run.rest_with("one up", &[("w", 1)]).await
}

pub(super) async fn password_changed(run: &mut Run) -> Result<()> {
    run.one_up(&json!({})).await?;
    run.world.director.outage(true, Duration::from_secs(60));
    (run.world.vcenter).write(|i| i.login.1 = NEXT_PASSWORD.to_owned());
    run.world.vcenter.forget_sessions();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let encoded = base64::engine::general_purpose::STANDARD.encode(NEXT_PASSWORD);
    let patch = json!({"data": {"password": encoded}});
    let (world, secrets) = (&run.world, kind("secrets"));
    // The Secret may be missing at this moment. The fault that removed it restores it with the new password.
    let merged = || {
        world
            .api
            .merge(&secrets, &at_home(SECRET.1), &patch)
            .is_ok()
    };
    let limit = Duration::from_secs(600);
    world.until("the Secret changed", limit, merged).await?;
    run.scaled("two up", 2).await
}

pub(super) async fn iso_ejected_after_install(run: &mut Run) -> Result<()> {
    let empty = |world: &World| {
        world
            .vcenter
            .read(|i| i.vms.values().all(|vm| vm.discs() == 0))
    };
    run.patience += Duration::from_secs(1200);
    run.one_up(&json!({})).await?;
    run.world.vcenter.write(|i| {
        let ours = i.vms.values_mut().filter(|v| oracles::marker(v).is_some());
        ours.for_each(|vm| vm.tray_locked = true);
    });
    let wanted = json!({"spec": {"iso": {"ejectAfterInstall": true, "retainVersions": 1}}});
    run.world.merge_pool("w", &wanted)?;
    run.rest("its drive is empty", empty).await?;
    another_image(run).await?;
    run.scaled("two up", 2).await?;
    run.rest("both drives are empty", empty).await
}

pub(super) async fn iso_datastore_changed(run: &mut Run) -> Result<()> {
    let isos_on = |world: &World, store: &str| {
        world.vcenter.read(|i| {
            let isos = i.files.keys().filter(|(_, p)| p.ends_with(".iso"));
            isos.filter(|(s, _)| s == store).count()
        })
    };
    run.patience += Duration::from_secs(1200);
    run.one_up(&json!({})).await?;
    run.world
        .merge_pool("w", &json!({"spec": {"vsphere": {"isoDatastore": "ds-1"}}}))?;
    run.rest("mounted on the old datastore", move |world| {
        let stored = world.of_pool("w", "/status/iso/storedPath");
        stored.as_str().is_some_and(|s| s.starts_with("[ds-1] "))
            && isos_on(world, "iso-datastore") == 1
    })
    .await?;
    run.world.play("w")?.scale(0);
    run.rest("nothing on the old datastore", move |world| {
        let history = world.of_pool("w", "/status/iso/history");
        isos_on(world, "iso-datastore") == 0
            && isos_on(world, "ds-1") == 1
            && history.as_array().is_some_and(|h| h.len() == 1)
            && marked(world) + children(world) == 0
    })
    .await
}

/// The seed chooses the edit, and when it comes: just before the second machine, or while its VM is made.
pub(super) async fn spec_edited(run: &mut Run) -> Result<()> {
    let edits = edits::all()?.into_iter().filter(|edit| edit.is_valid);
    let edits: Vec<Edit> = edits.collect();
    let seed = usize::try_from(run.world.seed.saturating_sub(1))?;
    let edit = &edits[seed / 2 % edits.len()];
    run.patience += Duration::from_secs(1200);
    // An edit may ask for a buffer of a thousand hosts.
    let few = json!({"scaling": {"maxVMs": 8}});
    run.one_up(&few).await?;
    let spec = run.world.of_pool("w", "/spec");
    let moment = Duration::from_secs(1);
    if seed.is_multiple_of(2) {
        run.world.merge_pool("w", &edit.patch())?;
        tokio::time::sleep(moment).await;
        run.world.play("w")?.scale(2);
    } else {
        run.world.play("w")?.scale(2);
        tokio::time::sleep(moment).await;
        run.world.merge_pool("w", &edit.patch())?;
    }
    run.world.director.line(|| format!("EDIT {edit:?}"));
    tokio::time::sleep(EDITED).await;
    run.world.merge_pool("w", &edit.undo(&spec))?;
    run.rest_with("two up", &[("w", 2)]).await?;
    run.down().await
}

/// Whether some VsphereAgent gives that reason for its condition `ConfigSynced`.
fn compares(world: &World, reason: &str) -> bool {
    let objects = world.api.list(&kind("vsphereagents"), NAMESPACE);
    let mut all = objects.iter().flat_map(|o| list(o, "/status/conditions"));
    all.any(|c| c["type"] == CONFIG_SYNCED && c["reason"] == reason)
}

pub(super) async fn template_changed(run: &mut Run) -> Result<()> {
    let memory = |mib: u32| json!({"spec": {"template": {"memoryMiB": mib}}});
    run.patience += Duration::from_secs(1200);
    run.one_up(&json!({})).await?;
    run.world.merge_pool("w", &memory(1024))?;
    run.world.play("w")?.scale(2);
    run.rest("one is too small", |world| {
        let vms = (world.running("w").len(), marked(world), children(world));
        vms == (1, 2, 2)
            && says(world, "AgentValidationsFailing")
            && compares(world, "TemplateChanged")
    })
    .await?;
    run.world.merge_pool("w", &memory(20480))?;
    run.rest_with("two up", &[("w", 2)]).await?;
    run.down().await
}

pub(super) async fn namespace_deletion(run: &mut Run) -> Result<()> {
    strangers::enter(run).await?;
    run.one_up(&json!({})).await?;
    run.world.play("w")?.delete_node_pool().await?;
    let name = (String::new(), NAMESPACE.to_owned());
    run.world.api.delete(&kind("namespaces"), &name)?;
    run.rest("all gone", |world| {
        let count = |plural| world.api.list(&kind(plural), NAMESPACE).len();
        let left = count("vsphereagentpools") + count("secrets");
        left + children(world) + marked(world) == 0
    })
    .await
}
