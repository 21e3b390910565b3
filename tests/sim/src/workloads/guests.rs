//! Workloads in which something happens to a VM or its Agent, before and after it serves.

use std::time::Duration;

use agent_forge_actors::vm::boot_repair;
use agent_forge_crds::names::REPLACE_ANNOTATION;
use agent_forge_lab::played::guests::identity;
use anyhow::{Context as _, Result, ensure};
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::{
    Run, children,
    disaster::waiting,
    marked,
    site::{agents, merge_pool},
};
use crate::{
    kube::kind,
    oracles::{self, ASSISTED, OURS},
    vcenter::model::{Inventory, Vm},
    world::{NAMESPACE, World},
};

/// The default discovery deadline, with a margin.
const DEADLINE: Duration = Duration::from_secs(2700);

impl Run {
    /// Wants one machine from a pool that does not approve Agents, and waits until its Agent has registered. Then the
    /// workload's own part begins.
    pub(super) async fn registered(&mut self, patch: &Value) -> Result<()> {
        let mut unapproved = json!({"agent": {"approve": false}});
        crate::kube::store::merge(&mut unapproved, patch);
        self.world.pool("w", &unapproved).await?;
        self.world.play("w")?.scale(1);
        self.rest("its Agent waits for approval", |world| {
            marked(world) == 1 && children(world) == 1 && says(world, "ApprovalRequired")
        })
        .await?;
        self.begins = self.world.director.now();
        Ok(())
    }

    /// Sets whether the pool approves Agents from now on.
    pub(super) fn approves(&self, approve: bool) -> Result<()> {
        merge_pool(
            &self.world,
            "w",
            &json!({"spec": {"agent": {"approve": approve}}}),
        )
    }
}

/// Whether a pool or a VsphereAgent waits for that reason.
pub(super) fn says(world: &World, reason: &str) -> bool {
    let says = |plural| {
        let all = world.api.read(|s| s.list(&kind(OURS, plural), ""));
        all.iter().any(|o| {
            let waits = o.pointer("/status/waitingOn").and_then(Value::as_array);
            waits.into_iter().flatten().any(|w| w["reason"] == reason)
        })
    };
    says("vsphereagentpools") || says("vsphereagents")
}

/// Changes our only VM.
fn ours<T>(world: &World, change: impl FnOnce(&mut Vm) -> T) -> Result<T> {
    let of_ours = |i: &mut Inventory| {
        let mut all = i.vms.values_mut();
        all.find(|vm| oracles::marker(vm).is_some()).map(change)
    };
    world.vcenter.write(of_ours).context("a VM of ours")
}

/// The value of the only VsphereAgent at that pointer, with its key.
fn child(world: &World, pointer: &str) -> Option<((String, String), Value)> {
    let all = world
        .api
        .read(|s| s.list(&kind(OURS, "vsphereagents"), NAMESPACE));
    let child = all.first()?;
    let name = child["metadata"]["name"].as_str()?;
    let found = child.pointer(pointer).cloned().unwrap_or_default();
    Some(((NAMESPACE.to_owned(), name.to_owned()), found))
}

fn attempt(world: &World) -> Option<i64> {
    child(world, "/status/vm/attempt")?.1.as_i64()
}

pub(super) fn agent_deleted_before_serving(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        run.registered(&json!({})).await?;
        let all = run
            .world
            .api
            .read(|s| s.list(&kind(ASSISTED, "agents"), NAMESPACE));
        for agent in all {
            let name = agent["metadata"]["name"].as_str().unwrap_or_default();
            let key = (NAMESPACE.to_owned(), name.to_owned());
            (run.world.api).delete(&kind(ASSISTED, "agents"), &key)?;
        }
        // An outage may last as long as the operator waits for a lost Agent. Then the next VM exists when the outage
        // ends.
        run.waits("its Agent is missed", |world| {
            says(world, "AgentMissing") || attempt(world).is_some_and(|a| a > 1)
        })
        .await?;
        run.approves(true)?;
        run.patience += DEADLINE;
        run.one_up_or_asked().await?;
        run.rest_with("one up", &[("w", 1)]).await
    })
}

/// Somebody puts the CD-ROM first in the boot order of our only VM.
fn boot_cdrom_first(world: &World) -> Result<()> {
    ours(world, |vm| {
        vm.boot_order = vec![json!({"_typeName": "VirtualMachineBootOptionsBootableCdromDevice"})];
    })
}

pub(super) fn boot_order_broken(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        // If the ISO could not be taken out before the reset, it is taken out after the installation.
        let eject = json!({"iso": {"ejectAfterInstall": true}});
        run.registered(&eject).await?;
        boot_cdrom_first(&run.world)?;
        run.approves(true)?;
        // A reset that may have been sent is not sent again. After that time a person is asked, and restarts the VM.
        run.patience += boot_repair::GRACE;
        let is_up = |world: &World| world.play("w").is_ok_and(|p| p.running().len() == 1);
        let is_asked = |world: &World| says(world, "BootOrderWrong");
        run.waits("its disk boots", |world| is_up(world) || is_asked(world))
            .await?;
        let asked = is_asked(&run.world);
        if asked {
            ours(&run.world, |vm| vm.boots += 1)?;
        }
        run.rest_with("its disk boots", &[("w", 1)]).await?;
        let (resets, order) = ours(&run.world, |vm| (vm.resets, vm.boot_order.len()))?;
        let restarted = resets > 0 || asked;
        ensure!(restarted && order == 2, "{resets} resets, {order} devices");
        run.world.play("w")?.scale(0);
        run.rest_with("down", &[("w", 0)]).await
    })
}

/// A person asks for another VM than the one of this attempt. `None` withdraws the request.
fn ask(world: &World, attempt: Option<i64>) -> Result<()> {
    let (key, _) = child(world, "").context("a VsphereAgent")?;
    let attempt = attempt.map(|a| a.to_string());
    let patch = json!({"metadata": {"annotations": {REPLACE_ANNOTATION: attempt}}});
    world
        .api
        .merge(&kind(OURS, "vsphereagents"), &key, &patch)?;
    Ok(())
}

pub(super) fn replacement_requested(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        run.registered(&json!({})).await?;
        let first = attempt(&run.world).context("an attempt")?;
        ask(&run.world, Some(first))?;
        run.waits("another VM is made", |world| {
            attempt(world).is_some_and(|a| a > first) && agents(world) == 1
        })
        .await?;
        run.approves(true)?;
        run.rest_with("one up", &[("w", 1)]).await?;
        ask(&run.world, attempt(&run.world))?;
        run.rest("it serves, and stays", |world| {
            let running = world.play("w").map_or(0, |p| p.running().len());
            says(world, "ReplaceRefused") && running == 1 && marked(world) == 1
        })
        .await?;
        ask(&run.world, None)?;
        run.rest_with("nobody asks any more", &[("w", 1)]).await?;
        run.world.play("w")?.scale(0);
        run.rest_with("down", &[("w", 0)]).await
    })
}

/// Somebody replaces the network card, and the guest reports that.
fn replace_card(world: &World, mac: &str) -> Result<()> {
    let vm = ours(world, |vm| {
        let before = vm.replace_card(mac)?;
        Some((identity::swapped(&vm.uuid), before))
    })?;
    let (host, before) = vm.context("a network card")?;
    let service = world.upstream.service(NAMESPACE)?;
    service.replace_card(&host, &before, mac);
    Ok(())
}

fn knows_card(world: &World, mac: &str) -> bool {
    let recorded = child(world, "/status/vm/macAddresses/0");
    recorded.is_some_and(|(_, first)| first == mac) && !says(world, "MacDiffers")
}

pub(super) fn network_card_replaced(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    let (second, third) = ("00:50:56:99:00:02", "00:50:56:99:00:03");
    Box::pin(async move {
        run.registered(&json!({})).await?;
        replace_card(&run.world, second)?;
        run.rest("the new card is known before it serves", move |world| {
            knows_card(world, second)
        })
        .await?;
        run.approves(true)?;
        run.rest_with("one up", &[("w", 1)]).await?;
        replace_card(&run.world, third)?;
        run.rest("the new card is known while it serves", move |world| {
            knows_card(world, third)
        })
        .await?;
        run.world.play("w")?.scale(0);
        run.rest("down", |world| {
            let left = world.play("w").map_or(1, |p| p.machines().len());
            left + marked(world) + children(world) + agents(world) == 0
        })
        .await
    })
}

/// Number of tags on our only VM.
fn tags(world: &World) -> usize {
    world.vcenter.read(|i| {
        let mut all = i.vms.values();
        let vm = all.find(|vm| oracles::marker(vm).is_some());
        let tags = vm.and_then(|vm| i.tags.get(&vm.object.id));
        tags.map_or(0, std::collections::BTreeSet::len)
    })
}

/// Makes the pool want that many tags on its VMs.
fn want_tags(world: &World, count: usize) -> Result<()> {
    let tag = |n| format!("urn:vmomi:InventoryServiceTag:{n}:GLOBAL");
    let all: Vec<String> = (1..=count).map(tag).collect();
    merge_pool(world, "w", &json!({"spec": {"vsphere": {"vmTags": all}}}))
}

pub(super) fn tags_changed(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        run.registered(&json!({})).await?;
        want_tags(&run.world, 2)?;
        run.rest("both tags are attached", |world| tags(world) == 2)
            .await?;
        run.approves(true)?;
        run.rest_with("one up", &[("w", 1)]).await?;
        want_tags(&run.world, 3)?;
        tokio::time::sleep(Duration::from_secs(600)).await;
        run.rest_with("a host that serves is left alone", &[("w", 1)])
            .await?;
        run.world.play("w")?.scale(0);
        run.rest_with("down", &[("w", 0)]).await
    })
}

pub(super) fn vm_suspended(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        run.registered(&json!({})).await?;
        ours(&run.world, Vm::suspend)?;
        run.asks((1, Duration::ZERO), |world| {
            let on = world.vcenter.read(|i| i.vms.values().all(|vm| vm.on));
            on && says(world, "ApprovalRequired")
        })
        .await?;
        run.approves(true)?;
        run.rest_with("one up", &[("w", 1)]).await?;
        ours(&run.world, |vm| {
            vm.suspend();
            vm.stiff = true;
        })?;
        run.asks((1, Duration::ZERO), |world| {
            waiting(&world.api, "VMSuspended") == 1 && marked(world) == 1
        })
        .await?;
        run.world.play("w")?.scale(0);
        run.rest("vCenter does not switch it off", |world| {
            let gone = world.play("w").is_ok_and(|p| p.machines().is_empty());
            let goes = child(world, "/metadata/deletionTimestamp");
            let goes = goes.is_some_and(|(_, at)| at.is_string());
            gone && goes && waiting(&world.api, "VMSuspended") == 1 && marked(world) == 1
        })
        .await?;
        ours(&run.world, |vm| {
            vm.remember_power();
            vm.suspended = false;
        })?;
        run.rest_with("down", &[("w", 0)]).await
    })
}
