//! Workloads in which something happens to a VM or its Agent, before and after it serves.

use std::{collections::BTreeSet, time::Duration};

use agent_forge_actors::vm::boot_repair;
use agent_forge_crds::names::REPLACE_ANNOTATION;
use agent_forge_lab::played::guests::identity;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{Run, children, disaster::waiting, marked, site::agents};
use crate::{
    kube::{
        kind,
        store::{Name, list, merge, name_of},
    },
    vcenter::model::Vm,
    world::{NAMESPACE, World},
};

/// The default discovery deadline, with a margin.
const DEADLINE: Duration = Duration::from_secs(2700);

impl Run {
    /// Wants one machine from a pool that does not approve Agents, and waits until its Agent has registered. Then the
    /// workload's own part begins.
    pub(super) async fn registered(&mut self, patch: &Value) -> Result<()> {
        let mut unapproved = json!({"agent": {"approve": false}});
        merge(&mut unapproved, patch);
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
        self.world
            .merge_pool("w", &json!({"spec": {"agent": {"approve": approve}}}))
    }
}

/// Whether a pool or a VsphereAgent waits for that reason.
pub(super) fn says(world: &World, reason: &str) -> bool {
    let says = |plural| {
        let all = world.api.list(&kind(plural), "");
        let mut waits = all.iter().flat_map(|o| list(o, "/status/waitingOn"));
        waits.any(|w| w["reason"] == reason)
    };
    says("vsphereagentpools") || says("vsphereagents")
}

/// The value of the only VsphereAgent at that pointer, with its key.
fn child(world: &World, pointer: &str) -> Option<(Name, Value)> {
    let all = world.api.list(&kind("vsphereagents"), NAMESPACE);
    let child = all.first()?;
    let found = child.pointer(pointer).cloned().unwrap_or_default();
    Some((name_of(child), found))
}

fn attempt(world: &World) -> Option<i64> {
    child(world, "/status/vm/attempt")?.1.as_i64()
}

pub(super) async fn agent_deleted_before_serving(run: &mut Run) -> Result<()> {
    run.registered(&json!({})).await?;
    let agents = kind("agents");
    for agent in run.world.api.list(&agents, NAMESPACE) {
        run.world.api.delete(&agents, &name_of(&agent))?;
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
}

pub(super) async fn boot_order_broken(run: &mut Run) -> Result<()> {
    // If the ISO could not be taken out before the reset, it is taken out after the installation.
    let eject = json!({"iso": {"ejectAfterInstall": true}});
    run.registered(&eject).await?;
    run.world.change_vm(|vm| {
        vm.boot_order = vec![json!({"_typeName": "VirtualMachineBootOptionsBootableCdromDevice"})];
    })?;
    run.approves(true)?;
    // A reset that may have been sent is not sent again. After that time a person is asked, and restarts the VM.
    run.patience += boot_repair::GRACE;
    let is_up = |world: &World| world.running("w").len() == 1;
    let is_asked = |world: &World| says(world, "BootOrderWrong");
    run.waits("its disk boots", |world| is_up(world) || is_asked(world))
        .await?;
    let asked = is_asked(&run.world);
    if asked {
        run.world.change_vm(|vm| vm.boots += 1)?;
    }
    run.rest_with("its disk boots", &[("w", 1)]).await?;
    let (resets, order) = run.world.change_vm(|vm| (vm.resets, vm.boot_order.len()))?;
    let restarted = resets > 0 || asked;
    ensure!(restarted && order == 2, "{resets} resets, {order} devices");
    run.down().await
}

/// A person asks for another VM than the one of this attempt. `None` withdraws the request.
fn ask(world: &World, attempt: Option<i64>) -> Result<()> {
    let (key, _) = child(world, "").context("a VsphereAgent")?;
    let attempt = attempt.map(|a| a.to_string());
    let patch = json!({"metadata": {"annotations": {REPLACE_ANNOTATION: attempt}}});
    world.api.merge(&kind("vsphereagents"), &key, &patch)?;
    Ok(())
}

pub(super) async fn replacement_requested(run: &mut Run) -> Result<()> {
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
        let running = world.running("w").len();
        says(world, "ReplaceRefused") && running == 1 && marked(world) == 1
    })
    .await?;
    ask(&run.world, None)?;
    run.rest_with("nobody asks any more", &[("w", 1)]).await?;
    run.down().await
}

/// Somebody replaces the network card, and the guest reports that.
fn replace_card(world: &World, mac: &str) -> Result<()> {
    let vm = world.change_vm(|vm| {
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

pub(super) async fn network_card_replaced(run: &mut Run) -> Result<()> {
    let (second, third) = ("00:50:56:99:00:02", "00:50:56:99:00:03");
    run.registered(&json!({})).await?;
    replace_card(&run.world, second)?;
    run.rest("the new card is known before it serves", |world| {
        knows_card(world, second)
    })
    .await?;
    run.approves(true)?;
    run.rest_with("one up", &[("w", 1)]).await?;
    replace_card(&run.world, third)?;
    run.rest("the new card is known while it serves", |world| {
        knows_card(world, third)
    })
    .await?;
    run.world.play("w")?.scale(0);
    run.rest("down", |world| {
        world.machines("w") + marked(world) + children(world) + agents(world) == 0
    })
    .await
}

/// Number of tags on our only VM.
fn tags(world: &World) -> usize {
    let Ok(vm) = world.vm_of_ours() else {
        return 0;
    };
    world
        .vcenter
        .read(|i| i.tags.get(&vm.object.id).map_or(0, BTreeSet::len))
}

/// Makes the pool want that many tags on its VMs.
fn want_tags(world: &World, count: usize) -> Result<()> {
    let tag = |n| format!("urn:vmomi:InventoryServiceTag:{n}:GLOBAL");
    let all: Vec<String> = (1..=count).map(tag).collect();
    world.merge_pool("w", &json!({"spec": {"vsphere": {"vmTags": all}}}))
}

pub(super) async fn tags_changed(run: &mut Run) -> Result<()> {
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
    run.down().await
}

pub(super) async fn vm_suspended(run: &mut Run) -> Result<()> {
    run.registered(&json!({})).await?;
    run.world.change_vm(Vm::suspend)?;
    run.asks((1, Duration::ZERO), |world| {
        let on = world.vcenter.read(|i| i.vms.values().all(|vm| vm.on));
        on && says(world, "ApprovalRequired")
    })
    .await?;
    run.approves(true)?;
    run.rest_with("one up", &[("w", 1)]).await?;
    run.world.change_vm(|vm| {
        vm.suspend();
        vm.stiff = true;
    })?;
    run.asks((1, Duration::ZERO), |world| {
        waiting(&world.api, "VMSuspended") == 1 && marked(world) == 1
    })
    .await?;
    run.world.play("w")?.scale(0);
    run.rest("vCenter does not switch it off", |world| {
        let gone = world.machines("w") == 0;
        let goes = child(world, "/metadata/deletionTimestamp");
        let goes = goes.is_some_and(|(_, at)| at.is_string());
        gone && goes && waiting(&world.api, "VMSuspended") == 1 && marked(world) == 1
    })
    .await?;
    run.world.change_vm(|vm| {
        vm.remember_power();
        vm.suspended = false;
    })?;
    run.rest_with("down", &[("w", 0)]).await
}
