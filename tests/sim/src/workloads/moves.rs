//! Workloads in which a host gets another owner: another control plane, another pool, or people.

use std::time::Duration;

use agent_forge_actors::ports::effect::EffectKind;
use agent_forge_crds::{
    external::agent::{AGENT_MACHINE_REF_LABEL, AGENT_MACHINE_REF_NAMESPACE_ANNOTATION},
    names::AGENT_MACHINE_LABEL,
};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::{
    Run, children,
    disaster::told,
    guests::says,
    marked,
    site::{agents, has_iso},
};
use crate::{
    kube::{
        kind,
        store::{Name, name_of},
    },
    oracles,
    promise::Oracle,
    vcenter::model::Vm,
    world::{NAMESPACE, World},
};

/// Longer than two orphan scans.
const SCANS: Duration = Duration::from_secs(1500);

/// Somebody's AgentMachine in another control plane claims the only Agent, or releases it.
fn claim(world: &World, claimed: bool) -> Result<()> {
    let agents = kind("agents");
    let all = world.api.list(&agents, NAMESPACE);
    let of = |agent: &Value| agent["metadata"]["labels"][AGENT_MACHINE_REF_LABEL] == "stranger";
    let agent = all.iter().find(|a| claimed || of(a)).context("an Agent")?;
    let value = |text: &str| if claimed { json!(text) } else { Value::Null };
    let patch = json!({"metadata": {
        "labels": {AGENT_MACHINE_REF_LABEL: value("stranger")},
        "annotations": {AGENT_MACHINE_REF_NAMESPACE_ANNOTATION: value("elsewhere")},
    }});
    world.api.merge(&agents, &name_of(agent), &patch)?;
    Ok(())
}

pub(super) async fn agent_claimed_elsewhere(run: &mut Run) -> Result<()> {
    run.registered(&json!({})).await?;
    claim(&run.world, true)?;
    run.approves(true)?;
    run.rest("its AgentMachine has another host", |world| {
        let running = world.running("w").len();
        running == 1 && marked(world) == 2 && children(world) == 2 && says(world, "AgentElsewhere")
    })
    .await?;
    claim(&run.world, false)?;
    run.rest_with("the first one goes", &[("w", 1)]).await?;
    run.down().await
}

/// The labels of our only VsphereAgent, with its key.
fn labels(world: &World) -> Option<(Name, Value)> {
    let all = world.api.list(&kind("vsphereagents"), NAMESPACE);
    let child = all.first().filter(|_| all.len() == 1)?;
    Some((name_of(child), child["metadata"]["labels"].clone()))
}

/// Somebody removes the label, and the operator adds it again.
async fn unlabel(run: &mut Run, name: &'static str) -> Result<()> {
    let (key, _) = labels(&run.world).context("one VsphereAgent")?;
    let patch = json!({"metadata": {"labels": {AGENT_MACHINE_LABEL: null}}});
    run.world.api.merge(&kind("vsphereagents"), &key, &patch)?;
    run.rest(name, |world| {
        labels(world).is_some_and(|(_, all)| all[AGENT_MACHINE_LABEL].is_string())
            && marked(world) == 1
    })
    .await
}

pub(super) async fn agent_machine_label_removed(run: &mut Run) -> Result<()> {
    run.registered(&json!({})).await?;
    unlabel(run, "labelled again before it serves").await?;
    run.approves(true)?;
    run.rest_with("one up", &[("w", 1)]).await?;
    unlabel(run, "labelled again while it serves").await?;
    run.down().await
}

pub(super) async fn node_pool_moved(run: &mut Run) -> Result<()> {
    // The pool approves nothing. A process that sees the edit late could otherwise have approved the host already.
    let unapproved = json!({"agent": {"approve": false}});
    run.world.pool("w", &unapproved).await?;
    run.world.pool("x", &json!({})).await?;
    run.rest("their ISOs lie ready", |world| {
        ["w", "x"].iter().all(|pool| has_iso(world, pool))
    })
    .await?;
    run.begins = run.world.director.now();
    run.world.play("w")?.scale(1);
    run.waits("a VM is asked for", |world| {
        world.director.times(EffectKind::CreateVm) > 0
    })
    .await?;
    let nobodys = json!({"spec": {"nodePoolRef": {"name": "nobodys"}}});
    run.world.merge_pool("w", &nobodys)?;
    let role = json!({"hypershift.openshift.io/nodepool-role": "w"});
    let taken = json!({"spec": {"nodePoolRef": {"name": "w"}, "agent": {"labels": role}}});
    run.world.merge_pool("x", &taken)?;
    run.rest_with("one up", &[("w", 1)]).await?;
    run.down().await
}

pub(super) async fn vm_retained(run: &mut Run) -> Result<()> {
    run.world
        .pool("w", &json!({"cleanupPolicy": "Retain"}))
        .await?;
    // The orphan scan of the vCenter continues through the session of this pool.
    run.world.pool("x", &json!({})).await?;
    run.scaled("one up", 1).await?;
    run.begins = run.world.director.now();
    run.world.play("w")?.scale(0);
    run.rest("kept", |world| {
        let gone = world.machines("w") == 0;
        gone && marked(world) == 1 && children(world) == 1 && says(world, "Retained")
    })
    .await?;
    run.world.delete_pool("w")?;
    run.rest("left to people", |world| {
        let released = |vm: &Vm| oracles::released(vm).is_some() && vm.on;
        let left = world
            .vcenter
            .read(|i| i.vms.values().filter(|vm| released(vm)).count());
        left == 1 && marked(world) + children(world) == 0 && agents(world) == 1
    })
    .await?;
    tokio::time::sleep(SCANS).await;
    if told(&run.world.api, "OrphanVM") > 0 {
        let alarm = Oracle::ForeignAndServingUntouched
            .broken("a VM that was left to people is reported as an orphan");
        run.world.director.violated(alarm);
    }
    Ok(())
}
