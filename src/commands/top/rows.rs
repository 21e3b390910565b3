//! The rows of `agent-forge top`: each machine with its phase, age, expected time and last failure, and sums per pool. Pure.

use std::{collections::BTreeMap, sync::Arc};

use agent_forge_actors::{
    domain::{belonging, managed_vm::ManagedVm, names::ObjectKey},
    ports::cluster::View as _,
    runtime::holds,
};
use agent_forge_crds::{
    VsphereAgent, VsphereAgentPool, agent::Milestone, conditions::Phase,
    external::agent_machine::AgentMachine,
};
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde::Serialize;

use crate::cluster::view::Caches;

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
    /// Condition `Ready`: its reason if it is False.
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
    /// Phase, or `Waiting` without a VsphereAgent.
    pub phase: String,
    /// Seconds since the demand.
    pub age_seconds: i64,
    /// The last entry of the timeline, and the seconds since then.
    pub step: Option<(String, i64)>,
    /// Seconds until it is usually bound; negative: it is late. `null`: it is bound, it waits in the buffer, or nothing
    /// is known.
    pub expected_seconds: Option<i64>,
    /// The first reason in `status.waitingOn`; without one, that of the pool about this machine.
    pub waiting: Option<String>,
    /// How far the last VM that was given up came, and how many in a row.
    pub last_failure: Option<String>,
}

/// Reads everything.
#[must_use]
pub fn overview(caches: &Caches, namespace: Option<&str>, now: Timestamp) -> Overview {
    let children = caches.all_children();
    let mut shown = Overview::default();
    for pool in caches.pools() {
        let own = pool.namespace().unwrap_or_default();
        if namespace.is_some_and(|n| n != own) {
            continue;
        }
        let name = format!("{own}/{}", pool.name_any());
        let is_own = |c: &&Arc<VsphereAgent>| {
            c.spec.pool_ref.name == pool.name_any() && c.namespace().as_deref() == Some(&own)
        };
        let of_pool: Vec<_> = children.iter().filter(is_own).cloned().collect();
        let usual = median(of_pool.iter().filter_map(|c| took(timeline(c))).collect());
        let said = Said::by(&pool);
        let row = |c: &Arc<VsphereAgent>| row((&name, &said), c, usual, now);
        let mut rows: Vec<MachineRow> = of_pool.iter().map(row).collect();
        let managed: Vec<ManagedVm> = of_pool.iter().map(|c| ManagedVm::read(c.clone())).collect();
        let waiting = caches
            .agent_machines(&pool.spec.control_plane_namespace)
            .into_iter()
            .filter(|am| {
                let belongs = belonging::belongs(&pool, am);
                let has_one = managed.iter().any(|c| {
                    c.agent_machine
                        .as_ref()
                        .is_some_and(|r| r.is_object(&am.metadata))
                });
                belongs && !has_one && am.agent_ref().is_none()
            });
        rows.extend(waiting.map(|am| unanswered((&name, &said), &am, usual, now)));
        let mut phases = BTreeMap::new();
        for row in &rows {
            *phases.entry(row.phase.clone()).or_default() += 1;
        }
        let conditions = pool
            .status
            .as_ref()
            .map(|s| s.conditions.as_slice())
            .unwrap_or_default();
        let ready = agent_forge_crds::conditions::find_condition(conditions, "Ready");
        let ready = ready.map_or("?", |c| {
            if c.status == "True" {
                "True"
            } else {
                c.reason.as_str()
            }
        });
        let is_late = |r: &&MachineRow| {
            usual
                .zip(r.expected_seconds)
                .is_some_and(|(usual, left)| left < -usual)
        };
        shown.pools.push(PoolRow {
            pool: name,
            ready: ready.to_owned(),
            paused: paused(caches, &ObjectKey::of(pool.as_ref()), now),
            usual_seconds: usual,
            late: rows.iter().filter(is_late).count(),
            phases,
        });
        shown.machines.extend(rows);
    }
    // What is not finished comes first, the oldest on top.
    shown.machines.sort_by_key(|m| {
        (
            m.phase == Phase::Bound.as_str(),
            -m.age_seconds,
            m.machine.clone(),
        )
    });
    shown
}

/// The pause that holds a pool now, and who set it.
#[must_use]
pub fn paused(caches: &Caches, pool: &ObjectKey, now: Timestamp) -> Option<String> {
    let held = holds::of_pool(caches, pool);
    held.pause(now).map(|pause| holds::by_pause(pause).why)
}

/// The timeline on record.
#[must_use]
pub fn timeline(child: &VsphereAgent) -> &[Milestone] {
    child
        .status
        .as_ref()
        .map(|s| s.timeline.as_slice())
        .unwrap_or_default()
}

/// Seconds from the first entry of a timeline to the first bound Agent.
#[must_use]
pub fn took(timeline: &[Milestone]) -> Option<i64> {
    let begin = timeline.first()?.at.as_ref()?.0;
    let bound = timeline.iter().find(|e| e.event == Milestone::BOUND)?;
    Some(bound.at.as_ref()?.0.duration_since(begin).as_secs())
}

/// The median of these seconds.
#[must_use]
pub fn median(mut all: Vec<i64>) -> Option<i64> {
    all.sort_unstable();
    all.get(all.len().checked_sub(1)? / 2).copied()
}

/// What the status of a pool says about its machines: the first reason of each, by name.
struct Said(BTreeMap<String, String>);

impl Said {
    fn by(pool: &VsphereAgentPool) -> Self {
        let mut all = BTreeMap::new();
        for row in pool.status.iter().flat_map(|s| &s.waiting_on) {
            let name = row.subject.rsplit('/').next().unwrap_or_default();
            all.entry(name.to_owned())
                .or_insert_with(|| row.reason.to_string());
        }
        Self(all)
    }

    fn about(&self, machine: &str) -> Option<String> {
        self.0.get(machine).cloned()
    }
}

fn row(
    (pool, said): (&str, &Said),
    child: &VsphereAgent,
    usual: Option<i64>,
    now: Timestamp,
) -> MachineRow {
    let status = child.status.as_ref();
    let timeline = timeline(child);
    let since = |t: Timestamp| now.duration_since(t).as_secs().max(0);
    let first = timeline.first().and_then(|e| e.at.as_ref()).map(|t| t.0);
    let created = child.metadata.creation_timestamp.as_ref().map(|t| t.0);
    let age = first.or(created).map_or(0, since);
    let phase = status
        .and_then(|s| s.vm.as_ref()?.phase.clone())
        .unwrap_or(Phase::Provisioning);
    let deleting = child.metadata.deletion_timestamp.is_some();
    let waits = ManagedVm::read(std::sync::Arc::new(child.clone())).in_buffer;
    let coming = matches!(phase, Phase::Provisioning | Phase::Available) && !deleting && !waits;
    let failure = status.and_then(|s| s.last_failure.as_ref());
    MachineRow {
        pool: pool.to_owned(),
        machine: child.name_any(),
        phase: if deleting {
            "Deleting".to_owned()
        } else {
            phase.to_string()
        },
        age_seconds: age,
        step: timeline
            .last()
            .and_then(|e| Some((e.event.clone(), since(e.at.as_ref()?.0)))),
        expected_seconds: usual.filter(|_| coming).map(|usual| usual - age),
        waiting: status
            .and_then(|s| Some(s.waiting_on.first()?.reason.to_string()))
            .or_else(|| said.about(&child.name_any())),
        last_failure: failure.map(|f| {
            let class = f.class.as_deref().unwrap_or("?");
            format!("{class} x{}", f.count.unwrap_or(1))
        }),
    }
}

/// An AgentMachine without a VsphereAgent.
fn unanswered(
    (pool, said): (&str, &Said),
    am: &AgentMachine,
    usual: Option<i64>,
    now: Timestamp,
) -> MachineRow {
    let created = am.metadata.creation_timestamp.as_ref();
    let age = created.map_or(0, |t| now.duration_since(t.0).as_secs().max(0));
    let reason = am.reserved_condition().and_then(|c| c.reason.clone());
    MachineRow {
        pool: pool.to_owned(),
        machine: am.name_any(),
        phase: "Waiting".to_owned(),
        age_seconds: age,
        expected_seconds: usual.map(|usual| usual - age),
        waiting: said.about(&am.name_any()).or(reason),
        ..MachineRow::default()
    }
}
