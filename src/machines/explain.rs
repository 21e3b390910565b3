//! One machine in full: its objects and the proof that they belong together, what it waits for, and its history.

use agent_forge_actors::{
    domain::{holds::Holds, names::ObjectKey, recycle, trace::TraceId},
    pool::plan::Plan,
    runtime::holds,
};
use agent_forge_crds::agent::Milestone;
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde::Serialize;

use super::{
    chain::{self, Live, Member, Proof},
    decide,
    found::{Found, Kind},
    join::Join,
    progress, state,
    waits::{self, Wait},
};
use crate::cluster::view::Caches;

/// One machine.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// What was asked.
    pub subject: String,
    /// Its pool.
    pub pool: Option<String>,
    /// The objects.
    pub chain: Vec<Member>,
    /// How we know that they belong together.
    pub proofs: Vec<Proof>,
    /// What does not happen now.
    pub waits: Vec<Wait>,
    /// What else people should know.
    pub notes: Vec<String>,
    /// Of a pool: the hosts of its InfraEnv that are not VMs of agent-forge. `null`: none, or not known.
    pub foreign_hosts: Option<String>,
    /// Vetoes that stand, and that nothing waits for now.
    pub standing: Vec<String>,
    /// The lives of its VM, the present one last. Empty if it is in its first.
    pub lives: Vec<Life>,
    /// What happened in the present life, and when.
    pub timeline: Vec<Moment>,
    /// The trace.
    pub trace: Option<Trace>,
    /// When this was seen.
    pub seen: Timestamp,
}

/// One entry of the timeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Moment {
    /// What happened.
    pub event: String,
    /// In which attempt.
    pub attempt: i32,
    /// When.
    pub at: Option<Timestamp>,
    /// Seconds since the entry before.
    pub after_seconds: Option<i64>,
}

/// One life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Life {
    /// Its number.
    pub number: u32,
    /// When it began.
    pub since: Option<Timestamp>,
    /// When it ended; `None` for the present one.
    pub until: Option<Timestamp>,
    /// The Machine that it served.
    pub machine: Option<String>,
    /// The name of the host.
    pub host: Option<String>,
    /// The trace of that machine.
    pub trace: Option<String>,
    /// Address of that trace.
    pub url: Option<String>,
}

/// Where the trace is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Trace {
    /// Its id.
    pub id: String,
    /// Its address.
    pub url: Option<String>,
}

/// Explains the machine of a VsphereAgent or an AgentMachine, without vCenter. `None`: there is no such object.
#[must_use]
pub fn of_object(
    caches: &Caches,
    kind: Kind,
    key: &ObjectKey,
    secret_namespaces: &[String],
    now: Timestamp,
) -> Option<Explanation> {
    let found = Join::new(caches).machine(kind, key)?;
    let plan = plan(caches, &found, secret_namespaces, now);
    let words = (format!("{kind}/{}", key.name), None);
    Some(explain(
        caches,
        &found,
        (&Live::NotAsked, plan.as_ref()),
        words,
        now,
    ))
}

/// What the pool's actor would decide now.
#[must_use]
pub fn plan(
    caches: &Caches,
    found: &Found,
    secret_namespaces: &[String],
    now: Timestamp,
) -> Option<Plan> {
    let pool = ObjectKey::of(found.pool.as_deref()?);
    let decided = decide::decide(caches, &pool, secret_namespaces, now)?;
    Some(decided.1)
}

/// Explains a machine. `live` and `plan`: what its VM and its pool's actor say. `trace_url`: address of a trace, with `{}` for its id.
#[must_use]
pub fn explain(
    caches: &Caches,
    found: &Found,
    (live, plan): (&Live, Option<&Plan>),
    (subject, trace_url): (String, Option<&str>),
    now: Timestamp,
) -> Explanation {
    let pool = found.pool.as_ref().map(|p| ObjectKey::of(p.as_ref()));
    let held = match (&found.child, &pool) {
        (Some(child), _) => holds::of_vm(caches, child),
        (None, Some(pool)) => holds::of_pool(caches, pool),
        (None, None) => Holds::default(),
    };
    Explanation {
        subject,
        pool: pool.map(|p| p.to_string()),
        chain: chain::members(found, live),
        proofs: chain::proofs(found, live),
        waits: all_waits(found, plan, &held, now),
        notes: waits::notes(found, &held, now),
        foreign_hosts: foreign_hosts(caches, found, now),
        standing: waits::standing(&held, &waits::next_effects(found)),
        lives: lives(found, trace_url),
        timeline: timeline(found),
        trace: trace(found, trace_url),
        seen: now,
    }
}

/// What it waits for; what a person has to act on comes first. If nothing holds it, what comes next.
fn all_waits(found: &Found, plan: Option<&Plan>, held: &Holds, now: Timestamp) -> Vec<Wait> {
    let mut all = waits::waits(found, plan, held, now);
    all.sort_by_key(|wait| state::held(&wait.reason));
    if all.is_empty() {
        all.extend(progress::next(found));
    }
    all
}

/// What the pool's actor would count now.
fn foreign_hosts(caches: &Caches, found: &Found, now: Timestamp) -> Option<String> {
    let pool = found.pool.as_deref().filter(|_| found.is_pool())?;
    // Which Secrets may be read says nothing about hosts.
    let (observed, _) = decide::decide(caches, &ObjectKey::of(pool), &[], now)?;
    let classes = observed.foreign.classes?;
    (classes.total().all > 0).then(|| classes.to_string())
}

fn timeline(found: &Found) -> Vec<Moment> {
    let mut before: Option<Timestamp> = None;
    let moment = |entry: &Milestone| {
        let at = entry.at.as_ref().map(|t| t.0);
        let after = at
            .zip(before)
            .map(|(at, before)| at.duration_since(before).as_secs());
        before = at.or(before);
        Moment {
            event: entry.event.clone(),
            attempt: entry.attempt,
            at,
            after_seconds: after,
        }
    };
    found.timeline().iter().map(moment).collect()
}

/// The lives on record and the present one. A VM in its first life has none to tell of. `url`: address of a trace, with `{}`
/// for its id.
pub(super) fn lives(found: &Found, url: Option<&str>) -> Vec<Life> {
    let Some(vm) = found.child.as_ref().and_then(|c| c.vm()) else {
        return Vec::new();
    };
    let mut all: Vec<Life> = vm
        .lives
        .iter()
        .map(|life| Life {
            number: u32::try_from(life.generation).unwrap_or_default(),
            since: life.since.as_ref().map(|t| t.0),
            until: life.until.as_ref().map(|t| t.0),
            machine: life.machine.clone(),
            host: life.host_name.clone(),
            trace: life.trace_id.clone(),
            url: life
                .trace_id
                .as_ref()
                .and_then(|id| Some(url?.replace("{}", id))),
        })
        .collect();
    let present = recycle::generation(vm);
    // From the intent to the renewal, the VM is still in the life whose end is recorded.
    if all.last().is_some_and(|last| last.number < present) {
        let trace = trace(found, url);
        let machine = vm.machine_ref.as_ref();
        all.push(Life {
            number: present,
            since: vm.generation_since.as_ref().map(|t| t.0),
            until: None,
            machine: machine.and_then(|m| m.name.clone()),
            host: found.agent.as_ref().and_then(|a| a.spec.hostname.clone()),
            trace: trace.as_ref().map(|t| t.id.clone()),
            url: trace.and_then(|t| t.url),
        });
    }
    all
}

/// The trace on record, else the one that the operator gives to the machine.
fn trace(found: &Found, url: Option<&str>) -> Option<Trace> {
    let recorded = found
        .child
        .as_ref()
        .and_then(|c| c.object.status.as_ref()?.trace_id.clone());
    let of_child = || found.child.as_ref().map(|c| c.trace().to_string());
    let of_machine = || {
        let uid = found.agent_machine.as_ref()?.uid()?;
        Some(TraceId::of_machine(&uid).to_string())
    };
    let id = recorded.or_else(of_child).or_else(of_machine)?;
    let url = url.map(|url| url.replace("{}", &id));
    Some(Trace { id, url })
}
