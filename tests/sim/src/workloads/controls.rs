//! Workloads in which people hold the operator back, or limit it.

use std::time::Duration;

use agent_forge_actors::ports::effect::{EffectKind, Nature};
use agent_forge_crds::names::{AGENT_MACHINE_LABEL, CREATED_FOR_BUFFER, CREATED_FOR_LABEL};
use agent_forge_lab::played::assisted::Late;
use anyhow::Result;
use serde_json::json;

use super::{Run, children, guests::says, marked};
use crate::{
    between,
    kube::{kind, store::list},
    plan::Fault,
    promise::Oracle,
    world::{NAMESPACE, World, at_home},
};

/// Longer than two looks at a VM take.
const TWO_LOOKS: Duration = Duration::from_secs(300);

fn rehearse(world: &World, dry_run: bool) -> Result<()> {
    world.merge_pool("w", &json!({"spec": {"dryRun": dry_run}}))
}

/// Whether the pool says that it is in a dry run.
fn is_rehearsed(world: &World) -> bool {
    !world.condition("w", "DryRun").is_null()
}

/// How many effects so far changed more than status, Events, Leases and sessions.
fn changes(world: &World) -> usize {
    let effects = world.director.effects();
    let effects = effects.iter().filter_map(|(_, point)| point.call.effect());
    let changes = |e: &EffectKind| matches!(e.nature(), Nature::Cluster | Nature::Vcenter);
    effects.filter(changes).count()
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
    list(&rows, "").iter().any(|row| row["type"] == type_)
}

/// Waits for `done` in a dry run, then for quiet. That is no rest: a dry run adds no finalizer, even if one was removed.
async fn planned(run: &Run, name: &'static str, done: impl Fn(&World) -> bool) -> Result<()> {
    run.waits(name, done).await?;
    run.quiet().await
}

pub(super) async fn dry_run_ends(run: &mut Run) -> Result<()> {
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
        let gone = world.machines("w") == 0;
        gone && lists(world, "PatchAgent") && marked(world) == 1 && children(world) == 1
    })
    .await;
    changes_nothing_since(&run.world, before);
    rehearsed?;
    rehearse(&run.world, false)?;
    run.rest_with("down", &[("w", 0)]).await
}

pub(super) async fn limits_of_a_pool(run: &mut Run) -> Result<()> {
    let limits = json!({"scaling": {"maxVMs": 2, "maxProvisioning": 1}});
    run.world.pool("w", &limits).await?;
    run.world.play("w")?.scale(3);
    let limited = run
        .rest("two up, one waits", |world| {
            let running = world.running("w").len();
            let vms = (marked(world), children(world));
            running == 2 && vms == (2, 2) && says(world, "CreateCapReached")
        })
        .await;
    if marked(&run.world) > 2 {
        let more = Oracle::SameNumberOfVms.broken("a pool has more VMs than it may");
        run.world.director.violated(more);
    }
    limited?;
    run.world
        .merge_pool("w", &json!({"spec": {"scaling": {"maxVMs": 3}}}))?;
    run.rest_with("three up", &[("w", 3)]).await?;
    run.scaled("one left", 1).await
}

/// Changes the number of hosts in the buffer.
pub(super) fn buffer(world: &World, hosts: usize) -> Result<()> {
    let scaling = json!({"spec": {"scaling": {"bufferAgents": hosts}}});
    world.merge_pool("w", &scaling)
}

/// That many Machines run, and that many hosts of the buffer are ready; there is nothing else.
pub(super) fn has(world: &World, running: usize, ready: usize) -> bool {
    let all = running + ready;
    let count = world.of_pool("w", "/status/buffer/ready");
    world.runs("w", running)
        && marked(world) == all
        && children(world) == all
        && count.as_u64().unwrap_or_default() == ready as u64
}

/// A host waits in the buffer of the pool, and nothing else is there.
async fn one_waits(run: &mut Run) -> Result<()> {
    let scaling = json!({"scaling": {"bufferAgents": 1}});
    run.world.pool("w", &scaling).await?;
    run.rest("a host waits", |world| has(world, 0, 1)).await
}

/// An AgentMachine has a host that was made for the buffer.
pub(super) fn has_claimed(world: &World) -> bool {
    world.vsphere_agents().iter().any(|child| {
        let labels = &child["metadata"]["labels"];
        labels[CREATED_FOR_LABEL] == CREATED_FOR_BUFFER && labels[AGENT_MACHINE_LABEL].is_string()
    })
}

pub(super) async fn host_of_the_buffer_claimed(run: &mut Run) -> Result<()> {
    one_waits(run).await?;
    run.world.play("w")?.scale(1);
    run.rest("it serves, and another one waits", |world| {
        has(world, 1, 1) && has_claimed(world)
    })
    .await?;
    buffer(&run.world, 2)?;
    run.rest("two wait", |world| has(world, 1, 2)).await?;
    buffer(&run.world, 0)?;
    run.rest("none waits", |world| has(world, 1, 0)).await?;
    run.down().await
}

/// References of the VMs of ours.
pub(super) fn ours(world: &World) -> Vec<String> {
    let all = world.our_vms().into_iter();
    all.map(|vm| vm.object.id).collect()
}

/// The released host waits, and no VM was made for it.
pub(super) async fn comes_back(run: &mut Run, name: &'static str, host: &[String]) -> Result<()> {
    run.rest(name, |world| {
        let on = world.vcenter.read(|i| i.vms.values().all(|vm| vm.on));
        has(world, 0, 1) && on && world.condition("w", "Ready")["status"] == "True"
    })
    .await?;
    let now = ours(&run.world);
    // A host that did not come back in time, under a fault, is replaced. Two never stand there.
    anyhow::ensure!(now.len() == 1, "{host:?} became {now:?}");
    Ok(())
}

/// Nothing is recycled any more, and the buffer gets empty.
pub(super) async fn let_go(run: &mut Run) -> Result<()> {
    run.world
        .merge_pool("w", &json!({"spec": {"release": {"policy": "Delete"}}}))?;
    run.rest_with("down", &[("w", 0)]).await
}

pub(super) async fn host_recycled(run: &mut Run) -> Result<()> {
    run.one_up(&json!({"release": {"policy": "Recycle"}}))
        .await?;
    let host = ours(&run.world);
    run.world.play("w")?.scale(0);
    comes_back(run, "it waits", &host).await?;
    run.world.play("w")?.scale(1);
    run.rest("it serves again", |world| {
        has(world, 1, 0) && has_claimed(world)
    })
    .await?;
    run.world
        .merge_pool("w", &json!({"spec": {"release": {"disk": "Keep"}}}))?;
    run.world.play("w")?.scale(0);
    comes_back(run, "it waits again", &host).await?;
    let_go(run).await
}

pub(super) async fn image_with_other_content(run: &mut Run) -> Result<()> {
    run.patience += Duration::from_secs(1200);
    one_waits(run).await?;
    let host = ours(&run.world);
    let made = run.world.of_pool("w", "/status/iso/image/created");
    run.rotate_image().await?;
    run.rest("the same host waits beside a new image", |world| {
        let image = world.of_pool("w", "/status/iso/image/created");
        image.is_string() && image != made && has(world, 0, 1) && ours(world) == host
    })
    .await?;
    let proxy = json!({"spec": {"proxy": {"httpProxy": "http://proxy.example"}}});
    let infra_envs = kind("infraenvs");
    (run.world.api).merge(&infra_envs, &at_home("demo"), &proxy)?;
    run.rotate_image().await?;
    run.rest("another host waits", |world| {
        has(world, 0, 1) && ours(world) != host
    })
    .await?;
    buffer(&run.world, 0)?;
    run.rest_with("down", &[("w", 0)]).await
}

/// Longer than a host needs from its registration until it is known.
const LATE: Duration = Duration::from_secs(10);

pub(super) async fn service_writes_late(run: &mut Run) -> Result<()> {
    run.world.upstream.service(NAMESPACE)?.write_late(Late {
        pass: LATE,
        status: Duration::from_secs(2),
        conflicts: true,
    });
    host_recycled(run).await
}

pub(super) async fn agent_state_unknown(run: &mut Run) -> Result<()> {
    one_waits(run).await?;
    let service = run.world.upstream.service(NAMESPACE)?;
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
    run.world.upstream.service(NAMESPACE)?.name_states(None);
    run.rest_with("down", &[("w", 0)]).await
}

/// Longer than a reclaim may last, and than the service may try to take a Node out of its hosted cluster afterwards
/// (`CLEANUP` in the product).
const CLEANED_UP: Duration = Duration::from_secs(2 * 3600);

pub(super) async fn hosted_cluster_gone(run: &mut Run) -> Result<()> {
    let cluster = run.world.cluster.clone();
    run.world
        .api
        .hosted_cluster(&cluster.namespace, &cluster.name);
    run.one_up(&json!({"release": {"policy": "Recycle"}}))
        .await?;
    let host = ours(&run.world);
    let service = run.world.upstream.service(&cluster.agent_namespace)?;
    service.break_kubeconfig(true);
    // Until the host waits for a person, its Machine waits too. Only then it is the operator's.
    service.stall_reclaims(true);
    let name = (cluster.namespace, cluster.name);
    run.world.api.delete(&kind("hostedclusters"), &name)?;
    run.world.play("w")?.scale(0);
    let usual = std::mem::replace(&mut run.patience, CLEANED_UP);
    comes_back(run, "it waits", &host).await?;
    run.patience = usual;
    let_go(run).await
}

pub(super) async fn serving_vm_switched_off(run: &mut Run) -> Result<()> {
    run.one_up(&json!({"power": "EnsureOn"})).await?;
    let vm = run.world.vm_of_ours()?.object;
    between::vm(&run.world.vcenter, Fault::VmSwitched, &vm);
    // The scan finds it, and a second look decides.
    run.asks((1, TWO_LOOKS), |world| {
        let on = world.vcenter.read(|i| i.vms.values().all(|vm| vm.on));
        on && marked(world) == 1 && !says(world, "VMPoweredOff")
    })
    .await?;
    run.down().await
}
