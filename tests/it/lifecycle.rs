//! Deletion of pools and NodePools, Agents in other namespaces, and manual approval.

use std::{collections::BTreeSet, time::Duration};

use agent_forge_crds::{
    conditions::{Phase, event},
    names::{AGENT_MACHINE_LABEL, FORCE_DELETE_ANNOTATION},
};
use agent_forge_lab::played::{Delays, object::Facts as _, provider::HOOK};
use anyhow::{Context as _, Result, bail, ensure};
use kube::ResourceExt;
use serde_json::json;

use crate::{
    custody::SECRET,
    look::{is_fenced, merge, pinned_to},
    witness::Witness,
    world::{CLUSTER, LIMIT, POOL, Setup, World, pool_labels},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_pool_waits_for_its_bound_hosts() -> Result<()> {
    let world = World::start(Setup::default()).await?;
    let witness = Witness::start(world.sight());
    let nodes = world.up(2).await?;
    world.until_holders(SECRET, &[POOL]).await?;
    world.pools().delete(POOL, &Default::default()).await?;
    world
        .until("the reason why both stay", async || {
            let waits = world.waiting_on().await?;
            Ok(nodes
                .running()
                .iter()
                .all(|name| waits.get(name).map(String::as_str) == Some("AgentBound")))
        })
        .await?;
    ensure!(world.pool_status().await?.closed == Some(true));

    // The pool takes no new AgentMachines. One that is deleted in the meantime is handled as usual.
    nodes.scale(3);
    // Without its hook, the provider would never let go of an AgentMachine that it has put its finalizer on.
    let hooked = || {
        nodes
            .machines()
            .iter()
            .all(|m| m.annotation(HOOK).is_some())
    };
    let waits = || nodes.agent_machines().len() == 3 && hooked();
    nodes.wait("a third AgentMachine", LIMIT, waits).await?;
    nodes.scale(1);
    world.machines_left(&nodes, 1).await?;
    world.settled(1).await?;
    ensure!(world.vms().await? == nodes.running());
    ensure!(world.pool().await?.metadata.deletion_timestamp.is_some());

    nodes.scale(0);
    world.settled(0).await?;
    world.pool_ends().await?;
    let holders = world.holders(SECRET).await?;
    ensure!(holders == Some(BTreeSet::new()), "held: {holders:?}");
    let made = world.vcenter.calls().await?.of("CreateVM_Task");
    ensure!(made == 2, "a pool that is being deleted made {made} VMs");
    witness.verdict()
}

/// `kubectl delete vsphereagent` never destroys the VM of a serving node, unless a person sets the force annotation.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_record_waits_for_its_machine() -> Result<()> {
    let world = World::start(Setup::default()).await?;
    let witness = Witness::start(world.sight());
    let nodes = world.up(2).await?;
    for child in world.all_children().await? {
        let name = child.name_any();
        world.children().delete(&name, &Default::default()).await?;
    }
    world
        .until("the reason why both stay", async || {
            let said = world.all_children().await?.iter().all(|child| {
                let rows = child.status.iter().flat_map(|s| &s.waiting_on);
                rows.map(|row| row.reason.as_str()).eq(["AgentBound"])
            });
            Ok(said)
        })
        .await?;
    for name in nodes.running() {
        let deferred = (event::AGENT_DELETE_DEFERRED, true);
        let child = ("VsphereAgent", name.as_str());
        world
            .until_told(deferred, child, "serves a Machine")
            .await?;
    }
    nodes.scale(1);
    world.settled(1).await?;
    let left = nodes.running();
    ensure!(world.vms().await? == left, "the wrong VM went");
    witness.verdict()?;

    let name = left.first().context("one runs")?;
    let force = json!({"metadata": {"annotations": {FORCE_DELETE_ANNOTATION: "true"}}});
    merge(&world.children(), name, force).await?;
    world
        .until("the end of the VM", async || {
            Ok(world.vms().await?.is_empty() && world.children().get_opt(name).await?.is_none())
        })
        .await
}

/// HyperShift deletes the AgentMachines first. Their VMs serve until the Machines are gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_node_pool_takes_its_hosts_along() -> Result<()> {
    let world = World::start(Setup::default()).await?;
    let witness = Witness::start(world.sight());
    let nodes = world.up(3).await?;
    nodes.delete_node_pool().await?;
    world.machines_left(&nodes, 0).await?;
    world.settled(0).await?;
    let calls = world.vcenter.calls().await?;
    ensure!(calls.of("CreateVM_Task") == 3 && calls.of("Destroy_Task") == 3);
    witness.verdict()
}

/// Agents are in the InfraEnv's namespace. The spec names it, or it is the control plane's by default.
#[tokio::test(flavor = "multi_thread")]
async fn a_pool_is_served_with_agents_of_another_namespace() -> Result<()> {
    let named = Setup {
        agents_beside: Some("agents"),
        ..Setup::default()
    };
    let implied = Setup {
        agents_beside: Some(CLUSTER),
        ..Setup::default()
    };
    tokio::try_join!(one_up_and_down(named), one_up_and_down(implied))?;
    Ok(())
}

async fn one_up_and_down(setup: Setup) -> Result<()> {
    let world = World::start(setup).await?;
    let witness = Witness::start(world.sight());
    let nodes = world.up(1).await?;
    world.settled(1).await?;
    world.each_serves_its_own().await?;
    world
        .until("the Agent in the VM's record", async || {
            let recorded = world.all_children().await?.pop().and_then(|c| c.status?.vm);
            let agent = recorded.and_then(|vm| vm.agent_ref);
            let namespace = agent.and_then(|agent| agent.namespace);
            Ok(namespace.as_deref() == Some(world.cluster.agent_namespace.as_str()))
        })
        .await?;
    nodes.scale(0);
    world.settled(0).await?;
    witness.verdict()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_is_not_approved_if_people_approve() -> Result<()> {
    let world = World::start(Setup::pool(json!({"agent": {"approve": false}}))).await?;
    let nodes = world.wanted(1).await?;
    world.until_pool_waits("ApprovalRequired", "").await?;
    let agent = world.all_agents().await?.pop().context("an Agent")?;
    let am = nodes.agent_machines().pop().context("an AgentMachine")?;
    ensure!(!agent.spec.approved, "approved although nobody did");
    ensure!(agent.spec.hostname.as_deref() == Some(am.name()));
    ensure!(agent.spec.role == "worker");
    ensure!(pinned_to(&am) == Some(am.name()));
    ensure!(agent.labels().get(AGENT_MACHINE_LABEL).map(String::as_str) == Some(am.name()));
    for (key, value) in pool_labels() {
        ensure!(agent.labels().get(&key) == Some(&value), "label {key}");
    }
    let approve = json!({"spec": {"approved": true}});
    merge(&world.agents(), &agent.name_any(), approve).await?;
    world.running(&nodes, 1).await?;
    world
        .until("no more request", async || {
            Ok(world.waiting_on().await?.is_empty())
        })
        .await
}

/// If an AgentMachine vanishes before the Agent of its VM was approved, the VM serves the next waiting AgentMachine.
#[tokio::test(flavor = "multi_thread")]
async fn a_vm_in_the_making_is_offered_to_the_next() -> Result<()> {
    let world = World::start(Setup {
        delays: Delays {
            // Two Machines are deleted and one is created before a guest boots.
            boot: Duration::from_secs(20),
            ..Delays::fast()
        },
        ..Setup::default()
    })
    .await?;
    let witness = Witness::start(world.sight());
    let nodes = world.wanted(1).await?;
    world
        .until("a running VM", async || {
            Ok(world.all_vms().await?.iter().any(|vm| vm.is_on()))
        })
        .await?;
    let made = world.all_vms().await?.pop().context("the VM")?;
    // A MachineHealthCheck deletes the Machine. Its set creates another one when it is gone.
    nodes.remediate(&made.name).await?;
    world.running(&nodes, 1).await?;
    let serving = nodes.running().pop().context("one runs")?;
    ensure!(serving != made.name, "the Machine was not replaced");
    let vms = world.all_vms().await?;
    let [vm] = vms.as_slice() else {
        bail!("{} VMs", vms.len())
    };
    ensure!(vm.moref == made.moref, "another VM was made");
    let agent = world.agent_on(vm).await?;
    ensure!(agent.claimed_by() == Some(serving.as_str()));
    ensure!(agent.spec.hostname.as_deref() == Some(serving.as_str()));
    ensure!(world.vcenter.calls().await?.of("CreateVM_Task") == 1);

    // If no AgentMachine needs the VM, it is destroyed.
    nodes.scale(2);
    world
        .until("a second VM", async || {
            let all = world.all_vms().await?;
            Ok(all.len() == 2 && all.iter().all(|vm| vm.is_on()))
        })
        .await?;
    nodes.scale(1);
    world.settled(1).await?;
    ensure!(nodes.running() == [serving], "{:?}", nodes.describe());
    let phases = world.phases().await?;
    let phase = phases.values().next().and_then(|(phase, _)| phase.clone());
    ensure!(phase == Some(Phase::Bound), "{phases:?}");
    let agents = world.all_agents().await?;
    ensure!(!agents.iter().any(is_fenced), "the serving Agent is fenced");
    ensure!(
        agents
            .iter()
            .all(|a| a.namespace().as_deref() == Some(world.namespace()))
    );
    witness.verdict()
}
