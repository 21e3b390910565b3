//! VMs whose guest never registers an Agent. The operator replaces them after a timeout. After several replacements it
//! asks a person.

use std::collections::BTreeSet;

use agent_forge_crds::{
    VsphereAgent,
    conditions::{READY, find_condition},
};
use agent_forge_lab::played::guests::identity::Quirk;
use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt;
use serde_json::json;

use crate::{
    look::{merge, merge_status},
    world::{LIMIT, Setup, World},
};

/// VMs in a row that are replaced without asking (docs/reference/reasons.md).
const REPLACEMENTS: i32 = 4;

impl World {
    /// As [`World::until`], but fails if two VMs exist at the same time.
    async fn until_with_one_vm(
        &self,
        what: &str,
        done: impl Fn(&VsphereAgent) -> bool,
    ) -> Result<VsphereAgent> {
        let mut found = None;
        self.until(what, async || {
            let vms = self.vms().await?;
            ensure!(vms.len() <= 1, "two VMs at a time: {vms:?}");
            found = self.all_children().await?.pop().filter(|c| done(c));
            Ok(found.is_some())
        })
        .await?;
        found.context("a VsphereAgent")
    }
}

fn attempt(child: &VsphereAgent) -> Option<i32> {
    child.status.as_ref()?.vm.as_ref()?.attempt
}

fn is_on(child: &VsphereAgent) -> bool {
    let vm = child.status.as_ref().and_then(|s| s.vm.as_ref());
    vm.is_some_and(|vm| vm.power_state.as_deref() == Some("poweredOn"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_guest_is_replaced_and_after_some_a_person_decides() -> Result<()> {
    let world = World::start(Setup::pool(json!({"agent": {"discoveryTimeout": "30s"}}))).await?;
    let guests = world.upstream.guests.as_ref().context("guests")?;
    guests.add_quirk("/", Quirk::DeadOnArrival);
    let nodes = world.wanted(1).await?;
    let first = world.until_with_one_vm("a VM that runs", is_on).await?;
    let old = world.all_vms().await?.pop().context("its VM")?;
    ensure!(attempt(&first) == Some(1));

    let given_up = world
        .until_with_one_vm("the first one given up", |c| {
            c.status.as_ref().is_some_and(|s| s.last_failure.is_some())
        })
        .await?;
    let failure = given_up.status.and_then(|s| s.last_failure);
    let failure = failure.context("a failure")?;
    ensure!((failure.attempt, failure.count) == (Some(1), Some(1)));
    ensure!(
        failure.class.is_some()
            && failure.power_state.as_deref() == Some("poweredOn")
            && failure.moref.as_ref() == Some(&old.moref)
            && failure.bios_uuid.as_ref() == Some(&old.uuid),
        "class and evidence: {failure:?}"
    );

    let second = world
        .until_with_one_vm("the next attempt", |c| attempt(c) == Some(2) && is_on(c))
        .await?;
    let new = world.all_vms().await?.pop().context("its VM")?;
    ensure!(
        new.moref != old.moref && new.uuid != old.uuid,
        "another VM of another identity"
    );
    // Pretend that this number of VMs was replaced already. Waiting for it would take an hour.
    let many = json!({"lastFailure": {"count": REPLACEMENTS}});
    let (name, children) = (second.name_any(), world.children());
    merge_status(&children, &name, many).await?;
    let asks = world
        .until_with_one_vm("a question for a person", |c| {
            let status = c.status.as_ref();
            let ready = status.and_then(|s| find_condition(&s.conditions, READY));
            ready.is_some_and(|r| r.status == "False" && r.reason == "ReplacementsExhausted")
        })
        .await?;
    let status = asks.status.context("a status")?;
    let ready = find_condition(&status.conditions, READY).context("Ready")?;
    let answer = "agent-forge.containeroo.ch/replace";
    ensure!(
        ready.message.contains(&format!("{answer}=2")),
        "what to do is told: {}",
        ready.message
    );
    ensure!(
        world.all_vms().await?.pop().map(|vm| vm.moref) == Some(new.moref.clone()),
        "it is left alone until then"
    );

    // The person allows it.
    let allow = json!({"metadata": {"annotations": {answer: "2"}}});
    merge(&children, &name, allow).await?;
    world
        .until_with_one_vm("the second one given up", |c| {
            let failure = c.status.as_ref().and_then(|s| s.last_failure.as_ref());
            failure.is_some_and(|f| f.attempt == Some(2))
        })
        .await?;
    world
        .until("no VM during the rest", async || {
            Ok(world.vms().await?.is_empty())
        })
        .await?;
    let registered: BTreeSet<String> = world
        .all_agents()
        .await?
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    ensure!(registered.is_empty(), "the dead registered: {registered:?}");

    nodes.scale(0);
    let gone = || nodes.machines().is_empty() && nodes.agent_machines().is_empty();
    nodes.wait("no Machine", LIMIT, gone).await?;
    world
        .until("nothing left", async || {
            Ok(world.all_children().await?.is_empty() && world.vms().await?.is_empty())
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_falls_silent_after_it_registered_is_named_and_replaced() -> Result<()> {
    let world = World::start(Setup::pool(json!({"agent": {"discoveryTimeout": "30s"}}))).await?;
    let guests = world.upstream.guests.as_ref().context("guests")?;
    guests.add_quirk("/", Quirk::FallsSilent);
    let nodes = world.wanted(1).await?;
    let named = world
        .until_with_one_vm("a silent guest named", |c| {
            let status = c.status.as_ref();
            let ready = status.and_then(|s| find_condition(&s.conditions, READY));
            ready.is_some_and(|r| r.status == "False" && r.reason == "AgentDisconnected")
        })
        .await?;
    let status = named.status.context("a status")?;
    let ready = find_condition(&status.conditions, READY).context("Ready")?;
    ensure!(
        ready.message.contains("disconnected-unbound"),
        "{}",
        ready.message
    );
    ensure!(
        status
            .waiting_on
            .iter()
            .any(|w| w.reason.as_str() == ready.reason)
    );
    let silent = world.all_agents().await?.pop().context("its Agent")?;
    guests.clear_quirks();

    let given_up = world
        .until_with_one_vm("it given up", |c| {
            c.status.as_ref().is_some_and(|s| s.last_failure.is_some())
        })
        .await?;
    let failure = given_up.status.and_then(|s| s.last_failure);
    let class = failure.and_then(|f| f.class);
    ensure!(class.as_deref() == Some("AgentDisconnected"), "{class:?}");
    world
        .until_with_one_vm("the next attempt", |c| attempt(c) == Some(2) && is_on(c))
        .await?;
    nodes
        .wait("a running Machine", LIMIT, || nodes.running().len() == 1)
        .await?;
    let names = |agents: &[agent_forge_crds::external::agent::Agent]| {
        agents.iter().map(ResourceExt::name_any).collect::<Vec<_>>()
    };
    let left = names(&world.all_agents().await?);
    ensure!(!left.contains(&silent.name_any()), "it stayed: {left:?}");
    Ok(())
}
