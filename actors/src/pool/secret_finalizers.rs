//! Finalizers on Secrets: the credentials of a pool stay as long as the pool and its VsphereAgents need them.
//!
//! Each pool has a finalizer of its own, named after its uid. So pools that share a Secret need not agree on the last
//! user. `status.heldSecrets` lists a Secret *before* its finalizer is added, and until the finalizer is proven to be
//! removed. So every finalizer is on record, whenever the process dies. A VM actor writes nothing to vCenter before the
//! Secret is confirmed as held.
//!
//! Assumption: the pool has our finalizer, which stays until this list is empty.

use agent_forge_crds::conditions::Reason;

use super::{
    memory::Memory,
    observed::Observed,
    plan::secrets::{SecretAction, SecretPlan, needed},
    publish,
    vcenter::SESSION_PATIENCE,
};
use crate::{
    context::Context,
    domain::{failure::ReconcileError, names::ObjectKey},
    ports::effect::{Effect, EffectKind, Subject},
    sessions::secret_ref,
};

/// Carries the plan out. The record in the status is written before the first finalizer, and again with the outcome.
///
/// # Errors
/// The first failure. The other Secrets are handled all the same.
pub async fn execute(
    context: &Context,
    s: &Observed,
    plan: &SecretPlan,
    memory: &mut Memory,
) -> Result<(), ReconcileError> {
    if plan.is_empty() {
        return Ok(());
    }
    let entries = plan.iter().map(|(entry, _)| entry.clone()).collect();
    publish::record(context, s, memory, |status| status.held_secrets = entries).await?;
    let mut failure = None;
    let mut kept = Vec::new();
    for (entry, action) in plan {
        let (mut entry, secret) = (entry.clone(), secret_ref::key(entry));
        match action {
            SecretAction::Keep => kept.push(entry),
            SecretAction::Hold { recorded } => {
                match hold(context, s, &secret).await {
                    Ok(held) => entry.held = held,
                    Err(t) => {
                        if t.reason == Reason::SecretNamespaceRefused && *recorded {
                            // Its owner no longer admits the pool. The pool cannot log in with it, so it need not stay.
                            // The entry stays until the pool no longer needs the Secret.
                            release(context, s, &secret).await?;
                            entry.held = false;
                        }
                        failure = failure.or(Some(t));
                    }
                }
                kept.push(entry);
            }
            SecretAction::Release => match let_go(context, s, &secret).await {
                Ok(true) => {}
                Ok(false) => kept.push(entry),
                Err(t) => {
                    failure = failure.or(Some(t));
                    kept.push(entry);
                }
            },
        }
    }
    publish::record(context, s, memory, |status| status.held_secrets = kept).await?;
    if let Some(failure) = failure {
        return Err(failure);
    }
    if s.secrets_due {
        memory.secrets_checked = Some(s.now);
    }
    Ok(())
}

async fn hold(context: &Context, s: &Observed, secret: &ObjectKey) -> Result<bool, ReconcileError> {
    let namespace = &s.key.namespace;
    if secret.namespace != *namespace {
        // A finalizer is a write, so the Secret has to admit the pool first. It does not matter whether vCenter
        // answers.
        let asked = context.sessions.session(secret, namespace);
        match tokio::time::timeout(SESSION_PATIENCE, asked).await {
            Ok(Err(t)) if t.reason == Reason::SecretNamespaceRefused => return Err(t),
            Ok(_) => {}
            Err(_) => return Ok(false),
        }
    }
    let effect = Effect::new(EffectKind::HoldSecret, Subject::Pool(s.key.clone()));
    let held = context
        .cluster
        .hold_secret(&effect, secret, &secret_ref::finalizer(&s.pool))
        .await?;
    Ok(held)
}

/// Removes the finalizer from a Secret, unless a live list shows that it is needed.
async fn let_go(
    context: &Context,
    s: &Observed,
    secret: &ObjectKey,
) -> Result<bool, ReconcileError> {
    let living = context
        .cluster
        .live_children(&s.key, &s.group.host_namespaces)
        .await?;
    if needed(&s.pool, living.iter(), &s.secret_namespaces).contains(secret) {
        return Ok(false);
    }
    release(context, s, secret).await?;
    Ok(true)
}

async fn release(
    context: &Context,
    s: &Observed,
    secret: &ObjectKey,
) -> Result<(), ReconcileError> {
    let effect = Effect::new(EffectKind::ReleaseSecret, Subject::Pool(s.key.clone()));
    let finalizer = secret_ref::finalizer(&s.pool);
    let released = context.cluster.release_secret(&effect, secret, &finalizer);
    Ok(released.await?)
}

#[cfg(test)]
mod tests;
