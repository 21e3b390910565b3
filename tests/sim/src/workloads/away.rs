//! Workloads in which vCenter does not show a VM, or loses a part of the inventory around it.

use std::time::Duration;

use anyhow::Result;
use futures::future::BoxFuture;
use serde_json::json;

use super::{Run, children, disaster::waiting, marked};
use crate::{kube::kind, oracles::ASSISTED, vcenter::model::Inventory, world::NAMESPACE};

/// Makes vCenter hide the configuration of all VMs, or show it again.
fn hide(inventory: &mut Inventory, hidden: bool) {
    inventory.vms.values_mut().for_each(|vm| vm.hidden = hidden);
}

pub(super) fn vm_hidden_by_vcenter(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        run.serving(1).await?;
        run.begins = run.world.director.now();
        run.world.vcenter.write(|i| hide(i, true));
        run.world.play("w")?.scale(0);
        run.rest("it is not known whether it is there", |world| {
            let going = world.play("w").is_ok_and(|p| p.machines().is_empty());
            going && waiting(&world.api, "VMInaccessible") == 1 && marked(world) == 1
        })
        .await?;
        run.world.vcenter.write(|i| hide(i, false));
        run.rest_with("down", &[("w", 0)]).await
    })
}

pub(super) fn vm_folder_deleted(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        run.serving(1).await?;
        run.begins = run.world.director.now();
        let sick = run.world.play("w")?.running().pop().unwrap_or_default();
        run.world.vcenter.write(|i| {
            let folder = i.at_path("/dc1/vm/demo");
            let inside: Vec<String> = i
                .vms
                .values()
                .filter(|vm| Some(&vm.folder) == folder.as_ref())
                .map(|vm| vm.object.id.clone())
                .collect();
            for id in inside {
                i.vms.remove(&id);
                i.tags.remove(&id);
            }
            folder.map(|folder| i.nodes.remove(&folder))
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

pub(super) fn infra_env_replaced(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        run.world.pool("w", &json!({})).await?;
        run.rest("its ISO lies ready", |world| {
            world.of_pool("w", "/status/iso/sha256").is_string()
        })
        .await?;
        let (kind, name) = (
            kind(ASSISTED, "infraenvs"),
            (NAMESPACE.to_owned(), "demo".to_owned()),
        );
        run.world.api.delete(&kind, &name)?;
        run.world.play("w")?.scale(1);
        run.rest("nothing is made of its ISO", move |world| {
            let gone = world.api.read(|s| s.get(&kind, &name).is_none());
            gone && marked(world) == 0
        })
        .await?;
        let service = run.world.upstream.service(NAMESPACE)?;
        service.create_infra_env("demo", json!({})).await?;
        run.rest_with("one up", &[("w", 1)]).await
    })
}
