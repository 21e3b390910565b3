//! The row of a machine, and what the machines of a pool say together.

use std::sync::Arc;

use agent_forge_actors::{
    domain::{managed_vm::ManagedVm, names::ObjectKey},
    ports::cluster::View as _,
    runtime::holds,
};
use agent_forge_crds::{
    VsphereAgentPool,
    agent::Milestone,
    conditions::{Phase, READY, Reason, find_condition},
    external::agent_machine::AgentMachine,
};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use super::{
    found::{Found, Kind},
    state::{self, Judged, State},
};
use crate::cluster::view::Caches;

/// One machine: a VsphereAgent, or an AgentMachine that has none.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Its objects.
    pub found: Found,
    /// Kind of the object that it is named after.
    pub kind: Kind,
    /// Namespace and name of that object.
    pub key: ObjectKey,
    /// Its state, and why.
    pub judged: Judged,
    /// The phase of its VM, or `Deleting`. Without a VsphereAgent: `Waiting`, `Deleting`, or `Foreign` if another host serves
    /// it.
    pub phase: String,
    /// When it was demanded.
    pub since: Option<Timestamp>,
    /// Seconds from the demand to the bound Agent, once it is bound.
    pub took_seconds: Option<i64>,
    /// When it is usually bound. `None`: it is bound, it waits in the buffer, it leaves, or nothing is known.
    pub expected: Option<Timestamp>,
}

impl Machine {
    /// The row of a VsphereAgent.
    #[must_use]
    pub fn of_child(found: Found, child: &ManagedVm) -> Self {
        let judged = state::of_child(&found, child);
        Self::of(found, judged, Kind::VsphereAgent, child.object.as_ref())
    }

    /// The row of an AgentMachine that has no VsphereAgent. `found` has its pool.
    #[must_use]
    pub fn of_demand(found: Found, am: &AgentMachine) -> Self {
        let judged = state::of_demand(&found, am);
        Self::of(found, judged, Kind::AgentMachine, am)
    }

    fn of(found: Found, judged: Judged, kind: Kind, object: &impl ResourceExt) -> Self {
        let timeline = found.timeline();
        let created = object.meta().creation_timestamp.as_ref();
        Self {
            kind,
            key: ObjectKey::of(object),
            phase: match (&found.child, judged.state) {
                (_, State::Foreign) => FOREIGN.to_owned(),
                _ if object.meta().deletion_timestamp.is_some() => DELETING.to_owned(),
                (Some(child), _) => phase(child).to_string(),
                (None, _) => WAITING.to_owned(),
            },
            since: timeline.first().and_then(at).or(created.map(|t| t.0)),
            took_seconds: took(timeline),
            expected: None,
            judged,
            found,
        }
    }

    /// The last entry of its timeline, and when it was.
    #[must_use]
    pub fn step(&self) -> Option<(&str, Option<Timestamp>)> {
        let last = self.found.timeline().last()?;
        Some((&last.event, at(last)))
    }

    /// Whether it needs nothing more: an Agent is bound to it, by the record or by its AgentMachine.
    #[must_use]
    pub fn is_served(&self) -> bool {
        matches!(self.judged.state, State::Serving | State::Foreign)
            || self.phase == Phase::Bound.as_str()
    }

    /// Whether its Agent is still to be bound.
    fn comes(&self) -> bool {
        let child = self.found.child.as_ref();
        let awaited = [
            Phase::Provisioning.as_str(),
            Phase::Available.as_str(),
            WAITING,
        ];
        awaited.contains(&self.phase.as_str())
            && !self.is_served()
            && !child.is_some_and(|c| c.in_buffer)
    }

    /// Sets when it is usually bound, if a machine of its pool usually takes so many seconds.
    fn expect(&mut self, usual: Option<i64>) {
        let usual = usual
            .filter(|_| self.comes())
            .map(SignedDuration::from_secs);
        let expected = self.since.zip(usual);
        self.expected = expected.and_then(|(since, usual)| since.checked_add(usual).ok());
    }
}

/// An AgentMachine waits for a host.
const WAITING: &str = "Waiting";
/// It has a deletionTimestamp.
const DELETING: &str = "Deleting";
/// A host that is not a VM of agent-forge serves it.
const FOREIGN: &str = "Foreign";

fn phase(child: &ManagedVm) -> Phase {
    let recorded = child.vm().and_then(|vm| vm.phase.clone());
    recorded.unwrap_or(Phase::Provisioning)
}

fn at(entry: &Milestone) -> Option<Timestamp> {
    entry.at.as_ref().map(|t| t.0)
}

/// Seconds from the first entry of a timeline to the first bound Agent.
fn took(timeline: &[Milestone]) -> Option<i64> {
    let begin = timeline.first().and_then(at)?;
    let bound = timeline.iter().find(|e| e.event == Milestone::BOUND)?;
    Some(at(bound)?.duration_since(begin).as_secs())
}

/// The machines of a pool.
#[derive(Clone, Debug)]
pub struct OfPool {
    /// Namespace and name of the pool.
    pub key: ObjectKey,
    /// The pool; `None`: it does not exist, and its VsphereAgents do.
    pub pool: Option<Arc<VsphereAgentPool>>,
    /// The pause that holds it now, as a sentence. It is the pool's own, or that of something above it.
    pub paused: Option<String>,
    /// Status of its condition `Ready`; `None`: not known.
    pub ready: Option<bool>,
    /// Reason of that condition.
    pub reason: String,
    /// Sentence of that condition.
    pub message: String,
    /// Median of the seconds from the demand to the bound Agent, of the machines that got there.
    pub usual_seconds: Option<i64>,
    /// Its machines.
    pub machines: Vec<Machine>,
}

impl OfPool {
    /// The machines of a pool.
    #[must_use]
    pub fn of(caches: &Caches, key: ObjectKey, mut machines: Vec<Machine>, now: Timestamp) -> Self {
        let took = machines.iter().filter_map(|m| m.took_seconds);
        let usual = median(took.collect());
        machines.iter_mut().for_each(|m| m.expect(usual));
        let pool = caches.pool(&key);
        let (ready, reason, message) = match &pool {
            Some(pool) => said(pool),
            None => missing(caches.over_bound(&key.namespace)),
        };
        let held = holds::of_pool(caches, &key);
        Self {
            paused: held.pause(now).map(|pause| holds::by_pause(pause).why),
            key,
            pool,
            ready,
            reason,
            message,
            usual_seconds: usual,
            machines,
        }
    }

    /// How many machines take longer than twice the usual time.
    #[must_use]
    pub fn late(&self, now: Timestamp) -> usize {
        let usual = self.usual_seconds.unwrap_or_default();
        let over = |at: Timestamp| now.duration_since(at).as_secs() > usual;
        let late = |m: &&Machine| m.expected.is_some_and(over);
        self.machines.iter().filter(late).count()
    }
}

/// Condition `Ready` of the pool.
fn said(pool: &VsphereAgentPool) -> (Option<bool>, String, String) {
    let status = pool.status.as_ref();
    let conditions = status.map(|s| s.conditions.as_slice()).unwrap_or_default();
    let ready = find_condition(conditions, READY);
    ready.map_or_else(Default::default, |c| {
        (
            Some(c.status == "True"),
            c.reason.clone(),
            c.message.clone(),
        )
    })
}

/// The same of a pool that is not seen. `over`: why a part of its namespace is unknown.
fn missing(over: Option<String>) -> (Option<bool>, String, String) {
    match over {
        Some(why) => (None, Reason::NamespaceTooLarge.to_string(), why),
        None => (
            Some(false),
            Reason::PoolNotFound.to_string(),
            "this VsphereAgentPool does not exist".to_owned(),
        ),
    }
}

/// The median of these seconds.
fn median(mut all: Vec<i64>) -> Option<i64> {
    all.sort_unstable();
    all.get(all.len().checked_sub(1)? / 2).copied()
}
