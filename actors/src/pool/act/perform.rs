//! Carries one action out.

use agent_forge_crds::{
    conditions::Reason,
    external::agent::Agent,
    names::{AGENT_MACHINE_LABEL, POOL_FINALIZER, RECYCLE_ANNOTATION},
    pool::VsphereAgentPoolStatus,
};
use kube::ResourceExt;

use super::child_object::{into_buffer, reassignment};
use crate::{
    context::Context,
    domain::{failure::ReconcileError, machine_state::MachineState, managed_vm::ManagedVm},
    guard::{self, Leaves, LiveReads, PoolCase, Refusal},
    lifecycle::ReleaseReason,
    pool::{
        observed::Observed,
        plan::{self, Action, Waiting},
        provision,
    },
    ports::{
        cluster::{MetadataPatch, Precondition},
        effect::Hold,
    },
    runtime::holds,
};

/// The result of an action that did not fail.
pub enum ActionOutcome {
    /// It was carried out.
    It,
    /// It was carried out, and it changes the pool's status, which is to be written.
    Record(fn(&mut VsphereAgentPoolStatus)),
    /// It was carried out. The pool object has changed by it, or is gone.
    Gone,
    /// It is not possible now. With the message, if the plan has none.
    Held(Option<Waiting>),
    /// People hold it back: nothing was tried.
    HeldBack(Waiting),
}

/// What the guard needs to know before `child` leaves the pool, or its AgentMachine.
fn leaving<'a>(
    context: &'a Context,
    s: &'a Observed,
    child: &'a ManagedVm,
    was_unfenced: &'a (dyn Fn(&Agent) -> bool + Send + Sync),
) -> PoolCase<'a> {
    PoolCase {
        context,
        pool: &s.pool,
        child,
        agents: plan::agents_to_ask(s, child),
        was_unfenced,
    }
}

/// What is waited for, by what the guard read of `child`.
fn waits(child: &ManagedVm, (reason, message): (Reason, String)) -> Waiting {
    Waiting {
        subject: child.key.name.clone(),
        reason,
        message,
    }
}

/// Carries one action out.
///
/// # Errors
/// The [`ReconcileError`] of its reads and writes.
pub async fn perform(
    context: &Context,
    s: &Observed,
    action: &Action,
    live: &LiveReads,
) -> Result<ActionOutcome, ReconcileError> {
    let cluster = context.cluster.as_ref();
    let effect = action.effect(&s.key);
    let held_back = |hold: Hold| {
        ActionOutcome::HeldBack(Waiting {
            subject: effect.subject.name().to_owned(),
            reason: hold.reason,
            message: format!("{} waits: {}", effect.kind.name(), hold.why),
        })
    };
    if let Some(hold) = holds::ask(context.view.as_ref(), &effect, s.wall) {
        return Ok(held_back(hold));
    }
    // The plan takes it for fenced, and it can be chosen by what was read.
    let was_unfenced = |live: &Agent| {
        let mut shown = s.agents.iter();
        let shown = shown.find(|a| a.uid() == live.uid());
        shown.is_some_and(|a| s.fence(a).is_none()) && s.fence(live).is_some()
    };
    let asks = |child| leaving(context, s, child, &was_unfenced);
    let refused = |child: &ManagedVm, refusal: Refusal| match refusal {
        Refusal::HeldBack(hold) => held_back(hold),
        Refusal::Shown(reason, message) => {
            ActionOutcome::Held(Some(waits(child, (reason, message))))
        }
    };
    // The pool's finalizers change only if no Secret is on record: so this pass has written no status before.
    let at = || Precondition::of(s.pool.as_ref());
    match action {
        Action::AddFinalizer => {
            let mut finalizers = s.pool.finalizers().to_vec();
            finalizers.push(POOL_FINALIZER.to_owned());
            let patch = MetadataPatch {
                finalizers: Some(finalizers),
                ..MetadataPatch::default()
            };
            cluster.patch_pool(&effect, &at(), &patch).await?;
            // The patch changed the resourceVersion: the next pass writes the status.
            Ok(ActionOutcome::Gone)
        }
        Action::Close => Ok(ActionOutcome::Record(|status| status.closed = Some(true))),
        Action::Pin { agent_machine, pin } => {
            let at = Precondition::of(agent_machine.as_ref());
            cluster.pin(&effect, &at, AGENT_MACHINE_LABEL, pin).await?;
            Ok(ActionOutcome::It)
        }
        Action::CreateChild {
            agent_machine,
            machine,
            ..
        } => {
            provision::create(context, s, &effect, agent_machine, machine).await?;
            Ok(ActionOutcome::It)
        }
        Action::Borrow {
            agent_machine,
            machine,
            lender,
            agent,
            ..
        } => {
            let host = (lender, agent.as_ref());
            provision::borrow(context, s, &effect, (agent_machine, machine), host).await?;
            Ok(ActionOutcome::It)
        }
        Action::Unreserve { patch, .. } => {
            let permit = guard::harmless(effect.clone(), patch.clone())?;
            cluster.patch_agent(&permit).await?;
            Ok(ActionOutcome::It)
        }
        Action::CreateForBuffer { .. } => {
            provision::create_for_buffer(context, s, &effect).await?;
            Ok(ActionOutcome::It)
        }
        Action::MoveToBuffer { child, why } => {
            let leaves = Leaves::ToBuffer(*why);
            match asks(child).permit(live, &effect, leaves).await? {
                Ok(permit) => cluster.patch_child(&permit, &into_buffer(child)).await?,
                Err(refusal) => return Ok(refused(child, refusal)),
            }
            Ok(ActionOutcome::It)
        }
        Action::Recycle { child, request } => {
            let leaves = Leaves::ToBuffer(ReleaseReason::MachineGone);
            let permit = match asks(child).permit(live, &effect, leaves).await? {
                Ok(permit) => permit,
                Err(refusal) => return Ok(refused(child, refusal)),
            };
            let mut patch = into_buffer(child);
            let key = RECYCLE_ANNOTATION.to_owned();
            patch.annotations.insert(key, request.clone());
            cluster.patch_child(&permit, &patch).await?;
            Ok(ActionOutcome::It)
        }
        Action::Reassign {
            child,
            agent_machine,
            machine,
        } => {
            let leaving = s.host(child).machine == MachineState::Leaving;
            let leaves = Leaves::To(agent_machine, leaving);
            let permit = match asks(child).permit(live, &effect, leaves).await? {
                Ok(permit) => permit,
                Err(refusal) => return Ok(refused(child, refusal)),
            };
            let patch = reassignment(child, agent_machine, machine.as_ref());
            cluster.patch_child(&permit, &patch).await?;
            Ok(ActionOutcome::It)
        }
        Action::Prepare { patch, child } => {
            let shown = s.host(child).possible.iter();
            let case = asks(child);
            match case.permit_promise(live, &effect, patch, shown).await? {
                Ok(permit) => cluster.patch_agent(&permit).await?,
                Err(Some(refusal)) => return Ok(refused(child, refusal)),
                Err(None) => return Ok(ActionOutcome::Held(None)),
            }
            Ok(ActionOutcome::It)
        }
        Action::Fence { patch, child } => {
            let agent = cluster.live_agent(&patch.key).await?;
            let Some(agent) = agent.filter(|a| patch.is_made_from(a)) else {
                return Ok(ActionOutcome::Held(None));
            };
            // The cache may be late: the labels must stay on a host that serves.
            if let Some(shown) = asks(child).keeps_labels(live, &agent).await? {
                return Ok(ActionOutcome::Held(Some(waits(child, shown))));
            }
            let permit = guard::harmless(effect.clone(), patch.clone())?;
            cluster.patch_agent(&permit).await?;
            Ok(ActionOutcome::It)
        }
        Action::Release { child, why } => {
            let leaves = Leaves::Deleted(*why);
            match asks(child).permit(live, &effect, leaves).await? {
                Ok(permit) => cluster.delete_child(&permit).await?,
                Err(refusal) => {
                    if let Refusal::Shown(reason, message) = &refusal {
                        tracing::info!(child = %child.key, reason = reason.as_str(), "not released: {message}");
                    }
                    return Ok(refused(child, refusal));
                }
            }
            Ok(ActionOutcome::It)
        }
        Action::RemoveFinalizer => {
            let left = cluster.live_children(&s.key).await?;
            if !left.is_empty() {
                return Ok(ActionOutcome::Held(None));
            }
            let finalizers = s
                .pool
                .finalizers()
                .iter()
                .filter(|f| *f != POOL_FINALIZER)
                .cloned()
                .collect();
            let patch = MetadataPatch {
                finalizers: Some(finalizers),
                ..MetadataPatch::default()
            };
            cluster.patch_pool(&effect, &at(), &patch).await?;
            Ok(ActionOutcome::Gone)
        }
    }
}
