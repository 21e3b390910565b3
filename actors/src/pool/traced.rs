//! What a pool does for one machine, as a span of that machine's trace.

use std::collections::BTreeMap;

use agent_forge_crds::{
    agent::Milestone, external::agent_machine::AgentMachine, pool::VsphereAgentPool,
};
use kube::ResourceExt;
use tracing::{Span, field::Empty};

use super::{
    act::perform::{self, ActionOutcome},
    observed::Observed,
    plan::Action,
};
use crate::{
    context::Context,
    domain::{failure::ReconcileError, managed_vm::ManagedVm, names::ObjectKey, trace::TraceId},
    guard::LiveReads,
    ports::tracer::{self, Under},
    report::timeline,
};

/// The action, and the uid of its object.
type Key = (&'static str, String);

/// `None`: the action belongs to the pool itself, and to no machine.
fn key(action: &Action) -> Option<Key> {
    let (name, uid) = match action {
        Action::Pin { agent_machine, .. } => ("machine.pin", agent_machine.uid()),
        Action::CreateChild { agent_machine, .. } => ("machine.accept", agent_machine.uid()),
        Action::Take { to, .. } => ("machine.take", to.uid()),
        Action::Bring { host, .. } => ("machine.bring", Some(host.child.uid.clone())),
        Action::Reassign { agent_machine, .. } => ("machine.reassign", agent_machine.uid()),
        Action::Prepare { patch, .. } => ("agent.label", Some(patch.uid.clone())),
        Action::Fence { patch, .. } => ("agent.fence", Some(patch.uid.clone())),
        Action::Release { child, .. } => ("machine.release", Some(child.uid.clone())),
        Action::MoveToBuffer { child, .. } => ("machine.buffer", Some(child.uid.clone())),
        Action::Recycle { child, .. } => ("machine.recycle", Some(child.uid.clone())),
        Action::CreateForBuffer { .. }
        | Action::AddFinalizer
        | Action::Close
        | Action::RemoveFinalizer => return None,
    };
    Some((name, uid.unwrap_or_default()))
}

/// How often in a row each action failed that is still planned.
#[derive(Debug, Default)]
pub struct Failures(BTreeMap<Key, u32>);

impl Failures {
    /// Forgets actions that are not planned any more.
    pub fn keep(&mut self, planned: &[Action]) {
        if !self.0.is_empty() {
            let planned: Vec<Key> = planned.iter().filter_map(key).collect();
            self.0.retain(|known, _| planned.contains(known));
        }
    }

    /// Notes a try of the action.
    pub fn note(&mut self, action: &Action, failed: bool) {
        let Some(key) = key(action) else { return };
        if failed {
            let times = self.0.entry(key).or_default();
            *times = times.saturating_add(1);
        } else {
            self.0.remove(&key);
        }
    }

    fn of(&self, key: &Key) -> u32 {
        self.0.get(key).copied().unwrap_or_default()
    }
}

fn under(child: &ManagedVm) -> Under {
    let status = child.object.status.as_ref();
    let timeline: &[Milestone] = status.map_or(&[], |s| &s.timeline);
    timeline::under(child.trace(), timeline)
}

/// Adds the pool's uid to every line of the pass.
pub fn name_pass(pool: &VsphereAgentPool) {
    let uid = pool.uid().unwrap_or_default();
    Span::current().record("uid", uid.as_str());
}

/// The machine that an action is for.
pub(super) struct Machine {
    /// Its AgentMachine, or its VsphereAgent if no uid of an AgentMachine is recorded.
    object: ObjectKey,
    /// uid of that object.
    uid: String,
    /// Where in its trace the action belongs.
    under: Under,
}

impl Machine {
    fn asked_for(am: &AgentMachine) -> Self {
        let uid = am.uid().unwrap_or_default();
        Self {
            object: ObjectKey::of(am),
            under: timeline::under(TraceId::of_machine(&uid), &[]),
            uid,
        }
    }

    fn made(s: &Observed, child: &ManagedVm) -> Self {
        let namespace = s.pool.control_plane();
        let recorded = child.agent_machine.as_ref();
        let recorded = recorded.and_then(|r| Some((&r.name, r.uid.clone()?)));
        let (object, uid) = match recorded {
            Some((name, uid)) => (ObjectKey::new(namespace, name), uid),
            None => (child.key.clone(), child.uid.clone()),
        };
        Self {
            object,
            uid,
            under: under(child),
        }
    }
}

/// The machine that an action is for. `None`: it is for no machine.
pub(super) fn whose(s: &Observed, action: &Action) -> Option<Machine> {
    match action {
        Action::Pin { agent_machine, .. }
        | Action::CreateChild { agent_machine, .. }
        | Action::Reassign { agent_machine, .. }
        | Action::Take {
            to: agent_machine, ..
        } => Some(Machine::asked_for(agent_machine)),
        Action::Bring { host, .. } => Some(Machine::made(s, &host.child)),
        Action::Prepare { child, .. }
        | Action::Fence { child, .. }
        | Action::Release { child, .. }
        | Action::MoveToBuffer { child, .. }
        | Action::Recycle { child, .. } => Some(Machine::made(s, child)),
        // Its trace begins with the VsphereAgent.
        Action::CreateForBuffer { .. }
        | Action::AddFinalizer
        | Action::Close
        | Action::RemoveFinalizer => None,
    }
}

/// Carries `action` out as a span of its machine's trace. An action that is for no machine belongs to the span of the pass.
///
/// # Errors
/// As [`perform::perform`].
pub async fn perform(
    context: &Context,
    s: &Observed,
    action: &Action,
    failures: &Failures,
    live: &LiveReads,
) -> Result<ActionOutcome, ReconcileError> {
    let work = perform::perform(context, s, action, live);
    let (Some(key), Some(machine)) = (key(action), whose(s, action)) else {
        return work.await;
    };
    let span = tracing::error_span!(
        "pool.action",
        otel.name = key.0,
        pool = %s.key,
        object = %machine.object,
        uid = %machine.uid,
        trace_id = %machine.under.trace,
        otel.status_code = Empty,
        error.type = Empty,
    );
    context.tracer.place(&span, machine.under);
    let result = tracer::attempt(span.clone(), failures.of(&key), work).await;
    match &result {
        Ok(ActionOutcome::Held(why)) => tracer::held(&span, why.as_ref().map(|w| &w.reason)),
        Ok(ActionOutcome::HeldBack(why)) => tracer::held(&span, Some(&why.reason)),
        _ => {}
    }
    result
}

#[cfg(test)]
pub(crate) mod tests;
