//! Workloads in which a host gets another owner: another control plane, another pool, or people.

use std::time::Duration;

use agent_forge_actors::ports::effect::EffectKind;
use agent_forge_crds::{
    external::agent::{AGENT_MACHINE_REF_LABEL, AGENT_MACHINE_REF_NAMESPACE_ANNOTATION},
    names::AGENT_MACHINE_LABEL,
};
use anyhow::{Context as _, Result};
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::{
    Run, children,
    disaster::told,
    guests::says,
    marked,
    site::{agents, merge_pool},
};
use crate::{
    kube::kind,
    oracles::{self, ASSISTED, OURS},
    promise::Oracle,
    world::{NAMESPACE, World},
};

/// Longer than two orphan scans.
const SCANS: Duration = Duration::from_secs(1500);

/// Somebody's AgentMachine in another control plane claims the only Agent, or releases it.
fn claim(world: &World, claimed: bool) -> Result<()> {
    let agents = kind(ASSISTED, "agents");
    let all = world.api.read(|s| s.list(&agents, NAMESPACE));
    let of = |agent: &Value| agent["metadata"]["labels"][AGENT_MACHINE_REF_LABEL] == "stranger";
    let agent = all.iter().find(|a| claimed || of(a)).context("an Agent")?;
    let name = agent["metadata"]["name"].as_str().unwrap_or_default();
    let value = |text: &str| if claimed { json!(text) } else { Value::Null };
    let patch = json!({"metadata": {
        "labels": {AGENT_MACHINE_REF_LABEL: value("stranger")},
        "annotations": {AGENT_MACHINE_REF_NAMESPACE_ANNOTATION: value("elsewhere")},
    }});
    let key = (NAMESPACE.to_owned(), name.to_owned());
    world.api.merge(&agents, &key, &patch)?;
    Ok(())
}

pub(super) fn agent_claimed_elsewhere(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        run.registered(&json!({})).await?;
        claim(&run.world, true)?;
        run.approves(true)?;
        run.rest("its AgentMachine has another host", |world| {
            let running = world.play("w").map_or(0, |p| p.running().len());
            running == 1
                && marked(world) == 2
                && children(world) == 2
                && says(world, "AgentElsewhere")
        })
        .await?;
        claim(&run.world, false)?;
        run.rest_with("the first one goes", &[("w", 1)]).await?;
        run.world.play("w")?.scale(0);
        run.rest_with("down", &[("w", 0)]).await
    })
}

/// The labels of our only VsphereAgent, with its key.
fn labels(world: &World) -> Option<((String, String), Value)> {
    let all = world
        .api
        .read(|s| s.list(&kind(OURS, "vsphereagents"), NAMESPACE));
    let child = all.first().filter(|_| all.len() == 1)?;
    let name = child["metadata"]["name"].as_str()?;
    let key = (NAMESPACE.to_owned(), name.to_owned());
    Some((key, child["metadata"]["labels"].clone()))
}

/// Somebody removes the label, and the operator adds it again.
async fn unlabel(run: &mut Run, name: &'static str) -> Result<()> {
    let (key, _) = labels(&run.world).context("one VsphereAgent")?;
    let patch = json!({"metadata": {"labels": {AGENT_MACHINE_LABEL: null}}});
    run.world
        .api
        .merge(&kind(OURS, "vsphereagents"), &key, &patch)?;
    run.rest(name, |world| {
        labels(world).is_some_and(|(_, all)| all[AGENT_MACHINE_LABEL].is_string())
            && marked(world) == 1
    })
    .await
}

pub(super) fn agent_machine_label_removed(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        run.registered(&json!({})).await?;
        unlabel(run, "labelled again before it serves").await?;
        run.approves(true)?;
        run.rest_with("one up", &[("w", 1)]).await?;
        unlabel(run, "labelled again while it serves").await?;
        run.world.play("w")?.scale(0);
        run.rest_with("down", &[("w", 0)]).await
    })
}

pub(super) fn node_pool_moved(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        // The pool approves nothing. A process that sees the edit late could otherwise have approved the host already.
        let unapproved = json!({"agent": {"approve": false}});
        run.world.pool("w", &unapproved).await?;
        run.world.pool("x", &json!({})).await?;
        run.rest("their ISOs lie ready", |world| {
            ["w", "x"]
                .iter()
                .all(|p| world.of_pool(p, "/status/iso/sha256").is_string())
        })
        .await?;
        run.begins = run.world.director.now();
        run.world.play("w")?.scale(1);
        run.waits("a VM is asked for", |world| {
            world.director.times(EffectKind::CreateVm) > 0
        })
        .await?;
        let nobodys = json!({"spec": {"nodePoolRef": {"name": "nobodys"}}});
        merge_pool(&run.world, "w", &nobodys)?;
        let role = json!({"hypershift.openshift.io/nodepool-role": "w"});
        let taken = json!({"spec": {"nodePoolRef": {"name": "w"}, "agent": {"labels": role}}});
        merge_pool(&run.world, "x", &taken)?;
        run.rest_with("one up", &[("w", 1)]).await?;
        run.world.play("w")?.scale(0);
        run.rest_with("down", &[("w", 0)]).await
    })
}

pub(super) fn vm_retained(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        run.world
            .pool("w", &json!({"cleanupPolicy": "Retain"}))
            .await?;
        // The orphan scan of the vCenter continues through the session of this pool.
        run.world.pool("x", &json!({})).await?;
        run.world.play("w")?.scale(1);
        run.rest_with("one up", &[("w", 1)]).await?;
        run.begins = run.world.director.now();
        run.world.play("w")?.scale(0);
        run.rest("kept", |world| {
            let gone = world.play("w").is_ok_and(|p| p.machines().is_empty());
            gone && marked(world) == 1 && children(world) == 1 && says(world, "Retained")
        })
        .await?;
        run.world.delete_pool("w")?;
        run.rest("left to people", |world| {
            let released =
                |vm: &crate::vcenter::model::Vm| oracles::released(vm).is_some() && vm.on;
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
    })
}
