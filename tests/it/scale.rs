//! Scale up and down.

use std::time::Duration;

use agent_forge_crds::{conditions::Phase, names::AGENT_MACHINE_LABEL};
use agent_forge_lab::played::{Delays, object::Facts as _};
use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt;
use serde_json::json;

use crate::{
    look::{is_fenced, reserved_reason},
    witness::Witness,
    world::{LIMIT, Setup, World, fits_pool},
};

/// The Agent must stay until its VM is gone, which takes half a minute to destroy. Then a Machine is deleted while the
/// operator is stopped.
#[tokio::test(flavor = "multi_thread")]
async fn hosts_go_although_a_destroy_is_slow_or_the_operator_was_stopped() -> Result<()> {
    let mut world = World::start(Setup::default()).await?;
    let witness = Witness::start(world.sight());
    let nodes = world.up(3).await?;

    world
        .vcenter
        .set_delays(&[("destroy", Duration::from_secs(30))])
        .await?;
    nodes.scale(2);
    world.machines_left(&nodes, 2).await?;
    world
        .until("a running Destroy_Task", async || {
            Ok(world.vcenter.calls().await?.of("Destroy_Task") == 1)
        })
        .await?;
    let left = nodes.running();
    let all = world.all_vms().await?;
    let going = all
        .iter()
        .find(|vm| !left.contains(&vm.name))
        .context("a VM whose Machine is gone")?;
    ensure!(!going.is_on(), "{} is destroyed while it runs", going.name);
    let agent = world.agent_on(going).await?;
    ensure!(!agent.is_deleting(), "the Agent is deleted before its VM");
    ensure!(is_fenced(&agent), "{:?}", agent.labels());
    world.settled(2).await?;
    ensure!(nodes.running() == left, "another Machine was touched");
    world
        .vcenter
        .set_delays(&[("destroy", Duration::from_millis(100))])
        .await?;

    world.stop_operator().await?;
    nodes.scale(1);
    world.machines_left(&nodes, 1).await?;
    ensure!(world.vms().await?.len() == 2, "who destroyed it?");
    world.start_operator().await?;
    world.settled(1).await?;
    let left = nodes.running();
    ensure!(left == world.vms().await?, "the wrong VM is left: {left:?}");
    let on = world.all_vms().await?.iter().all(|vm| vm.is_on());
    ensure!(on, "the VM in use was switched off");
    ensure!(world.vcenter.calls().await?.of("Destroy_Task") == 2);
    witness.verdict()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retained_vm_is_kept_and_reported() -> Result<()> {
    let world = World::start(Setup::pool(json!({"cleanupPolicy": "Retain"}))).await?;
    let witness = Witness::start(world.sight());
    let nodes = world.up(2).await?;
    nodes.scale(1);
    world.machines_left(&nodes, 1).await?;
    let left = nodes.running();
    let freed = world
        .vms()
        .await?
        .into_iter()
        .find(|name| !left.contains(name))
        .context("the VM stays")?;
    world
        .until("the reason why it stays", async || {
            let waits = world.waiting_on().await?;
            let phase = world.phases().await?.get(&freed).and_then(|p| p.0.clone());
            Ok(waits.get(&freed).map(String::as_str) == Some("Retained")
                && phase == Some(Phase::Released))
        })
        .await?;
    let vm = world.vcenter.inventory().await?;
    let vm = vm.vm(&freed).context("the VM stays")?;
    ensure!(vm.is_on(), "a retained VM keeps running");
    let agent = world.agent_on(vm).await?;
    ensure!(is_fenced(&agent), "{:?}", agent.labels());

    // A new AgentMachine gets a new VM. A person decides about the retained one.
    nodes.scale(2);
    world.running(&nodes, 2).await?;
    world.settled(3).await?;
    let agent = world.agent_on(vm).await?;
    ensure!(!agent.is_claimed_or_bound(), "the retained Agent was taken");
    witness.verdict()?;

    // The pool is deleted, but its VM stays.
    nodes.scale(0);
    world.machines_left(&nodes, 0).await?;
    world
        .pools()
        .delete(crate::world::POOL, &Default::default())
        .await?;
    world
        .until("the pool's end", async || {
            let pool = world.pools().get_opt(crate::world::POOL).await?;
            Ok(pool.is_none() && world.all_children().await?.is_empty())
        })
        .await?;
    ensure!(world.vms().await?.len() == 3, "a retained VM is gone");
    let agents = world.all_agents().await?;
    ensure!(agents.len() == 3 && agents.iter().all(is_fenced));
    let calls = world.vcenter.calls().await?;
    ensure!(calls.of("Destroy_Task") == 0 && calls.of("PowerOffVM_Task") == 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_upgrade_replaces_hosts_one_by_one() -> Result<()> {
    let world = World::start(Setup::default()).await?;
    let witness = Witness::start(world.sight());
    let nodes = world.up(2).await?;
    let old = nodes.running();
    nodes.rolling_upgrade(1)?;
    let replaced = || {
        let now = nodes.running();
        now.len() == 2 && nodes.machines().len() == 2 && now.iter().all(|name| !old.contains(name))
    };
    world
        .until_nodes(&nodes, "two new Machines", replaced)
        .await?;
    world.settled(2).await?;
    world.each_serves_its_own().await?;
    let calls = world.vcenter.calls().await?;
    ensure!(calls.of("CreateVM_Task") == 4 && calls.of("Destroy_Task") == 2);
    witness.verdict()
}

/// A freed Agent is valid again before its Machine is gone. If another AgentMachine claimed it then, both would wait
/// for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_freed_agent_is_nobodys_while_another_machine_waits() -> Result<()> {
    let world = World::start(Setup {
        // A host boots twice to be taken back, which really takes minutes. With a second or two, a slow operator could
        // be too late.
        delays: Delays {
            reclaim: Duration::from_secs(4),
            reclaim_reboot: Duration::from_secs(4),
            ..Delays::fast()
        },
        ..Setup::default()
    })
    .await?;
    let witness = Witness::start(world.sight());
    let nodes = world.up(2).await?;

    // It has the same selector but no pool, so it gets no pin. Only the fence keeps it from the freed Agent.
    let other = world
        .upstream
        .node_pool(&world.cluster, "other", Some(fits_pool()))
        .await?;
    other.scale(1);
    let waits = || {
        let all = other.agent_machines();
        all.first()
            .is_some_and(|am| reserved_reason(am) == "NoSuitableAgents")
    };
    other.wait("a waiting AgentMachine", LIMIT, waits).await?;
    nodes.scale(1);
    world.settled(1).await?;
    ensure!(waits(), "{:?}", other.describe());
    let am = other.agent_machines();
    ensure!(am.iter().all(|am| am.at("/status/agentRef").is_none()));
    other.scale(0);
    world.machines_left(&other, 0).await?;

    // The same with an AgentMachine of our own that waits for its VM. Both get their own Agent. The create takes so long
    // that the replacement has its pin before the new Agent is valid: the provider may bind any valid Agent to one without.
    world
        .vcenter
        .set_delays(&[("create", Duration::from_secs(20))])
        .await?;
    let first = nodes.running();
    nodes.scale(2);
    world
        .until("a VM on its way", async || {
            Ok(world.vcenter.calls().await?.of("CreateVM_Task") == 3)
        })
        .await?;
    nodes.remediate(first.first().context("one runs")?).await?;
    let replaced = || {
        nodes.running().len() == 2
            && nodes.machines().len() == 2
            && nodes.running().iter().all(|name| !first.contains(name))
    };
    world
        .until_nodes(&nodes, "two new Machines", replaced)
        .await?;
    world.settled(2).await?;
    world.each_serves_its_own().await?;
    witness.verdict()
}

/// The provider binds existing hosts. The operator only creates what is missing, and never changes those hosts.
#[tokio::test(flavor = "multi_thread")]
async fn a_free_agent_is_taken_before_a_vm_is_made() -> Result<()> {
    let world = World::start(Setup::default()).await?;
    let service = world.upstream.service(&world.cluster.agent_namespace)?;
    let labels = json!({"customer": "example"});
    let metal =
        agent_forge_lab::played::foreign::bare_metal(service, "demo", 7, labels, true).await?;
    let nodes = world.up(2).await?;
    ensure!(world.vms().await?.len() == 1, "one host was there already");
    let bound = world.agents().get(metal.name()).await?;
    ensure!(bound.is_claimed_or_bound());
    ensure!(!bound.labels().contains_key(AGENT_MACHINE_LABEL));
    nodes.scale(0);
    world
        .until("the one VM's end", async || {
            Ok(world.vms().await?.is_empty() && world.all_agents().await?.len() == 1)
        })
        .await?;
    let kept = world.agents().get(metal.name()).await?;
    ensure!(kept.spec.approved, "a foreign host was fenced");
    ensure!(kept.labels().get("customer").map(String::as_str) == Some("example"));
    Ok(())
}
