//! Workloads in which something happens to a host right before the operator acts, and only a live read shows it in time.

use std::{sync::Arc, time::Duration};

use agent_forge_actors::{domain::names::ObjectKey, ports::effect::EffectKind};
use agent_forge_sim::{
    director::{Forbidden, Scope},
    kube::{
        kind,
        store::{is_deleting, name_of},
    },
    promise::Oracle,
    rogue,
    vcenter::{Takes, tasks::Work},
    workloads::{self, Run},
    world::World,
};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::scenes::{SOON, until_effect};

/// All watches lag in that time, from the moment at which the host is not wanted any more. Its fence shows 60 s after that.
const LAG: Duration = Duration::from_secs(180);
/// A lagging watch shows something 20 s after it. What happens now, it shows later than that.
const HALF: Duration = Duration::from_secs(10);

/// A host of the buffer is not wanted any more, and all watches lag. Returns its Agent.
async fn not_wanted(run: &mut Run) -> Result<Arc<Value>> {
    let buffer = |hosts: usize| json!({"scaling": {"bufferAgents": hosts}});
    run.world.pool("w", &buffer(1)).await?;
    run.rest("a host waits", |world| {
        world.of_pool("w", "/status/buffer/ready") == 1
    })
    .await?;
    let agent = run.world.api.list(&kind("agents"), "").pop();
    run.world.director.lag(LAG);
    run.world.merge_pool("w", &json!({"spec": buffer(0)}))?;
    agent.context("an Agent")
}

/// A host of the buffer is about to go: its VsphereAgent is being deleted, and its Agent is fenced. The operator's caches show the
/// fence ten seconds from now, and what happens now only after that. Returns the Agent as it was before.
async fn about_to_go(run: &mut Run) -> Result<Arc<Value>> {
    let agent = not_wanted(run).await?;
    until_effect(&run.world, EffectKind::FenceAgent).await?;
    tokio::time::sleep(HALF).await;
    Ok(agent)
}

/// An AgentMachine of another control plane claims that Agent, or releases it.
fn claim(world: &World, agent: &Value, claimed: bool) -> Result<()> {
    let value = |text: &str| if claimed { json!(text) } else { Value::Null };
    let patch = json!({"metadata": {
        "labels": {"agentMachineRef": value("stranger")},
        "annotations": {"agentMachineRefNamespace": value("elsewhere")},
    }});
    world.api.merge(&kind("agents"), &name_of(agent), &patch)?;
    Ok(())
}

/// The claim stands for a while, and ends. Only then the VM goes.
async fn is_released(run: &mut Run, agent: &Value) -> Result<()> {
    tokio::time::sleep(SOON).await;
    claim(&run.world, agent, false)?;
    run.rest_with("down", &[("w", 0)]).await
}

pub(crate) async fn leaving_host_claimed_unseen(run: &mut Run) -> Result<()> {
    let agent = about_to_go(run).await?;
    claim(&run.world, &agent, true)?;
    is_released(run, &agent).await
}

/// Switching a VM off takes so long that it runs when the workload looks.
const SLOW_OFF: Takes = |work| match work {
    Work::PowerOff(..) => Some(5_000),
    _ => None,
};

pub(crate) async fn leaving_host_unfenced_unseen(run: &mut Run) -> Result<()> {
    let before = about_to_go(run).await?;
    run.world.vcenter.set_tempo(SLOW_OFF);
    let (agents, name) = (kind("agents"), name_of(&before));
    let labels = &before["metadata"]["labels"];
    let back = json!({"metadata": {"labels": labels}, "spec": {"approved": true}});
    run.world.api.merge(&agents, &name, &back)?;
    until_effect(&run.world, EffectKind::PowerOff).await?;
    let now = run.world.api.get(&agents, &name).context("its Agent")?;
    if now["spec"]["approved"] == true {
        let open = Oracle::ForeignAndServingUntouched
            .broken("a VM is switched off while any AgentMachine can choose its Agent");
        run.world.director.violated(open);
    }
    run.rest_with("down", &[("w", 0)]).await
}

/// How long a request takes to a vCenter that is slow, and its answer as well. Together that is less than a call may take. Two
/// calls take longer than a permit is valid.
const SLOW: Duration = Duration::from_secs(10);

pub(crate) async fn leaving_host_claimed_at_login(run: &mut Run) -> Result<()> {
    let agent = about_to_go(run).await?;
    run.world.vcenter.slow_down(Some(SLOW));
    until_effect(&run.world, EffectKind::PowerOff).await?;
    // The request is on its way. vCenter refuses it, and a new login comes first.
    run.world.vcenter.forget_sessions();
    claim(&run.world, &agent, true)?;
    tokio::time::sleep(SLOW * 12).await;
    run.world.vcenter.slow_down(None);
    is_released(run, &agent).await
}

pub(crate) async fn leaving_host_vetoed_unseen(run: &mut Run) -> Result<()> {
    about_to_go(run).await?;
    let children = kind("vsphereagents");
    let child = run.world.vsphere_agents().pop();
    let child = child.context("a VsphereAgent")?;
    let name = name_of(&child);
    let veto = |value: Value| {
        let key = "delete.check.agent-forge.containeroo.ch/somebody";
        json!({"metadata": {"annotations": {key: value}}})
    };
    run.world
        .api
        .merge(&children, &name, &veto(json!("true")))?;
    let scope = Scope::of_vms(vec![ObjectKey::new(&name.0, &name.1)]);
    run.world.director.hold(Forbidden::Removal, scope, SOON);
    tokio::time::sleep(SOON).await;
    run.world.api.merge(&children, &name, &veto(Value::Null))?;
    run.rest_with("down", &[("w", 0)]).await
}

pub(crate) async fn unwanted_host_claimed_unseen(run: &mut Run) -> Result<()> {
    let agent = not_wanted(run).await?;
    tokio::time::sleep(HALF).await;
    claim(&run.world, &agent, true)?;
    tokio::time::sleep(SOON).await;
    let mut children = run.world.vsphere_agents().into_iter();
    if children.any(|child| is_deleting(&child)) {
        let deleted = Oracle::ForeignAndServingUntouched
            .broken("the VsphereAgent of a host that serves is deleted");
        run.world.director.violated(deleted);
    }
    is_released(run, &agent).await
}

pub(crate) async fn rival_agent_unseen(run: &mut Run) -> Result<()> {
    let approves = |approve: bool| json!({"agent": {"approve": approve}});
    run.world.pool("w", &approves(false)).await?;
    run.world.play("w")?.scale(1);
    run.rest("its Agent waits for approval", |world| {
        let agents = world.api.list(&kind("agents"), "");
        agents.len() == 1 && workloads::marked(world) == 1
    })
    .await?;
    let own = run.world.api.list(&kind("agents"), "").pop();
    let own = own.context("an Agent")?;
    run.world.director.lag(LAG);
    (run.world).merge_pool("w", &json!({"spec": approves(true)}))?;
    tokio::time::sleep(HALF).await;
    let (rival, _) = rogue::rival(&run.world, SOON).await?;
    tokio::time::sleep(SOON).await;
    let own = run.world.api.get(&kind("agents"), &name_of(&own));
    if own.context("its Agent")?["spec"]["approved"] == true {
        let approved = Oracle::ForeignAndServingUntouched
            .broken("an Agent is approved although another one matches its VM as well");
        run.world.director.violated(approved);
    }
    rogue::remove(&run.world, &rival);
    run.rest_with("one up", &[("w", 1)]).await?;
    run.down().await
}
