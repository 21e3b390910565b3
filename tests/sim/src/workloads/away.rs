//! Workloads in which vCenter does not show a VM, or loses a part of the inventory around it.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use super::{Run, disaster::waiting, marked, site::has_iso};
use crate::{
    kube::kind,
    vcenter::model::Inventory,
    world::{NAMESPACE, at_home},
};

/// Makes vCenter hide the configuration of all VMs, or show it again.
fn hide(inventory: &mut Inventory, hidden: bool) {
    inventory.vms.values_mut().for_each(|vm| vm.hidden = hidden);
}

pub(super) async fn vm_hidden_by_vcenter(run: &mut Run) -> Result<()> {
    run.serving(1).await?;
    run.begins = run.world.director.now();
    run.world.vcenter.write(|i| hide(i, true));
    run.world.play("w")?.scale(0);
    run.rest("it is not known whether it is there", |world| {
        let going = world.machines("w") == 0;
        going && waiting(&world.api, "VMInaccessible") == 1 && marked(world) == 1
    })
    .await?;
    run.world.vcenter.write(|i| hide(i, false));
    run.rest_with("down", &[("w", 0)]).await
}

pub(super) async fn vm_folder_deleted(run: &mut Run) -> Result<()> {
    run.serving(1).await?;
    run.begins = run.world.director.now();
    let sick = run.running();
    run.world.vcenter.write(|i| {
        let folder = i.at_path("/dc1/vm/demo");
        let inside = i
            .vms
            .values()
            .filter(|vm| Some(&vm.folder) == folder.as_ref());
        let inside: Vec<String> = inside.map(|vm| vm.object.id.clone()).collect();
        inside.iter().for_each(|id| i.remove_vm(id));
        folder.map(|folder| i.nodes.remove(&folder))
    });
    tokio::time::sleep(Duration::from_secs(300)).await;
    run.remediate(&sick).await
}

pub(super) async fn infra_env_replaced(run: &mut Run) -> Result<()> {
    run.world.pool("w", &json!({})).await?;
    run.rest("its ISO lies ready", |world| has_iso(world, "w"))
        .await?;
    let (kind, name) = (kind("infraenvs"), at_home("demo"));
    run.world.api.delete(&kind, &name)?;
    run.world.play("w")?.scale(1);
    run.rest("nothing is made of its ISO", move |world| {
        let gone = world.api.get(&kind, &name).is_none();
        gone && marked(world) == 0
    })
    .await?;
    let service = run.world.upstream.service(NAMESPACE)?;
    service.create_infra_env("demo", json!({})).await?;
    run.rest_with("one up", &[("w", 1)]).await
}
