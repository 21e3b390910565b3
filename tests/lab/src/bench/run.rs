//! One scale-up in a fresh lab, measured.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

use agent_forge_crds::external::agent_machine::{
    AGENT_RESERVED, NO_SUITABLE_AGENTS, PROVIDER_FINALIZER,
};
use anyhow::{Result, ensure};
use jiff::Timestamp;
use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::{
    Plan,
    proc::{self, Busy, Usage},
    restart::{self, Restart},
    world::World,
};
use crate::{
    parts::{
        VCenterAdmin,
        audit::{Entry, Write, count_writes},
        vcenter_inventory::{Calls, Inventory},
    },
    played::{mirror::Object, object::Facts as _},
};

/// A generous limit that only catches a hang.
pub(super) const LIMIT: Duration = Duration::from_secs(3600);
/// A scale-up is over when the operator has sent nothing to vCenter and the API server for this long. The counts of a pool wait
/// up to 10 s for company.
const QUIET: Duration = Duration::from_secs(12);
/// How often the inventory is read while VMs are created. Each read costs the simulated vCenter some time. All measured
/// times come from its own clock.
pub(super) const LOOK: Duration = Duration::from_millis(500);

/// The cost of one scale-up. Times are in seconds. Counts cover the time from the demand to the end of all work.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// VMs.
    pub machines: usize,
    /// Allowed concurrent vCenter tasks.
    pub tasks: u16,
    /// From the first AgentMachine that shows demand to the last.
    pub demand_spread: f64,
    /// From the first demand to the first powered-on VM, by the simulated vCenter's clock.
    pub first_on: f64,
    /// The same to the VM in the middle.
    pub median_on: f64,
    /// The same to the last VM.
    pub all_on: f64,
    /// The shortest possible time with these task times and slots: `ceil(machines / tasks) * (create + power on)`.
    pub limit: f64,
    /// From the first demand until all Machines run on ready Nodes.
    pub all_running: f64,
    /// vCenter calls from the demand on, by method.
    pub calls: BTreeMap<String, u64>,
    /// vCenter calls before the demand, for login, pool and ISO.
    pub calls_before: BTreeMap<String, u64>,
    /// Logins from the operator's start to the end of the run, by kind.
    pub logins: BTreeMap<String, u64>,
    /// Kubernetes writes from the demand on, by verb and resource.
    pub writes: BTreeMap<String, usize>,
    /// Kubernetes writes that were refused, as conflicts or otherwise.
    pub writes_refused: usize,
    /// The operator before the demand.
    pub before: Usage,
    /// The operator at the end.
    pub after: Usage,
    /// Busy share of all processors until all VMs are on, from 0 to 1. It includes everything else that the machine
    /// does.
    pub busy: f64,
    /// Load average of the machine at the end.
    pub load: f64,
    /// The idle operator with all VMs bound, if it was observed.
    pub idle: Option<Idle>,
    /// The start of a new process, if there was one.
    pub restart: Option<Restart>,
}

/// Requests of the idle operator, per minute.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Idle {
    /// Seconds of observation.
    pub seconds: f64,
    /// vCenter calls.
    pub calls: f64,
    /// Kubernetes writes.
    pub writes: f64,
    /// Kubernetes reads, without restarted watches.
    pub reads: f64,
    /// Restarted watches.
    pub watches: f64,
    /// The operator at the end.
    pub usage: Usage,
}

impl Run {
    /// The time in relation to the limit.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.all_on / self.limit
    }

    /// The same from the last demand on, without the time until all demand was there.
    #[must_use]
    pub fn ratio_from_last(&self) -> f64 {
        (self.all_on - self.demand_spread) / self.limit
    }

    /// vCenter calls per VM.
    #[must_use]
    pub fn calls_per_machine(&self) -> f64 {
        self.calls.values().sum::<u64>() as f64 / self.machines as f64
    }

    /// Kubernetes writes per VM.
    #[must_use]
    pub fn writes_per_machine(&self) -> f64 {
        self.writes.values().sum::<usize>() as f64 / self.machines as f64
    }
}

/// Starts a lab, scales up, counts.
///
/// # Errors
/// A part does not start, or the scale-up does not end.
pub(super) async fn measure(program: &Path, plan: &Plan) -> Result<Run> {
    let mut world = World::start(program, plan).await?;
    quiet(&world).await?;
    let pid = world.operator.process.pid();
    let before = proc::usage(pid)?;
    let mark = world.lab.audited().await?.len();
    let calls_before = world.vcenter.calls().await?;
    let busy = Busy::begin()?;

    world.nodes.scale(plan.machines);
    let (first, last) = demand(&world, plan.machines).await?;
    let on = all_on(&world.vcenter, plan.machines).await?;
    let busy = busy.share()?;
    world.nodes.wait_running(plan.machines, LIMIT).await?;
    let running = Timestamp::now();
    quiet(&world).await?;

    let entries = written_since(&world, mark).await?;
    let calls = world.vcenter.calls().await?;
    let after = proc::usage(pid)?;
    let load = proc::load()?;
    let idle = match plan.idle {
        Some(span) => Some(idle(&world, span).await?),
        None => None,
    };
    let restart = match plan.restart {
        Some(bytes) => Some(restart::measure(&mut world, bytes).await?),
        None => None,
    };
    let seconds = |from: Timestamp, to: Timestamp| to.duration_since(from).as_secs_f64();
    let rounds = plan.machines.div_ceil(usize::from(plan.tasks));
    Ok(Run {
        machines: plan.machines,
        tasks: plan.tasks,
        demand_spread: seconds(first, last),
        first_on: seconds(first, on[0]),
        median_on: seconds(first, on[(on.len() - 1) / 2]),
        all_on: seconds(first, on[on.len() - 1]),
        limit: rounds as f64 * (plan.create + plan.power_on).as_secs_f64(),
        all_running: seconds(first, running),
        calls: difference(&calls, &calls_before),
        calls_before: calls_before.by_method,
        logins: calls.logins,
        writes: by_name(count_writes(&entries, &world.access.user).0),
        writes_refused: own(&world, &entries)
            .filter(|e| e.is_write() && e.code() >= 400)
            .count(),
        before,
        after,
        busy,
        load,
        idle,
        restart,
    })
}

/// When the first and the last of `machines` AgentMachines reported that they found no suitable Agent. One that found the host
/// of another one at once never reports that, and counts from its reservation on.
pub(super) async fn demand(world: &World, machines: usize) -> Result<(Timestamp, Timestamp)> {
    // One by one they are bound and no longer wait. Each one that has waited counts.
    let seen = RefCell::new(BTreeSet::new());
    let waiting = || {
        let all = world.nodes.agent_machines();
        let waits = |am: &&Object| {
            let reserved = am.condition(AGENT_RESERVED);
            am.has_finalizer(PROVIDER_FINALIZER)
                && reserved.is_some_and(|c| c.reason == NO_SUITABLE_AGENTS || c.status == "True")
        };
        let waiting = all.iter().filter(waits).map(|am| am.name().to_owned());
        let mut seen = seen.borrow_mut();
        seen.extend(waiting);
        seen.len()
    };
    world
        .nodes
        .wait("a first demand", LIMIT, || waiting() > 0)
        .await?;
    let first = Timestamp::now();
    world
        .nodes
        .wait("all demand", LIMIT, || waiting() >= machines)
        .await?;
    Ok((first, Timestamp::now()))
}

/// When each of `machines` VMs was powered on, in that order.
async fn all_on(vcenter: &VCenterAdmin, machines: usize) -> Result<Vec<Timestamp>> {
    let deadline = Instant::now() + LIMIT;
    let mut version = 0;
    loop {
        let shown: Inventory = vcenter
            .changed_since(version, Duration::from_secs(60))
            .await?;
        let mut on: Vec<Timestamp> = shown.vms.iter().filter_map(|vm| vm.powered_on_at).collect();
        if !on.is_empty() && on.len() >= machines {
            ensure!(
                shown.vms.len() == machines,
                "{} VMs for {machines} machines",
                shown.vms.len()
            );
            on.sort();
            return Ok(on);
        }
        ensure!(
            Instant::now() < deadline,
            "only {} of {machines} VMs are on",
            on.len()
        );
        version = shown.version;
        sleep(LOOK).await;
    }
}

/// Waits until the operator has sent nothing to vCenter and the API server for [`QUIET`].
pub(super) async fn quiet(world: &World) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    let mut last = None;
    loop {
        let entries = world.lab.audited().await?;
        let heard = (
            own(world, &entries).filter(|e| e.verb != "watch").count(),
            world.vcenter.calls().await?.total,
        );
        if last == Some(heard) {
            return Ok(());
        }
        last = Some(heard);
        ensure!(
            Instant::now() < deadline,
            "the operator does not become idle"
        );
        // Only time can show the absence of events.
        sleep(QUIET).await;
    }
}

pub(super) async fn idle(world: &World, span: Duration) -> Result<Idle> {
    let mark = world.lab.audited().await?.len();
    let calls = world.vcenter.calls().await?.total;
    let start = Instant::now();
    sleep(span).await;
    let seconds = start.elapsed().as_secs_f64();
    let entries = written_since(world, mark).await?;
    let per_minute = |count: usize| count as f64 * 60.0 / seconds;
    let (mut reads, mut watches) = (0, 0);
    for entry in own(world, &entries).filter(|e| !e.is_write()) {
        if entry.verb == "watch" {
            watches += 1;
        } else {
            reads += 1;
        }
    }
    let calls = world.vcenter.calls().await?.total - calls;
    Ok(Idle {
        seconds,
        calls: calls as f64 * 60.0 / seconds,
        writes: per_minute(count_writes(&entries, &world.access.user).total()),
        reads: per_minute(reads),
        watches: per_minute(watches),
        usage: proc::usage(world.operator.process.pid())?,
    })
}

pub(super) async fn written_since(world: &World, mark: usize) -> Result<Vec<Entry>> {
    let mut entries = world.lab.audited().await?;
    Ok(entries.split_off(mark.min(entries.len())))
}

pub(super) fn by_name(counts: BTreeMap<Write, usize>) -> BTreeMap<String, usize> {
    let named = counts.into_iter().map(|(what, n)| (what.to_string(), n));
    named.collect()
}

pub(super) fn own<'a>(world: &'a World, entries: &'a [Entry]) -> impl Iterator<Item = &'a Entry> {
    entries
        .iter()
        .filter(|entry| entry.user.username == world.access.user)
}

pub(super) fn difference(now: &Calls, before: &Calls) -> BTreeMap<String, u64> {
    now.by_method
        .iter()
        .map(|(method, count)| (method.clone(), count.saturating_sub(before.of(method))))
        .filter(|(_, count)| *count > 0)
        .collect()
}
