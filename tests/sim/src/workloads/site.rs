//! Workloads in which the environment changes: images, credentials, specs, VMs, the namespace.

use std::time::Duration;

use agent_forge_crds::{conditions::CONFIG_SYNCED, names::REPLACE_ANNOTATION};
use agent_forge_lab::played::guests::identity::Quirk;
use anyhow::{Context as _, Result};
use base64::Engine as _;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::{Run, children, guests::says, marked};
use crate::{
    edits::{self, Edit},
    kube::kind,
    oracles, strangers,
    world::{NAMESPACE, SECRET, World},
};

/// The password after its rotation. It may not appear in an object either.
pub const NEXT_PASSWORD: &str = "canary-p4ssw0rd-next";

/// How long an edit of a pool stands.
const EDITED: Duration = Duration::from_secs(900);

pub(super) fn merge_pool(world: &World, name: &str, patch: &Value) -> Result<()> {
    let name = (NAMESPACE.to_owned(), name.to_owned());
    world
        .api
        .merge(&kind(oracles::OURS, "vsphereagentpools"), &name, patch)?;
    Ok(())
}

pub(super) fn agents(world: &World) -> usize {
    world
        .api
        .read(|s| s.list(&kind(oracles::ASSISTED, "agents"), NAMESPACE).len())
}

pub(super) fn machine_deleted_after_registration(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        run.world.pool("w", &json!({})).await?;
        run.world.play("w")?.scale(1);
        run.waits("an Agent has registered", |world| agents(world) > 0)
            .await?;
        run.world.play("w")?.scale(0);
        tokio::time::sleep(Duration::from_secs(1)).await;
        run.world.play("w")?.scale(1);
        run.rest_with("one up", &[("w", 1)]).await
    })
}

pub(super) fn guest_never_registers(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    replaced(run, Quirk::DeadOnArrival)
}

pub(super) fn guest_falls_silent(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    replaced(run, Quirk::FallsSilent)
}

/// The first guest does not become a host, and the operator replaces its VM.
fn replaced(run: &mut Run, quirk: Quirk) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        run.patience += Duration::from_secs(2700);
        let guests = run.world.upstream.guests.as_ref().context("guests")?;
        guests.add_quirk("/", quirk);
        run.world.pool("w", &json!({})).await?;
        run.world.play("w")?.scale(1);
        run.waits("a guest starts", |world| {
            world
                .vcenter
                .read(|i| i.vms.values().any(|v| v.on && oracles::marker(v).is_some()))
        })
        .await?;
        // The first boot has applied the quirk by then. Later boots are normal.
        tokio::time::sleep(Duration::from_secs(60)).await;
        let guests = run.world.upstream.guests.as_ref().context("guests")?;
        guests.clear_quirks();
        run.one_up_or_asked().await?;
        run.rest_with("one up", &[("w", 1)]).await
    })
}

impl Run {
    /// Waits for one machine. A process that did not switch a guest on cannot know that one without an answer never served:
    /// it asks a person, who allows the replacement.
    pub(super) async fn one_up_or_asked(&self) -> Result<()> {
        let world = &self.world;
        let up = || world.play("w").is_ok_and(|p| p.running().len() == 1);
        self.waits("one up, or a person is asked", |world| {
            up() || asks_to_replace(world).is_some()
        })
        .await?;
        let Some((name, attempt)) = asks_to_replace(world).filter(|_| !up()) else {
            return Ok(());
        };
        let allow = json!({"metadata": {"annotations": {REPLACE_ANNOTATION: attempt}}});
        let key = (NAMESPACE.to_owned(), name);
        world
            .api
            .merge(&kind(oracles::OURS, "vsphereagents"), &key, &allow)?;
        self.waits("one up after the answer", |_| up()).await
    }
}

/// A VsphereAgent that asks a person whether its VM may be replaced, and the attempt to name.
fn asks_to_replace(world: &World) -> Option<(String, String)> {
    let all = world
        .api
        .read(|s| s.list(&kind(oracles::OURS, "vsphereagents"), ""));
    all.iter().find_map(|child| {
        let message = child.pointer("/status/waitingOn/0/message")?.as_str()?;
        let (_, attempt) = message.split_once(&format!("{REPLACE_ANNOTATION}="))?;
        let attempt = attempt.chars().take_while(char::is_ascii_digit).collect();
        Some((child["metadata"]["name"].as_str()?.to_owned(), attempt))
    })
}

pub(super) fn new_discovery_image(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        run.patience += Duration::from_secs(1200);
        let retain = json!({"iso": {"retainVersions": 1}});
        run.world.pool("w", &retain).await?;
        run.rest("first image", |world| {
            world.of_pool("w", "/status/iso/sha256").is_string()
        })
        .await?;
        another_image(run).await
    })
}

/// The InfraEnv gets another image. At the end, the pool lists only that one.
async fn another_image(run: &mut Run) -> Result<()> {
    let before = run.world.of_pool("w", "/status/iso/sourceKey");
    let service = run.world.upstream.service(NAMESPACE)?;
    service.rotate_image("demo").await?;
    run.rest("next image alone", move |world| {
        let history = world.of_pool("w", "/status/iso/history");
        world.of_pool("w", "/status/iso/sourceKey") != before
            && history.as_array().is_some_and(|h| h.len() == 1)
    })
    .await
}

pub(super) fn vm_renamed_and_destroyed(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        run.world.pool("w", &json!({})).await?;
        run.world.play("w")?.scale(1);
        run.rest_with("one up", &[("w", 1)]).await?;
        run.world.vcenter.write(|i| {
            let ours = i.vms.values_mut().find(|v| oracles::marker(v).is_some());
            if let Some(vm) = ours {
                vm.name = "somebody-renamed-it".to_owned();
            }
        });
        run.rest_with("renamed", &[("w", 1)]).await?;
        let sick = run.world.play("w")?.running().pop().unwrap_or_default();
        run.world.vcenter.write(|i| {
            let gone = i.vms.values().find(|v| oracles::marker(v).is_some());
            if let Some(id) = gone.map(|v| v.object.id.clone()) {
                i.vms.remove(&id);
                i.tags.remove(&id);
            }
        });
        tokio::time::sleep(Duration::from_secs(300)).await;
        run.world.play("w")?.remediate(&sick).await?;
        run.rest("replaced", move |world| {
            let running = world.play("w").map(|p| p.running()).unwrap_or_default();
            running.len() == 1 && running[0] != sick && marked(world) == 1 && children(world) == 1
        })
        .await
    })
}

pub(super) fn invalid_network_corrected(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        let wrong = json!({"vsphere": {"network": "no such network"}});
        run.world.pool("w", &wrong).await?;
        run.world.play("w")?.scale(1);
        run.rest("refused", |world| {
            let conditions = world.of_pool("w", "/status/conditions");
            let conditions = conditions.as_array().cloned().unwrap_or_default();
            conditions
                .iter()
                // Waits for this reason alone, because an outage causes other reasons first.
                .any(|c| c["type"] == "Ready" && c["reason"] == "VsphereObjectNotFound")
                && marked(world) == 0
        })
        .await?;
        let mended = json!({"spec": {"vsphere": {"network": "VM Network"}}});
        merge_pool(&run.world, "w", &mended)?;
        run.rest_with("one up", &[("w", 1)]).await
    })
}

pub(super) fn password_changed(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        run.world.pool("w", &json!({})).await?;
        run.world.play("w")?.scale(1);
        run.rest_with("one up", &[("w", 1)]).await?;
        run.world.director.outage(true, Duration::from_secs(60));
        run.world
            .vcenter
            .write(|i| i.login.1 = NEXT_PASSWORD.to_owned());
        run.world.vcenter.forget_sessions();
        tokio::time::sleep(Duration::from_secs(60)).await;
        let secret = (SECRET.0.to_owned(), SECRET.1.to_owned());
        let encoded = base64::engine::general_purpose::STANDARD.encode(NEXT_PASSWORD);
        let patch = json!({"data": {"password": encoded}});
        let (world, secrets) = (&run.world, kind("", "secrets"));
        // The Secret may be missing at this moment. The fault that removed it restores it with the new password.
        let merged = || world.api.merge(&secrets, &secret, &patch).is_ok();
        let limit = Duration::from_secs(600);
        world.until("the Secret changed", limit, merged).await?;
        run.world.play("w")?.scale(2);
        run.rest_with("two up", &[("w", 2)]).await
    })
}

pub(super) fn iso_ejected_after_install(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    let empty = |world: &World| {
        world
            .vcenter
            .read(|i| i.vms.values().all(|vm| vm.discs() == 0))
    };
    Box::pin(async move {
        run.patience += Duration::from_secs(1200);
        run.world.pool("w", &json!({})).await?;
        run.world.play("w")?.scale(1);
        run.rest_with("one up", &[("w", 1)]).await?;
        run.world.vcenter.write(|i| {
            let ours = i.vms.values_mut().filter(|v| oracles::marker(v).is_some());
            ours.for_each(|vm| vm.tray_locked = true);
        });
        let wanted = json!({"spec": {"iso": {"ejectAfterInstall": true, "retainVersions": 1}}});
        merge_pool(&run.world, "w", &wanted)?;
        run.rest("its drive is empty", empty).await?;
        another_image(run).await?;
        run.world.play("w")?.scale(2);
        run.rest_with("two up", &[("w", 2)]).await?;
        run.rest("both drives are empty", empty).await
    })
}

pub(super) fn iso_datastore_changed(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    let isos_on = |world: &World, store: &str| {
        world.vcenter.read(|i| {
            let isos = i.files.keys().filter(|(_, p)| p.ends_with(".iso"));
            isos.filter(|(s, _)| s == store).count()
        })
    };
    Box::pin(async move {
        run.patience += Duration::from_secs(1200);
        run.world.pool("w", &json!({})).await?;
        run.world.play("w")?.scale(1);
        run.rest_with("one up", &[("w", 1)]).await?;
        merge_pool(
            &run.world,
            "w",
            &json!({"spec": {"vsphere": {"isoDatastore": "ds-1"}}}),
        )?;
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
    })
}

/// The seed chooses the edit, and when it comes: just before the second machine, or while its VM is made.
pub(super) fn spec_edited(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        let edits = edits::all()?.into_iter().filter(|edit| edit.is_valid);
        let edits: Vec<Edit> = edits.collect();
        let seed = usize::try_from(run.world.seed.saturating_sub(1))?;
        let edit = &edits[seed / 2 % edits.len()];
        run.patience += Duration::from_secs(1200);
        // An edit may ask for a buffer of a thousand hosts.
        let few = json!({"scaling": {"maxVMs": 8}});
        run.world.pool("w", &few).await?;
        run.world.play("w")?.scale(1);
        run.rest_with("one up", &[("w", 1)]).await?;
        let spec = run.world.of_pool("w", "/spec");
        let moment = Duration::from_secs(1);
        if seed.is_multiple_of(2) {
            merge_pool(&run.world, "w", &edit.patch())?;
            tokio::time::sleep(moment).await;
            run.world.play("w")?.scale(2);
        } else {
            run.world.play("w")?.scale(2);
            tokio::time::sleep(moment).await;
            merge_pool(&run.world, "w", &edit.patch())?;
        }
        run.world.director.line(|| format!("EDIT {edit:?}"));
        tokio::time::sleep(EDITED).await;
        merge_pool(&run.world, "w", &edit.undo(&spec))?;
        run.rest_with("two up", &[("w", 2)]).await?;
        run.world.play("w")?.scale(0);
        run.rest_with("down", &[("w", 0)]).await
    })
}

/// Whether some VsphereAgent gives that reason for its condition `ConfigSynced`.
fn compares(world: &World, reason: &str) -> bool {
    let objects = world
        .api
        .read(|s| s.list(&kind(oracles::OURS, "vsphereagents"), NAMESPACE));
    objects.iter().any(|object| {
        let conditions = object.pointer("/status/conditions");
        let mut conditions = conditions.and_then(Value::as_array).into_iter().flatten();
        conditions.any(|c| c["type"] == CONFIG_SYNCED && c["reason"] == reason)
    })
}

pub(super) fn template_changed(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    let memory = |mib: u32| json!({"spec": {"template": {"memoryMiB": mib}}});
    Box::pin(async move {
        run.patience += Duration::from_secs(1200);
        run.world.pool("w", &json!({})).await?;
        run.world.play("w")?.scale(1);
        run.rest_with("one up", &[("w", 1)]).await?;
        merge_pool(&run.world, "w", &memory(1024))?;
        run.world.play("w")?.scale(2);
        run.rest("one is too small", |world| {
            let running = world.play("w").map_or(0, |p| p.running().len());
            let vms = (running, marked(world), children(world));
            vms == (1, 2, 2)
                && says(world, "AgentValidationsFailing")
                && compares(world, "TemplateChanged")
        })
        .await?;
        merge_pool(&run.world, "w", &memory(20480))?;
        run.rest_with("two up", &[("w", 2)]).await?;
        run.world.play("w")?.scale(0);
        run.rest_with("down", &[("w", 0)]).await
    })
}

pub(super) fn namespace_deletion(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        strangers::enter(run).await?;
        run.world.pool("w", &json!({})).await?;
        run.world.play("w")?.scale(1);
        run.rest_with("one up", &[("w", 1)]).await?;
        run.world.play("w")?.delete_node_pool().await?;
        let name = (String::new(), NAMESPACE.to_owned());
        run.world.api.delete(&kind("", "namespaces"), &name)?;
        run.rest("all gone", |world| {
            let pools = kind(oracles::OURS, "vsphereagentpools");
            let secrets = kind("", "secrets");
            let left = world
                .api
                .read(|s| s.list(&pools, NAMESPACE).len() + s.list(&secrets, NAMESPACE).len());
            left + children(world) + marked(world) == 0
        })
        .await
    })
}
