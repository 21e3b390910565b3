//! The rows of `agent-forge top`: what it prints of each machine, and sums per pool. Pure.

use std::collections::BTreeMap;

use agent_forge_crds::agent::Failure;
use jiff::Timestamp;
use serde::Serialize;

use crate::{
    cluster::view::Caches,
    machines::{
        self,
        row::{Machine, OfPool},
    },
};

/// What is shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Overview {
    /// Sums.
    pub pools: Vec<PoolRow>,
    /// Machines.
    pub machines: Vec<MachineRow>,
}

/// Sums of one pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolRow {
    /// Namespace and name.
    pub pool: String,
    /// Condition `Ready`: its reason if it is not True.
    pub ready: String,
    /// The pause that holds now, as a sentence.
    pub paused: Option<String>,
    /// Machines by phase.
    pub phases: BTreeMap<String, usize>,
    /// Median of the seconds from the demand to the bound Agent, of the machines that got there.
    pub usual_seconds: Option<i64>,
    /// Machines that take longer than twice that.
    pub late: usize,
}

/// One machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineRow {
    /// Namespace and name of its pool.
    pub pool: String,
    /// Name of the VsphereAgent; of the AgentMachine if there is none yet.
    pub machine: String,
    /// See [`Machine::phase`].
    pub phase: String,
    /// Seconds since the demand.
    pub age_seconds: i64,
    /// The last entry of the timeline, and the seconds since then.
    pub step: Option<(String, i64)>,
    /// Seconds until it is usually bound; negative: it is late. `null`: it is bound, it waits in the buffer, or nothing
    /// is known.
    pub expected_seconds: Option<i64>,
    /// The first reason that a person has to act on, else the first reason.
    pub waiting: Option<String>,
    /// How far the last VM that was given up came, and how many in a row.
    pub last_failure: Option<String>,
    /// Whether it needs nothing more.
    #[serde(skip)]
    is_served: bool,
}

/// Reads everything.
#[must_use]
pub fn overview(caches: &Caches, namespace: Option<&str>, now: Timestamp) -> Overview {
    let mut shown = Overview::default();
    let mut all = machines::machines(caches, now).pools;
    all.retain(|pool| namespace.is_none_or(|n| n == pool.key.namespace));
    for pool in &all {
        shown.pools.push(sums(pool, now));
        let rows = pool.machines.iter().map(|m| row(pool, m, now));
        shown.machines.extend(rows);
    }
    // What is not finished comes first, the oldest on top.
    shown
        .machines
        .sort_by_key(|m| (m.is_served, -m.age_seconds, m.machine.clone()));
    shown
}

fn sums(pool: &OfPool, now: Timestamp) -> PoolRow {
    let mut phases = BTreeMap::new();
    for machine in &pool.machines {
        *phases.entry(machine.phase.clone()).or_default() += 1;
    }
    PoolRow {
        pool: pool.key.to_string(),
        ready: match (pool.ready, pool.reason.as_str()) {
            (Some(true), _) => "True".to_owned(),
            (_, "") => "?".to_owned(),
            (_, reason) => reason.to_owned(),
        },
        paused: pool.paused.clone(),
        phases,
        usual_seconds: pool.usual_seconds,
        late: pool.late(now),
    }
}

fn row(pool: &OfPool, machine: &Machine, now: Timestamp) -> MachineRow {
    let ago = |at: Timestamp| now.duration_since(at).as_secs().max(0);
    let left = |at: Timestamp| at.duration_since(now).as_secs();
    let wait = machine.judged.wait.as_ref();
    let child = machine.found.child.as_ref();
    let status = child.and_then(|c| c.object.status.as_ref());
    let failure = status.and_then(|s| s.last_failure.as_ref());
    MachineRow {
        pool: pool.key.to_string(),
        machine: machine.key.name.clone(),
        phase: machine.phase.clone(),
        age_seconds: machine.since.map_or(0, ago),
        step: machine
            .step()
            .and_then(|(event, at)| Some((event.to_owned(), ago(at?)))),
        expected_seconds: machine.expected.map(left),
        waiting: wait.map(|wait| wait.reason.to_string()),
        last_failure: failure.map(failed),
        is_served: machine.is_served(),
    }
}

fn failed(failure: &Failure) -> String {
    let class = failure.class.as_deref().unwrap_or("?");
    format!("{class} x{}", failure.count.unwrap_or(1))
}
