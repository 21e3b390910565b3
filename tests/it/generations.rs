//! The same work with every pair of agent provider and AgentMachine CRD that occurs, and with every Machine API
//! version.

use std::time::Duration;

use agent_forge_actors::domain::trace::TraceId;
use agent_forge_crds::conditions::{AGENT_MACHINE_DEMAND_FOUND, READY, event};
use agent_forge_lab::{
    MachineVersions, ProviderGeneration,
    played::{Delays, HostedClusterPlay, MachineApi, mirror::Object, object::Facts as _},
};
use anyhow::{Result, bail, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::events::v1::Event;
use kube::{Api, core::DynamicObject};
use tokio::time::Instant;

use crate::{
    look::reserved_reason,
    witness::Witness,
    world::{LIMIT, POOL, Setup, World},
};

/// Ten machines up, with one VM created for each; and all down again.
async fn ten_up_and_down(setup: Setup) -> Result<()> {
    let world = World::start(setup).await?;
    let witness = Witness::start(world.sight());
    let nodes = world.up(10).await?;
    world.settled(10).await?;
    world.each_serves_its_own().await?;
    let calls = world.vcenter.calls().await?;
    for method in ["CreateVM_Task", "PowerOnVM_Task", "ReconfigVM_Task"] {
        ensure!(calls.of(method) == 10, "{method}: {}", calls.of(method));
    }
    ensure!(calls.logins("vim") == 1, "{:?}", calls.logins);
    ensure!(calls.logins("rest") == 0, "no tags, no session for tags");
    nodes.scale(0);
    world.settled(0).await?;
    let calls = world.vcenter.calls().await?;
    for method in ["PowerOffVM_Task", "Destroy_Task", "CreateVM_Task"] {
        ensure!(calls.of(method) == 10, "{method}: {}", calls.of(method));
    }
    witness.verdict()
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_hosts_come_and_go_with_the_current_provider_and_v1beta2() -> Result<()> {
    ten_up_and_down(Setup::default()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_hosts_come_and_go_with_the_current_provider_and_v1beta1() -> Result<()> {
    ten_up_and_down(Setup {
        machine_api: MachineApi::V1Beta1,
        machine_versions: Some(MachineVersions::V1Beta1),
        ..Setup::default()
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_hosts_come_and_go_with_the_legacy_provider_and_v1beta1() -> Result<()> {
    ten_up_and_down(Setup {
        generation: ProviderGeneration::Legacy,
        machine_api: MachineApi::V1Beta1,
        ..Setup::default()
    })
    .await
}

/// Each of these pairs must be observed for a minute before anything may happen, so they run side by side.
#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_does_not_fit_its_crd_is_recognised() -> Result<()> {
    tokio::try_join!(
        current_provider_on_the_bundled_crd(),
        legacy_provider_with_v1beta2_owners(),
        legacy_provider_on_the_upstream_crd(),
    )?;
    Ok(())
}

/// When the first AgentMachine is a minute old, by its creationTimestamp in whole seconds. Each AgentMachine has its
/// own minute.
async fn a_minute_old(world: &World) -> Result<Timestamp> {
    let all = world.agent_machines().list(&Default::default()).await?;
    let Some(oldest) = all
        .iter()
        .filter_map(|am| am.metadata.creation_timestamp.as_ref())
        .map(|created| created.0)
        .min()
    else {
        bail!("no AgentMachine")
    };
    Ok(oldest + SignedDuration::from_secs(60))
}

async fn with_waiting(setup: Setup, count: usize) -> Result<(World, HostedClusterPlay)> {
    let world = World::start(setup).await?;
    let nodes = world.wanted(count).await?;
    // They are owned by their Machines. From now on only the provider's silence delays them.
    let owned = || {
        let all = nodes.agent_machines();
        let by_machine = |am: &_| {
            let owners = agent_forge_lab::played::mirror::Object::clone(am);
            owners
                .metadata
                .owner_references
                .iter()
                .flatten()
                .any(|owner| owner.kind == "Machine")
        };
        all.len() == count && all.iter().all(by_machine)
    };
    nodes.wait("owned AgentMachines", LIMIT, owned).await?;
    Ok((world, nodes))
}

/// No condition is ever written. After a minute the operator tries one VM. Only after an AgentMachine has got it, the
/// others get theirs.
async fn current_provider_on_the_bundled_crd() -> Result<()> {
    let (world, nodes) = with_waiting(
        Setup {
            generation: ProviderGeneration::CurrentOnBundledCrd,
            // The VM on trial is the only one for this long, so that even a slow test sees it.
            delays: Delays {
                boot: Duration::from_secs(6),
                ..Delays::fast()
            },
            ..Setup::default()
        },
        3,
    )
    .await?;
    let witness = Witness::start(world.sight());
    let earliest = a_minute_old(&world).await?;
    let served = async || -> Result<usize> {
        let all = world.agent_machines().list(&Default::default()).await?;
        let has_agent = |am: &&DynamicObject| am.at("/status/agentRef/name").is_some();
        Ok(all.iter().filter(has_agent).count())
    };
    let (mut seen_reason, mut seen_trial, mut others_wait) = (false, false, false);
    let end = Instant::now() + LIMIT;
    while nodes.running().len() < 3 {
        if Instant::now() > end {
            bail!("{:?}\n{}", nodes.describe(), world.explain().await);
        }
        // Read the VMs first, then the served AgentMachines: the number of served ones only grows.
        let children = world.all_children().await?.len();
        let vms = world.vms().await?.len();
        let now = Timestamp::now();
        let served = served().await?;
        ensure!(
            vms == 0 || now >= earliest,
            "a VM before the minute is over"
        );
        ensure!(
            vms.max(children) <= 1 || served >= 1,
            "{vms} VMs and {children} VsphereAgents before one AgentMachine was served"
        );
        seen_trial |= vms == 1 && served == 0;
        if let Some([status, reason, message]) =
            world.condition(POOL, AGENT_MACHINE_DEMAND_FOUND).await?
            && reason == "ConditionsMissing"
        {
            ensure!(status == "False" && message.contains(POOL), "{message}");
            seen_reason = true;
            let waits = world.waiting_on().await?;
            others_wait |= waits.values().filter(|r| *r == "ConditionsMissing").count() >= 2;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    ensure!(seen_trial, "the one VM on trial was never seen");
    ensure!(seen_reason && others_wait, "nobody was told why they wait");
    let conditions = nodes.agent_machines();
    ensure!(
        conditions
            .iter()
            .all(|am| am.at("/status/conditions").is_none())
    );
    world.settled(3).await?;
    world.each_serves_its_own().await?;
    nodes.scale(0);
    world.settled(0).await?;
    witness.verdict()
}

/// The legacy provider does not accept v1beta2 owners. There is no finalizer, so no VM is created, and after a minute a
/// condition reports it.
async fn legacy_provider_with_v1beta2_owners() -> Result<()> {
    let (world, nodes) = with_waiting(
        Setup {
            generation: ProviderGeneration::Legacy,
            machine_api: MachineApi::V1Beta2,
            machine_versions: Some(MachineVersions::Both),
            ..Setup::default()
        },
        2,
    )
    .await?;
    let earliest = a_minute_old(&world).await?;
    let all_wait = || {
        let all = nodes.agent_machines();
        all.iter()
            .all(|am| reserved_reason(am) == "NoSuitableAgents")
    };
    nodes
        .wait("AgentMachines without a host", LIMIT, all_wait)
        .await?;
    let waits = nodes.agent_machines();
    let message = world
        .until_refused(POOL, AGENT_MACHINE_DEMAND_FOUND, "ProviderNotAccepting")
        .await?;
    ensure!(
        Timestamp::now() >= earliest,
        "told before the minute is over"
    );
    // Each AgentMachine has its own minute, so one of them is reported first.
    ensure!(
        waits.iter().any(|am| message.contains(am.name())),
        "{message}"
    );
    world
        .until_refused(POOL, READY, "ProviderNotAccepting")
        .await?;
    each_is_told(&world, &waits, "ProviderNotAccepting").await?;
    let calls = world.vcenter.calls().await?;
    ensure!(calls.of("CreateVM_Task") == 0 && world.all_children().await?.is_empty());
    // Without AgentMachines the problem is gone.
    nodes.scale(0);
    world.until_true(POOL, AGENT_MACHINE_DEMAND_FOUND).await?;
    Ok(())
}

/// Waits until an Event on each of these AgentMachines says what it waits for, and names its trace.
async fn each_is_told(world: &World, waits: &[Object], reason: &str) -> Result<()> {
    let namespace = &world.cluster.control_plane_namespace;
    let events: Api<Event> = Api::namespaced(world.client.clone(), namespace);
    let tells = |e: &Event, am: &Object| {
        let about = e.regarding.as_ref().and_then(|r| r.uid.as_ref());
        let uid = am.metadata.uid.as_ref();
        let trace = TraceId::of_machine(uid.map_or("", String::as_str)).to_string();
        let note = e.note.as_deref().unwrap_or_default();
        e.reason.as_deref() == Some(event::WAITING_FOR_HOST)
            && uid.is_some()
            && about == uid
            && note.starts_with(reason)
            && note.contains(&trace)
    };
    world
        .until("an Event on each AgentMachine", async || {
            let all = events.list(&Default::default()).await?;
            Ok(waits.iter().all(|am| all.iter().any(|e| tells(e, am))))
        })
        .await
}

/// No status is written. The VM on trial is never claimed, so it stays the only one.
async fn legacy_provider_on_the_upstream_crd() -> Result<()> {
    let (world, nodes) = with_waiting(
        Setup {
            generation: ProviderGeneration::LegacyOnUpstreamCrd,
            machine_api: MachineApi::V1Beta1,
            ..Setup::default()
        },
        2,
    )
    .await?;
    world
        .until_refused(POOL, AGENT_MACHINE_DEMAND_FOUND, "ConditionsMissing")
        .await?;
    // Its Agent is prepared, but never claimed. Nothing more can happen.
    world
        .until("a prepared Agent", async || {
            let agents = world.all_agents().await?;
            Ok(agents.iter().any(|agent| agent.is_valid_for_claim()))
        })
        .await?;
    world
        .until("the other's reason", async || {
            let waits = world.waiting_on().await?;
            Ok(waits.values().filter(|r| *r == "ConditionsMissing").count() == 1)
        })
        .await?;
    ensure!(world.vcenter.calls().await?.of("CreateVM_Task") == 1);
    nodes.scale(0);
    world.settled(0).await
}
