//! Workloads in which people hold the operator back, or limit it.

use std::time::Duration;

use agent_forge_actors::ports::effect::{EffectKind, Nature};
use agent_forge_crds::names::{AGENT_MACHINE_LABEL, CREATED_FOR_BUFFER, CREATED_FOR_LABEL};
use agent_forge_lab::played::assisted::Late;
use anyhow::{Context as _, Result};
use futures::future::BoxFuture;
use serde_json::json;

use super::{Run, children, guests::says, marked, site::merge_pool};
use crate::{
    between,
    kube::{HOSTED_CLUSTERS, kind},
    oracles,
    plan::Fault,
    promise::Oracle,
    vcenter::model::Ref,
    world::{NAMESPACE, World},
};

/// Longer than two looks at a VM take.
const TWO_LOOKS: Duration = Duration::from_secs(300);

fn rehearse(world: &World, dry_run: bool) -> Result<()> {
    merge_pool(world, "w", &json!({"spec": {"dryRun": dry_run}}))
}

/// Whether the pool says that it is in a dry run.
fn is_rehearsed(world: &World) -> bool {
    let conditions = world.of_pool("w", "/status/conditions");
    let mut conditions = conditions.as_array().into_iter().flatten();
    conditions.any(|c| c["type"] == "DryRun")
}

/// How many effects so far changed more than status, Events, Leases and sessions.
fn changes(world: &World) -> usize {
    let effects = world.director.effects();
    let natures = effects.iter().filter_map(|(_, point)| point.call.effect());
    let natures = natures.map(EffectKind::nature);
    natures
        .filter(|n| matches!(n, Nature::Cluster | Nature::Vcenter))
        .count()
}

/// Checks `pauses_hold` for a dry run, which began after that many changes.
fn changes_nothing_since(world: &World, before: usize) {
    let more = changes(world) - before;
    if more > 0 {
        let changed = Oracle::PausesHold.broken(format!("{more} changes in a dry run"));
        world.director.violated(changed);
    }
}

/// Whether the pool's plan lists an action of that type.
fn lists(world: &World, type_: &str) -> bool {
    let rows = world.of_pool("w", "/status/plannedActions");
    let rows = rows.as_array().cloned().unwrap_or_default();
    rows.iter().any(|row| row["type"] == type_)
}

/// Waits for `done` in a dry run, then for quiet. That is no rest: a dry run adds no finalizer, even if one was removed.
async fn planned(run: &Run, name: &'static str, done: impl Fn(&World) -> bool) -> Result<()> {
    run.waits(name, done).await?;
    run.quiet().await
}

pub(super) fn dry_run_ends(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        run.world.pool("w", &json!({"dryRun": true})).await?;
        run.world.play("w")?.scale(1);
        let rehearsed = planned(run, "planned", |world| {
            lists(world, "DemandDeficit") && lists(world, "UploadISO") && says(world, "DryRun")
        })
        .await;
        changes_nothing_since(&run.world, 0);
        rehearsed?;
        rehearse(&run.world, false)?;
        run.rest_with("one up", &[("w", 1)]).await?;

        rehearse(&run.world, true)?;
        planned(run, "it begins again", is_rehearsed).await?;
        let before = changes(&run.world);
        run.world.play("w")?.scale(0);
        let rehearsed = planned(run, "its removal is planned", |world| {
            let gone = world.play("w").is_ok_and(|p| p.machines().is_empty());
            gone && lists(world, "PatchAgent") && marked(world) == 1 && children(world) == 1
        })
        .await;
        changes_nothing_since(&run.world, before);
        rehearsed?;
        rehearse(&run.world, false)?;
        run.rest_with("down", &[("w", 0)]).await
    })
}

pub(super) fn limits_of_a_pool(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        let limits = json!({"scaling": {"maxVMs": 2, "maxProvisioning": 1}});
        run.world.pool("w", &limits).await?;
        run.world.play("w")?.scale(3);
        let limited = run
            .rest("two up, one waits", |world| {
                let running = world.play("w").map_or(0, |p| p.running().len());
                let vms = (marked(world), children(world));
                running == 2 && vms == (2, 2) && says(world, "CreateCapReached")
            })
            .await;
        if marked(&run.world) > 2 {
            let more = Oracle::SameNumberOfVms.broken("a pool has more VMs than it may");
            run.world.director.violated(more);
        }
        limited?;
        merge_pool(
            &run.world,
            "w",
            &json!({"spec": {"scaling": {"maxVMs": 3}}}),
        )?;
        run.rest_with("three up", &[("w", 3)]).await?;
        run.world.play("w")?.scale(1);
        run.rest_with("one left", &[("w", 1)]).await
    })
}

/// Changes the number of hosts in the buffer.
pub(super) fn buffer(world: &World, hosts: usize) -> Result<()> {
    let scaling = json!({"spec": {"scaling": {"bufferAgents": hosts}}});
    merge_pool(world, "w", &scaling)
}

/// That many Machines run, and that many hosts of the buffer are ready; there is nothing else.
pub(super) fn has(world: &World, running: usize, ready: usize) -> bool {
    let all = running + ready;
    let play = world.play("w");
    let count = world.of_pool("w", "/status/buffer/ready");
    play.is_ok_and(|p| p.machines().len() == running && p.running().len() == running)
        && marked(world) == all
        && children(world) == all
        && count.as_u64().unwrap_or_default() == ready as u64
}

/// An AgentMachine has a host that was made for the buffer.
pub(super) fn has_claimed(world: &World) -> bool {
    let all = world
        .api
        .read(|s| s.list(&crate::kube::kind(oracles::OURS, "vsphereagents"), ""));
    all.iter().any(|child| {
        let labels = &child["metadata"]["labels"];
        labels[CREATED_FOR_LABEL] == CREATED_FOR_BUFFER && labels[AGENT_MACHINE_LABEL].is_string()
    })
}

pub(super) fn host_of_the_buffer_claimed(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        let scaling = json!({"scaling": {"bufferAgents": 1}});
        run.world.pool("w", &scaling).await?;
        run.rest("a host waits", |world| has(world, 0, 1)).await?;
        run.world.play("w")?.scale(1);
        run.rest("it serves, and another one waits", |world| {
            has(world, 1, 1) && has_claimed(world)
        })
        .await?;
        buffer(&run.world, 2)?;
        run.rest("two wait", |world| has(world, 1, 2)).await?;
        buffer(&run.world, 0)?;
        run.rest("none waits", |world| has(world, 1, 0)).await?;
        run.world.play("w")?.scale(0);
        run.rest_with("down", &[("w", 0)]).await
    })
}

/// References of the VMs of ours.
pub(super) fn ours(world: &World) -> Vec<String> {
    world.vcenter.read(|i| {
        let marked = i.vms.iter().filter(|(_, vm)| oracles::marker(vm).is_some());
        marked.map(|(id, _)| id.clone()).collect()
    })
}

/// The pool says that all is well.
fn is_ready(world: &World) -> bool {
    let conditions = world.of_pool("w", "/status/conditions");
    let mut all = conditions.as_array().into_iter().flatten();
    all.any(|c| c["type"] == "Ready" && c["status"] == "True")
}

/// The released host waits, and no VM was made for it.
pub(super) async fn comes_back(run: &mut Run, name: &'static str, host: &[String]) -> Result<()> {
    run.rest(name, |world| {
        let on = world.vcenter.read(|i| i.vms.values().all(|vm| vm.on));
        has(world, 0, 1) && on && is_ready(world)
    })
    .await?;
    let now = ours(&run.world);
    // A host that did not come back in time, under a fault, is replaced. Two never stand there.
    anyhow::ensure!(now.len() == 1, "{host:?} became {now:?}");
    Ok(())
}

/// Nothing is recycled any more, and the buffer gets empty.
pub(super) async fn let_go(run: &mut Run) -> Result<()> {
    merge_pool(
        &run.world,
        "w",
        &json!({"spec": {"release": {"policy": "Delete"}}}),
    )?;
    run.rest_with("down", &[("w", 0)]).await
}

pub(super) fn host_recycled(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        run.world
            .pool("w", &json!({"release": {"policy": "Recycle"}}))
            .await?;
        run.world.play("w")?.scale(1);
        run.rest_with("one up", &[("w", 1)]).await?;
        let host = ours(&run.world);
        run.world.play("w")?.scale(0);
        comes_back(run, "it waits", &host).await?;
        run.world.play("w")?.scale(1);
        run.rest("it serves again", |world| {
            has(world, 1, 0) && has_claimed(world)
        })
        .await?;
        merge_pool(
            &run.world,
            "w",
            &json!({"spec": {"release": {"disk": "Keep"}}}),
        )?;
        run.world.play("w")?.scale(0);
        comes_back(run, "it waits again", &host).await?;
        let_go(run).await
    })
}

pub(super) fn image_with_other_content(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        run.patience += Duration::from_secs(1200);
        let waits = json!({"scaling": {"bufferAgents": 1}});
        run.world.pool("w", &waits).await?;
        run.rest("a host waits", |world| has(world, 0, 1)).await?;
        let host = ours(&run.world);
        let made = run.world.of_pool("w", "/status/iso/image/created");
        let service = run.world.upstream.service(NAMESPACE)?;
        service.rotate_image("demo").await?;
        let (same, first) = (host.clone(), made.clone());
        run.rest("the same host waits beside a new image", move |world| {
            let image = world.of_pool("w", "/status/iso/image/created");
            image.is_string() && image != first && has(world, 0, 1) && ours(world) == same
        })
        .await?;
        let proxy = json!({"spec": {"proxy": {"httpProxy": "http://proxy.example"}}});
        let name = (NAMESPACE.to_owned(), "demo".to_owned());
        let infra_envs = kind(oracles::ASSISTED, "infraenvs");
        run.world.api.merge(&infra_envs, &name, &proxy)?;
        let service = run.world.upstream.service(NAMESPACE)?;
        service.rotate_image("demo").await?;
        run.rest("another host waits", move |world| {
            has(world, 0, 1) && ours(world) != host
        })
        .await?;
        buffer(&run.world, 0)?;
        run.rest_with("down", &[("w", 0)]).await
    })
}

/// Longer than a host needs from its registration until it is known.
const LATE: Duration = Duration::from_secs(10);

pub(super) fn service_writes_late(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        let service = run
            .world
            .upstream
            .service(&run.world.cluster.agent_namespace)?;
        service.write_late(Late {
            pass: LATE,
            status: Duration::from_secs(2),
            conflicts: true,
        });
        host_recycled(run).await
    })
}

pub(super) fn agent_state_unknown(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        let waits = json!({"scaling": {"bufferAgents": 1}});
        run.world.pool("w", &waits).await?;
        run.rest("a host waits", |world| has(world, 0, 1)).await?;
        let home = run.world.cluster.agent_namespace.clone();
        let service = run.world.upstream.service(&home)?;
        service.name_states(Some("waiting-for-something-new"));
        buffer(&run.world, 0)?;
        let left = run
            .rest("it is left alone", |world| {
                says(world, "AgentStateUnknown") && marked(world) == 1
            })
            .await;
        if marked(&run.world) != 1 {
            let gone = Oracle::ForeignAndServingUntouched
                .broken("a host is gone whose Agent has an unknown state");
            run.world.director.violated(gone);
        }
        left?;
        run.world.upstream.service(&home)?.name_states(None);
        run.rest_with("down", &[("w", 0)]).await
    })
}

/// Longer than a reclaim may last, and than the service may try to take a Node out of its hosted cluster afterwards
/// (`CLEANUP` in the product).
const CLEANED_UP: Duration = Duration::from_secs(2 * 3600);

pub(super) fn hosted_cluster_gone(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        let cluster = run.world.cluster.clone();
        run.world
            .api
            .hosted_cluster(&cluster.namespace, &cluster.name);
        run.world
            .pool("w", &json!({"release": {"policy": "Recycle"}}))
            .await?;
        run.world.play("w")?.scale(1);
        run.rest_with("one up", &[("w", 1)]).await?;
        let host = ours(&run.world);
        let service = run.world.upstream.service(&cluster.agent_namespace)?;
        service.break_kubeconfig(true);
        // Until the host waits for a person, its Machine waits too. Only then it is the operator's.
        service.stall_reclaims(true);
        let (group, plural) = HOSTED_CLUSTERS;
        let name = (cluster.namespace, cluster.name);
        run.world.api.delete(&kind(group, plural), &name)?;
        run.world.play("w")?.scale(0);
        let usual = std::mem::replace(&mut run.patience, CLEANED_UP);
        comes_back(run, "it waits", &host).await?;
        run.patience = usual;
        let_go(run).await
    })
}

/// Somebody switches off the only VM of ours.
fn switch_off(world: &World) -> Result<()> {
    let ours = world.vcenter.read(|i| {
        let mut all = i.vms.iter();
        all.find(|(_, vm)| oracles::marker(vm).is_some())
            .map(|(id, _)| id.clone())
    });
    let id = ours.context("a VM of ours")?;
    let vm = Ref::new("VirtualMachine", &id);
    between::vm(&world.vcenter, Fault::VmSwitched, &vm);
    Ok(())
}

pub(super) fn serving_vm_switched_off(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        run.world.pool("w", &json!({"power": "EnsureOn"})).await?;
        run.world.play("w")?.scale(1);
        run.rest_with("one up", &[("w", 1)]).await?;
        switch_off(&run.world)?;
        // The scan finds it, and a second look decides.
        run.asks((1, TWO_LOOKS), |world| {
            let on = world.vcenter.read(|i| i.vms.values().all(|vm| vm.on));
            on && marked(world) == 1 && !says(world, "VMPoweredOff")
        })
        .await?;
        run.world.play("w")?.scale(0);
        run.rest_with("down", &[("w", 0)]).await
    })
}
