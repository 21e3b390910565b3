//! The beginning of a machine: its AgentMachine is pinned, then gets a VsphereAgent.

use std::sync::Arc;

use agent_forge_crds::{external::agent_machine::AgentMachine, names::AGENT_MACHINE_LABEL};
use futures::{StreamExt as _, stream};
use kube::ResourceExt;
use tracing::Instrument as _;

use super::{act::child_object, plan::Action, snapshot::Snapshot, traced};
use crate::{
    context::Context,
    effect::{Effect, EffectKind},
    error::{Side, Trouble},
    model::{child::Child, names::ObjectKey},
    ports::cluster::{ClusterErrorKind, MachineFacts, Precondition},
};

/// AgentMachines that are pinned and given a VsphereAgent at once. Not a setting: each is two writes to the API server,
/// whose own fairness shares it out from there.
const SIDE_BY_SIDE: usize = 8;

/// The AgentMachine that an action begins with.
pub fn whose(action: &Action) -> Option<&AgentMachine> {
    match action {
        Action::Pin { agent_machine, .. } | Action::CreateChild { agent_machine, .. } => {
            Some(agent_machine)
        }
        _ => None,
    }
}

/// The actions of each AgentMachine, in order.
fn lanes(run: &[Action]) -> Vec<Vec<&Action>> {
    let mut lanes: Vec<(&str, Vec<&Action>)> = Vec::new();
    for action in run {
        let name = whose(action).and_then(|am| am.metadata.name.as_deref());
        let name = name.unwrap_or_default();
        match lanes.iter_mut().find(|(n, _)| *n == name) {
            Some((_, lane)) => lane.push(action),
            None => lanes.push((name, vec![action])),
        }
    }
    lanes.into_iter().map(|(_, lane)| lane).collect()
}

/// Carries `run` out, whose actions all begin machines: different AgentMachines side by side, the actions of one in
/// order; after one that fails, the rest of its AgentMachine are left out. What came of each, in the order of AgentMachines.
pub async fn side_by_side<'a>(
    context: &Context,
    s: &Snapshot,
    run: &'a [Action],
) -> Vec<(&'a Action, Result<(), Trouble>)> {
    let lanes: Vec<_> = lanes(run)
        .into_iter()
        .map(|lane| one(context, s, lane))
        .collect();
    let all: Vec<_> = stream::iter(lanes).buffered(SIDE_BY_SIDE).collect().await;
    all.into_iter().flatten().collect()
}

async fn one<'a>(
    context: &Context,
    s: &Snapshot,
    lane: Vec<&'a Action>,
) -> Vec<(&'a Action, Result<(), Trouble>)> {
    let mut all = Vec::with_capacity(lane.len());
    for action in lane {
        let work = traced::span(context, s, action);
        let result = perform(context, s, action).instrument(work).await;
        let failed = result.is_err();
        all.push((action, result));
        if failed {
            break;
        }
    }
    all
}

/// Pins or creates; nothing for an action that begins no machine.
///
/// # Errors
/// The [`Trouble`] of the write.
pub async fn perform(context: &Context, s: &Snapshot, action: &Action) -> Result<(), Trouble> {
    match action {
        Action::Pin { agent_machine, pin } => {
            let effect = Effect::new(EffectKind::PinSelector, &s.key);
            let at = Precondition::of(agent_machine.as_ref());
            let cluster = context.cluster.as_ref();
            Ok(cluster.pin(&effect, &at, AGENT_MACHINE_LABEL, pin).await?)
        }
        Action::CreateChild {
            agent_machine,
            machine,
            name,
        } => create(context, s, agent_machine, machine, name).await,
        _ => Ok(()),
    }
}

async fn create(
    context: &Context,
    s: &Snapshot,
    am: &Arc<AgentMachine>,
    machine: &MachineFacts,
    name: &str,
) -> Result<(), Trouble> {
    let child = child_object(&s.pool, am, machine, name);
    let key = ObjectKey::new(s.key.namespace.clone(), name);
    let effect = Effect::new(EffectKind::CreateChild, &key);
    match context.cluster.create_child(&effect, &child).await {
        Ok(_) => Ok(()),
        // Made before, and the view lags: fine if it is for this AgentMachine (upstream-contract.md §8.1 no. 8).
        Err(e) if e.kind == ClusterErrorKind::AlreadyExists => {
            let there = context.cluster.live_child(&key).await?;
            let mine = there.map(|c| Child::read(Arc::new(c))).is_some_and(|c| {
                c.object.spec.pool_ref.name == s.pool.name_any()
                    && c.agent_machine
                        .is_some_and(|r| r.is(&am.name_any(), &am.uid().unwrap_or_default()))
            });
            if mine {
                return Ok(());
            }
            Err(Trouble::blocked(
                Side::Kubernetes,
                "NameConflict",
                format!(
                    "VsphereAgent {key} exists for something else; it is left alone until it is gone"
                ),
            ))
        }
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests;
