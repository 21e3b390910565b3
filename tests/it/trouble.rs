//! vCenters that fail, hang, lose replies and become unreachable. Conditions report it, and afterwards there is exactly
//! one VM per machine.

use std::time::Duration;

use agent_forge_lab::parts::{
    VCenterOptions,
    vcenter_trouble::{Outage, Rule},
};
use anyhow::{Context as _, Result, ensure};
use futures::{
    StreamExt as _,
    future::{LocalBoxFuture, join_all},
    stream,
};
use serde_json::{Value, json};

use crate::{
    shared::PROMPT,
    site::Site,
    world::{Setup, World},
};

/// A create that takes long enough to be met by a fault.
fn slow_create() -> VCenterOptions {
    VCenterOptions {
        create_delay: Duration::from_secs(4),
        ..VCenterOptions::default()
    }
}

/// Starts the sites, a few at a time.
pub async fn sites(world: &World, wanted: &[(&str, VCenterOptions)]) -> Result<Vec<Site>> {
    let started: Vec<Result<Site>> = stream::iter(wanted)
        .map(|(name, options)| Site::start(world, name, options.clone()))
        .buffered(4)
        .collect()
        .await;
    started.into_iter().collect()
}

/// What happens at one site.
struct Case {
    name: &'static str,
    vcenter: VCenterOptions,
    run: for<'a> fn(&'a World, &'a Site) -> LocalBoxFuture<'a, Result<()>>,
}

/// Runs all cases side by side in one world.
async fn play(cases: &[Case]) -> Result<()> {
    let world = World::without_pool(Setup::named()).await?;
    let wanted: Vec<_> = cases.iter().map(|c| (c.name, c.vcenter.clone())).collect();
    let sites = sites(&world, &wanted).await?;
    let played = join_all(cases.iter().zip(&sites).map(|(case, site)| {
        let run = (case.run)(&world, site);
        async move { run.await.with_context(|| case.name) }
    }));
    all(played.await)
}

/// One machine comes and goes while this rule affects one call. Only one VM is ever created.
fn past<'a>(world: &'a World, site: &'a Site, rule: Rule) -> LocalBoxFuture<'a, Result<()>> {
    Box::pin(async move {
        let rule = site.admin.add_rule(&rule.times(1)).await?;
        site.open(world, &json!({})).await?;
        site.nodes.scale(1);
        site.running(world, 1).await?;
        site.empties(world).await?;
        ensure!(
            site.admin.rule_hits(&rule).await? == Some(1),
            "the rule never struck"
        );
        site.never_double(1, 1)
    })
}

/// As long as this rule is set, a machine cannot be created, for this reason. Afterwards it is created once.
fn held_up<'a>(
    world: &'a World,
    site: &'a Site,
    rule: Rule,
    reason: &'a str,
    vms: usize,
) -> LocalBoxFuture<'a, Result<()>> {
    Box::pin(async move {
        let rule = site.admin.add_rule(&rule).await?;
        site.open(world, &json!({})).await?;
        site.nodes.scale(1);
        site.until_trouble(world, reason).await?;
        let inventory = site.admin.inventory().await?;
        ensure!(inventory.vms.len() == vms, "half made: {:?}", inventory.vms);
        let others: Vec<_> = inventory
            .files
            .iter()
            .filter(|f| !f.path.ends_with(".iso"))
            .collect();
        ensure!(vms > 0 || others.is_empty(), "half made: {others:?}");
        site.admin.remove_rule(&rule).await?;
        site.running(world, 1).await?;
        site.empties(world).await?;
        site.never_double(1, 1)
    })
}

/// While the rule is set, tasks of this method end with this fault. Afterwards work continues, and there are never two
/// VMs at the same time. The operator may keep or replace a VM that could not be powered on.
fn task_fault<'a>(
    world: &'a World,
    site: &'a Site,
    method: &'a str,
    fault: Value,
    reason: &'a str,
) -> LocalBoxFuture<'a, Result<()>> {
    Box::pin(async move {
        let rule = Rule::task_fails(method, fault);
        let rule = site.admin.add_rule(&rule).await?;
        site.open(world, &json!({})).await?;
        site.nodes.scale(1);
        let said = site.until_trouble(world, reason).await?;
        ensure!(site.admin.rule_hits(&rule).await? > Some(0), "{said}");
        world.actors(PROMPT).await?;
        site.admin.remove_rule(&rule).await?;
        site.running(world, 1).await?;
        site.empties(world).await?;
        site.never_two()
    })
}

/// Waits until vCenter has got this number of calls of the method.
pub async fn until_called(world: &World, site: &Site, method: &str, times: u64) -> Result<()> {
    world
        .until(&format!("{method} at {}", site.name), async || {
            Ok(site.admin.calls().await?.of(method) >= times)
        })
        .await
}

/// A vCenter is unreachable while a machine is being created, and comes back.
fn away<'a>(world: &'a World, site: &'a Site, outage: Outage) -> LocalBoxFuture<'a, Result<()>> {
    Box::pin(async move {
        site.open(world, &json!({})).await?;
        site.nodes.scale(1);
        until_called(world, site, "CreateVM_Task", 1).await?;
        site.admin.outage(outage, Duration::from_secs(10)).await?;
        world.actors(PROMPT).await?;
        site.running(world, 1).await?;
        site.empties(world).await?;
        site.never_double(1, 1)
    })
}

/// A vCenter is unreachable from the beginning. This is reported, and work begins when it is back.
fn away_at_first<'a>(
    world: &'a World,
    site: &'a Site,
    outage: Outage,
    reason: &'a str,
) -> LocalBoxFuture<'a, Result<()>> {
    Box::pin(async move {
        site.admin.outage(outage, Duration::from_secs(3600)).await?;
        site.open(world, &json!({})).await?;
        site.nodes.scale(1);
        site.until_trouble(world, reason).await?;
        world.actors(PROMPT).await?;
        site.admin.end_outage().await?;
        site.running(world, 1).await?;
        site.never_double(1, 1)
    })
}

macro_rules! case {
    ($name:literal, $vcenter:expr, |$world:ident, $site:ident| $run:expr) => {
        Case {
            name: $name,
            vcenter: $vcenter,
            run: |$world, $site| $run,
        }
    };
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_replies_make_no_second_vm() -> Result<()> {
    play(&[
        case!("mkdir", VCenterOptions::default(), |w, s| past(
            w,
            s,
            Rule::loses_reply("MakeDirectory")
        )),
        case!("upload", VCenterOptions::default(), |w, s| past(
            w,
            s,
            Rule::loses_reply("PUT /folder")
        )),
        case!("publish", VCenterOptions::default(), |w, s| past(
            w,
            s,
            Rule::loses_reply("MoveDatastoreFile_Task")
        )),
        case!("folder", VCenterOptions::default(), |w, s| past(
            w,
            s,
            Rule::loses_reply("CreateFolder")
        )),
        case!("create", VCenterOptions::default(), |w, s| past(
            w,
            s,
            Rule::loses_reply("CreateVM_Task")
        )),
        case!("slow-create", slow_create(), |w, s| past(
            w,
            s,
            Rule::loses_reply("CreateVM_Task")
        )),
        case!("reconfigure", VCenterOptions::default(), |w, s| past(
            w,
            s,
            Rule::loses_reply("ReconfigVM_Task")
        )),
        case!("power-on", VCenterOptions::default(), |w, s| past(
            w,
            s,
            Rule::loses_reply("PowerOnVM_Task")
        )),
        case!("power-off", VCenterOptions::default(), |w, s| past(
            w,
            s,
            Rule::loses_reply("PowerOffVM_Task")
        )),
        case!("destroy", VCenterOptions::default(), |w, s| past(
            w,
            s,
            Rule::loses_reply("Destroy_Task")
        )),
        case!("gateway", VCenterOptions::default(), |w, s| past(
            w,
            s,
            Rule::answers("CreateVM_Task", 503)
        )),
        case!("session", slow_create(), |w, s| Box::pin(async move {
            s.open(w, &json!({})).await?;
            s.nodes.scale(1);
            until_called(w, s, "CreateVM_Task", 1).await?;
            ensure!(s.admin.kill_sessions().await? > 0, "there was a session");
            s.running(w, 1).await?;
            s.empties(w).await?;
            ensure!(s.admin.calls().await?.logins("refused") == 0);
            s.never_double(1, 1)
        })),
    ])
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_and_outages_are_said_and_survived() -> Result<()> {
    play(&[
        case!("argument", VCenterOptions::default(), |w, s| {
            let rule = Rule::call_fails(
                "CreateVM_Task",
                json!({"_typeName": "InvalidArgument", "invalidProperty": "configSpec.guestId"}),
            );
            held_up(w, s, rule, "InvalidArgument", 0)
        }),
        case!("busy", VCenterOptions::default(), |w, s| {
            past(
                w,
                s,
                Rule::task_fails(
                    "ReconfigVM_Task",
                    json!({
                        "_typeName": "TaskInProgress",
                        "task": {"_typeName": "ManagedObjectReference", "type": "Task", "value": "task-0"},
                    }),
                ),
            )
        }),
        case!("locked", VCenterOptions::default(), |w, s| {
            past(w, s, Rule::task_fails("Destroy_Task", json!({"_typeName": "FileLocked", "file": "[ds-0] a"})))
        }),
        case!("refuse", slow_create(), |w, s| away(w, s, Outage::Refuse)),
        case!("unavailable", slow_create(), |w, s| away(w, s, Outage::Unavailable)),
        case!("hang", slow_create(), |w, s| away(w, s, Outage::Hang)),
        case!("refuse-at-first", VCenterOptions::default(), |w, s| away_at_first(w, s, Outage::Refuse, "VCenterNoAnswer")),
        case!("unavailable-at-first", VCenterOptions::default(), |w, s| {
            away_at_first(w, s, Outage::Unavailable, "VCenterUnavailable")
        }),
    ])
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_that_fail_are_told_and_tried_again() -> Result<()> {
    fn full() -> Value {
        json!({"_typeName": "NoDiskSpace", "file": "[ds-0] a.vmdk", "datastore": "ds-0"})
    }
    fn scarce() -> Value {
        json!({"_typeName": "InsufficientResourcesFault"})
    }
    fn broken() -> Value {
        json!({"_typeName": "SystemError", "reason": "something went wrong"})
    }
    play(&[
        case!("full-at-create", VCenterOptions::default(), |w, s| {
            task_fault(w, s, "CreateVM_Task", full(), "NoDiskSpace")
        }),
        case!("scarce-at-create", VCenterOptions::default(), |w, s| {
            task_fault(w, s, "CreateVM_Task", scarce(), "InsufficientResources")
        }),
        case!("broken-at-create", VCenterOptions::default(), |w, s| {
            task_fault(w, s, "CreateVM_Task", broken(), "SystemError")
        }),
        case!("full-at-power-on", VCenterOptions::default(), |w, s| {
            task_fault(w, s, "PowerOnVM_Task", full(), "NoDiskSpace")
        }),
        case!("scarce-at-power-on", VCenterOptions::default(), |w, s| {
            task_fault(w, s, "PowerOnVM_Task", scarce(), "InsufficientResources")
        }),
        case!("broken-at-power-on", VCenterOptions::default(), |w, s| {
            task_fault(w, s, "PowerOnVM_Task", broken(), "SystemError")
        }),
    ])
    .await
}

/// Fails with all failures, not only with the first.
pub fn all(results: Vec<Result<()>>) -> Result<()> {
    let failures: Vec<String> = results
        .into_iter()
        .filter_map(|r| r.err().map(|e| format!("{e:#}")))
        .collect();
    ensure!(
        failures.is_empty(),
        "{} failed:\n{}",
        failures.len(),
        failures.join("\n----\n")
    );
    Ok(())
}
