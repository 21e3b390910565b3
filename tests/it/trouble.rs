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

/// Starts the sites, a few at a time.
pub async fn sites(world: &World, wanted: &[(&str, VCenterOptions)]) -> Result<Vec<Site>> {
    let started: Vec<Result<Site>> = stream::iter(wanted)
        .map(|(name, options)| Site::start(world, name, options.clone()))
        .buffered(4)
        .collect()
        .await;
    started.into_iter().collect()
}

/// Plays all cases in one world, each at a site of its own. Fails with all failures, not only with the first.
pub async fn side_by_side<C>(
    world: &World,
    cases: &[C],
    of: impl Fn(&C) -> (&'static str, VCenterOptions),
    play: impl AsyncFn(&World, &Site, &C) -> Result<()>,
) -> Result<()> {
    let wanted: Vec<_> = cases.iter().map(&of).collect();
    let sites = sites(world, &wanted).await?;
    let played = cases.iter().zip(&sites).map(|(case, site)| {
        let played = play(world, site, case);
        async move { played.await.with_context(|| site.name.clone()) }
    });
    let failed = join_all(played).await.into_iter().filter_map(Result::err);
    let failures: Vec<String> = failed.map(|e| format!("{e:#}")).collect();
    ensure!(
        failures.is_empty(),
        "{} failed:\n{}",
        failures.len(),
        failures.join("\n----\n")
    );
    Ok(())
}

type Run = Box<dyn for<'a> Fn(&'a World, &'a Site) -> LocalBoxFuture<'a, Result<()>>>;

/// What happens at one site.
struct Case {
    name: &'static str,
    vcenter: VCenterOptions,
    run: Run,
}

impl Case {
    fn new(
        name: &'static str,
        run: impl for<'a> Fn(&'a World, &'a Site) -> LocalBoxFuture<'a, Result<()>> + 'static,
    ) -> Self {
        Self {
            name,
            vcenter: VCenterOptions::default(),
            run: Box::new(run),
        }
    }

    /// A create takes long enough to be met by a fault.
    fn slow(mut self) -> Self {
        self.vcenter.create_delay = Duration::from_secs(4);
        self
    }
}

/// Runs all cases side by side in one world.
async fn play(cases: &[Case]) -> Result<()> {
    let world = World::without_pool(Setup::named()).await?;
    let of = |case: &Case| (case.name, case.vcenter.clone());
    let run = async |world: &World, site: &Site, case: &Case| (case.run)(world, site).await;
    side_by_side(&world, cases, of, run).await
}

/// Creates the pool, which wants one machine.
async fn one_wanted(world: &World, site: &Site) -> Result<()> {
    site.open(world, &json!({})).await?;
    site.nodes.scale(1);
    Ok(())
}

/// The machine comes, and goes again.
async fn up_and_down(world: &World, site: &Site) -> Result<()> {
    site.running(world, 1).await?;
    site.empties(world).await
}

/// One machine comes and goes while this rule affects one call. Only one VM is ever created.
fn past(name: &'static str, rule: Rule) -> Case {
    let past = async |world: &World, site: &Site, rule: Rule| {
        let rule = site.admin.add_rule(&rule).await?;
        one_wanted(world, site).await?;
        up_and_down(world, site).await?;
        let hits = site.admin.rule_hits(&rule).await?;
        ensure!(hits == Some(1), "the rule never struck");
        site.never_double(1, 1)
    };
    let rule = rule.times(1);
    Case::new(name, move |w, s| Box::pin(past(w, s, rule.clone())))
}

/// The same with a reply that is lost.
fn lost(name: &'static str, method: &str) -> Case {
    past(name, Rule::loses_reply(method))
}

/// As long as this rule is set, a machine cannot be created, for this reason. Afterwards it is created once.
async fn held_up(world: &World, site: &Site, rule: &Rule, reason: &str) -> Result<()> {
    let rule = site.admin.add_rule(rule).await?;
    one_wanted(world, site).await?;
    site.until_trouble(world, reason).await?;
    let inventory = site.admin.inventory().await?;
    ensure!(inventory.vms.is_empty(), "half made: {:?}", inventory.vms);
    let others = inventory.files.iter().filter(|f| !f.path.ends_with(".iso"));
    let others: Vec<_> = others.collect();
    ensure!(others.is_empty(), "half made: {others:?}");
    site.admin.remove_rule(&rule).await?;
    up_and_down(world, site).await?;
    site.never_double(1, 1)
}

/// While the rule is set, tasks of this method end with this fault. Afterwards work continues, and there are never two
/// VMs at the same time. The operator may keep or replace a VM that could not be powered on.
fn fails(name: &'static str, method: &str, fault: Value, reason: &'static str) -> Case {
    let fails = async |world: &World, site: &Site, rule: Rule, reason: &str| {
        let rule = site.admin.add_rule(&rule).await?;
        one_wanted(world, site).await?;
        let said = site.until_trouble(world, reason).await?;
        ensure!(site.admin.rule_hits(&rule).await? > Some(0), "{said}");
        world.actors(PROMPT).await?;
        site.admin.remove_rule(&rule).await?;
        up_and_down(world, site).await?;
        site.never_two()
    };
    let rule = Rule::task_fails(method, fault);
    Case::new(name, move |w, s| {
        Box::pin(fails(w, s, rule.clone(), reason))
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
fn away(name: &'static str, outage: Outage) -> Case {
    let away = async |world: &World, site: &Site, outage: Outage| {
        one_wanted(world, site).await?;
        until_called(world, site, "CreateVM_Task", 1).await?;
        site.admin.outage(outage, Duration::from_secs(10)).await?;
        world.actors(PROMPT).await?;
        up_and_down(world, site).await?;
        site.never_double(1, 1)
    };
    Case::new(name, move |w, s| Box::pin(away(w, s, outage))).slow()
}

/// A vCenter is unreachable from the beginning. This is reported, and work begins when it is back.
fn away_at_first(name: &'static str, outage: Outage, reason: &'static str) -> Case {
    let away = async |world: &World, site: &Site, outage: Outage, reason: &str| {
        site.admin.outage(outage, Duration::from_secs(3600)).await?;
        one_wanted(world, site).await?;
        site.until_trouble(world, reason).await?;
        world.actors(PROMPT).await?;
        site.admin.end_outage().await?;
        site.running(world, 1).await?;
        site.never_double(1, 1)
    };
    Case::new(name, move |w, s| Box::pin(away(w, s, outage, reason)))
}

/// The session ends while the VM is created.
async fn session_killed(world: &World, site: &Site) -> Result<()> {
    one_wanted(world, site).await?;
    until_called(world, site, "CreateVM_Task", 1).await?;
    let killed = site.admin.kill_sessions().await?;
    ensure!(killed > 0, "there was a session");
    up_and_down(world, site).await?;
    ensure!(site.admin.calls().await?.logins("refused") == 0);
    site.never_double(1, 1)
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_replies_make_no_second_vm() -> Result<()> {
    play(&[
        lost("mkdir", "MakeDirectory"),
        lost("upload", "PUT /folder"),
        lost("publish", "MoveDatastoreFile_Task"),
        lost("folder", "CreateFolder"),
        lost("create", "CreateVM_Task"),
        lost("slow-create", "CreateVM_Task").slow(),
        lost("reconfigure", "ReconfigVM_Task"),
        lost("power-on", "PowerOnVM_Task"),
        lost("power-off", "PowerOffVM_Task"),
        lost("destroy", "Destroy_Task"),
        past("gateway", Rule::answers("CreateVM_Task", 503)),
        Case::new("session", |w, s| Box::pin(session_killed(w, s))).slow(),
    ])
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_and_outages_are_said_and_survived() -> Result<()> {
    let wrong = json!({"_typeName": "InvalidArgument", "invalidProperty": "configSpec.guestId"});
    let wrong = Rule::call_fails("CreateVM_Task", wrong);
    let task = json!({"_typeName": "ManagedObjectReference", "type": "Task", "value": "task-0"});
    let busy = json!({"_typeName": "TaskInProgress", "task": task});
    let locked = json!({"_typeName": "FileLocked", "file": "[ds-0] a"});
    play(&[
        Case::new("argument", move |w, s| {
            let rule = wrong.clone();
            Box::pin(async move { held_up(w, s, &rule, "InvalidArgument").await })
        }),
        past("busy", Rule::task_fails("ReconfigVM_Task", busy)),
        past("locked", Rule::task_fails("Destroy_Task", locked)),
        away("refuse", Outage::Refuse),
        away("unavailable", Outage::Unavailable),
        away("hang", Outage::Hang),
        away_at_first("refuse-at-first", Outage::Refuse, "VCenterNoAnswer"),
        away_at_first(
            "unavailable-at-first",
            Outage::Unavailable,
            "VCenterUnavailable",
        ),
    ])
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_that_fail_are_told_and_tried_again() -> Result<()> {
    let full = json!({"_typeName": "NoDiskSpace", "file": "[ds-0] a.vmdk", "datastore": "ds-0"});
    let scarce = json!({"_typeName": "InsufficientResourcesFault"});
    let broken = json!({"_typeName": "SystemError", "reason": "something went wrong"});
    let mut cases = Vec::new();
    for (fault, reason, [at_create, at_power_on]) in [
        (full, "NoDiskSpace", ["full-at-create", "full-at-power-on"]),
        (
            scarce,
            "InsufficientResources",
            ["scarce-at-create", "scarce-at-power-on"],
        ),
        (
            broken,
            "SystemError",
            ["broken-at-create", "broken-at-power-on"],
        ),
    ] {
        cases.push(fails(at_create, "CreateVM_Task", fault.clone(), reason));
        cases.push(fails(at_power_on, "PowerOnVM_Task", fault, reason));
    }
    play(&cases).await
}
