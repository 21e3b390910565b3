//! Carries a plan out, action by action. It decides nothing.
//!
//! Before it releases a VsphereAgent, and before it approves or fences an Agent, live reads prove what the plan saw in
//! the cache. What ends the use of a VM also asks live whether people hold it back.

pub mod child_object;
pub mod perform;

use std::collections::BTreeSet;

use futures::{StreamExt as _, stream};
use kube::ResourceExt;

pub use self::child_object::{
    adopted_object, buffer_object, child_object, into_buffer, move_to, reassignment,
};
use self::perform::ActionOutcome;
use super::{
    memory::Memory,
    observed::Observed,
    outcome::Acted,
    plan::{Action, Plan, iso::IsoPlan},
    provision::whose,
    publish, secret_finalizers,
    traced::{self, Failures},
};
use crate::{
    context::Context,
    domain::failure::ReconcileError,
    guard::LiveReads,
    iso::{msg::IsoState, of_pool::IsoCaches},
};

/// How many AgentMachines are provisioned at once. This is no setting: each costs two writes, and the API server has
/// its own priority and fairness.
const SIDE_BY_SIDE: usize = 8;

/// Carries the plan out: first the Secrets, because machines need them, then the machines. This needs only the cluster.
pub async fn execute(
    context: &Context,
    isos: &dyn IsoCaches,
    s: &Observed,
    plan: &Plan,
    memory: &mut Memory,
) -> Acted {
    let secrets = if s.stop().is_some() {
        Ok(())
    } else {
        secret_finalizers::execute(context, s, &plan.secrets, memory).await
    };
    let mut acted = perform_all(context, s, &plan.actions, memory).await;
    acted.result = acted.result.and(secrets);
    if plan.leave_iso {
        isos.leave(&s.key);
    }
    acted
}

/// Carries out the plan for the ISO. Returns how far the ISO is, if one is wanted.
pub async fn execute_iso(
    isos: &dyn IsoCaches,
    plan: &IsoPlan,
    memory: &mut Memory,
) -> Option<IsoState> {
    let (cache, want) = plan.ensure.as_ref()?;
    let mut state = match isos.ensure(cache.clone(), want.clone()).await {
        Ok(state) => state,
        Err(trouble) => IsoState::Failed(trouble),
    };
    memory.iso.infra_env.told(&state);
    let IsoState::Ready {
        pruned,
        prune_failures,
        ..
    } = &mut state
    else {
        return Some(state);
    };
    for (key, left) in &plan.clear {
        match isos.clear(key.clone(), left.clone()).await {
            Ok((gone, kept)) => {
                pruned.extend(gone);
                prune_failures.extend(kept);
            }
            Err(trouble) => tracing::debug!(reason = %trouble.reason, "{trouble}"),
        }
    }
    Some(state)
}

/// Carries all actions on machines out, in order. Actions that provision different AgentMachines run side by side.
///
/// An action that fails does not hold the others back, because they are for different machines. An Agent that still
/// changes is prepared a moment later.
pub async fn perform_all(
    context: &Context,
    s: &Observed,
    actions: &[Action],
    memory: &mut Memory,
) -> Acted {
    memory.failures.keep(actions);
    let (due, again) = memory.settling.due(actions, s.now);
    let mut acted = Acted {
        created: 0,
        reassigned: 0,
        released: 0,
        gone: false,
        again,
        held: Vec::new(),
        result: Ok(()),
    };
    let mut failed = Failed::new();
    let mut unpinned = false;
    let live = LiveReads::default();
    for run in due.chunk_by(|a, b| whose(a).is_some() && whose(b).is_some()) {
        if run.iter().any(|a| whose(a).is_some()) {
            let all = side_by_side(context, s, run, &memory.failures, &mut failed).await;
            for (action, result) in all {
                let done = matches!(result, Ok(ActionOutcome::It));
                unpinned |= !done && matches!(action, Action::Pin { .. });
                note(&mut acted, s, action, result, memory);
            }
            continue;
        }
        for action in run {
            // An AgentMachine that could not be pinned might take this Agent: a later pass prepares it.
            if unpinned && matches!(action, Action::Prepare { .. }) {
                continue;
            }
            let mut result = traced::perform(context, s, action, &memory.failures, &live).await;
            if let Ok(ActionOutcome::Record(change)) = result {
                let written = publish::record(context, s, memory, change).await;
                result = written.map(|()| ActionOutcome::It);
            }
            note(&mut acted, s, action, result, memory);
        }
    }
    acted
}

/// Notes the result of an action, for this pass and the next ones.
fn note(
    acted: &mut Acted,
    s: &Observed,
    action: &Action,
    result: Result<ActionOutcome, ReconcileError>,
    memory: &mut Memory,
) {
    memory.failures.note(action, result.is_err());
    if matches!(result, Ok(ActionOutcome::It)) {
        memory.pending.note(action, s.now);
    } else {
        let failed = result.as_ref().err().map(|trouble| trouble.class);
        memory.pending.note_failed(action, failed, s.now);
    }
    acted.add(action, result);
}

/// The actions of each AgentMachine, in order.
fn lanes(run: &[Action]) -> Vec<(&str, Vec<&Action>)> {
    let mut lanes: Vec<(&str, Vec<&Action>)> = Vec::new();
    for action in run {
        let name = whose(action).and_then(|am| am.metadata.name.as_deref());
        let name = name.unwrap_or_default();
        match lanes.iter_mut().find(|(n, _)| *n == name) {
            Some((_, lane)) => lane.push(action),
            None => lanes.push((name, vec![action])),
        }
    }
    lanes
}

/// AgentMachines for which an action failed: the rest of their actions are left out.
type Failed = BTreeSet<String>;

/// Carries out actions that all provision machines. Different AgentMachines run side by side; the actions of one run in
/// order, up to the first that fails. Returns the outcomes in the order of the AgentMachines.
async fn side_by_side<'a>(
    context: &Context,
    s: &Observed,
    run: &'a [Action],
    failures: &Failures,
    failed: &mut Failed,
) -> Vec<(&'a Action, Result<ActionOutcome, ReconcileError>)> {
    let lanes: Vec<_> = lanes(run)
        .into_iter()
        .filter(|(name, _)| !failed.contains(*name))
        .map(|(_, lane)| one(context, s, lane, failures))
        .collect();
    let all: Vec<_> = stream::iter(lanes).buffered(SIDE_BY_SIDE).collect().await;
    let all: Vec<_> = all.into_iter().flatten().collect();
    let troubled = all.iter().filter(|(_, result)| result.is_err());
    failed.extend(troubled.filter_map(|(action, _)| Some(whose(action)?.name_any())));
    all
}

async fn one<'a>(
    context: &Context,
    s: &Observed,
    lane: Vec<&'a Action>,
    failures: &Failures,
) -> Vec<(&'a Action, Result<ActionOutcome, ReconcileError>)> {
    let mut all = Vec::with_capacity(lane.len());
    for action in lane {
        let result = traced::perform(context, s, action, failures, &LiveReads::default()).await;
        let failed = result.is_err();
        all.push((action, result));
        if failed {
            break;
        }
    }
    all
}

#[cfg(test)]
mod tests;
