//! Finalizers on Secrets: the credentials of a pool stay as long as the pool and its VsphereAgents need them.
//!
//! Each pool has a finalizer of its own, named after its uid. So pools that share a Secret need not agree on the last
//! user. `status.heldSecrets` lists a Secret *before* its finalizer is added, and until the finalizer is proven to be
//! removed. So every finalizer is on record, whenever the process dies. A VM actor writes nothing to vCenter before the
//! Secret is confirmed as held.
//!
//! Assumption: the pool has our finalizer, which stays until this list is empty.

use std::{collections::BTreeSet, time::Duration};

use agent_forge_crds::{
    agent::VsphereAgent,
    conditions::Reason,
    names::POOL_FINALIZER,
    pool::{HeldSecret, VsphereAgentPool},
};
use kube::ResourceExt;

use super::{Memory, observed::Observed, publish, vcenter::SESSION_PATIENCE};
use crate::{
    context::Context,
    domain::{failure::ReconcileError, names::ObjectKey},
    ports::effect::{Effect, EffectKind, Subject},
    sessions::secret_ref,
};

/// How often confirmed finalizers are checked: a person may have removed one.
const RECHECK: Duration = Duration::from_secs(300);

/// The Secret that a VsphereAgent's record names.
fn recorded(child: &VsphereAgent, allowed: &[String]) -> Option<ObjectKey> {
    let vm = child.status.as_ref()?.vm.as_ref()?;
    let own = child.namespace().unwrap_or_default();
    secret_ref::secret_at(vm.credentials_ref.as_ref()?, &own, allowed).ok()
}

/// The Secrets that the pool needs: the one in its spec, and the one on the record of each VsphereAgent. A pool that is being
/// deleted needs its own until the last VsphereAgent is gone.
#[must_use]
pub fn needed<'a>(
    pool: &VsphereAgentPool,
    children: impl Iterator<Item = &'a VsphereAgent>,
    allowed: &[String],
) -> BTreeSet<ObjectKey> {
    let mut own = pool.metadata.deletion_timestamp.is_none();
    let mut all = BTreeSet::new();
    for child in children {
        own = true;
        all.extend(recorded(child, allowed));
    }
    if own {
        all.extend(secret_ref::secret(pool, allowed).ok());
    }
    all
}

/// What is done with one Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretAction {
    /// Nothing: it is needed, and held.
    Keep,
    /// Add the pool's finalizer to it.
    Hold {
        /// It was on record before.
        recorded: bool,
    },
    /// Remove the finalizer, after a live list of the pool's VsphereAgents shows that none needs it.
    Release,
}

/// The Secrets of a pool, in the order of the record, and what is done with each.
pub type SecretPlan = Vec<(HeldSecret, SecretAction)>;

/// Whether the held Secrets are to be checked again.
#[must_use]
pub fn is_check_due(checked: Option<Duration>, now: Duration) -> bool {
    checked.is_none_or(|at| now.saturating_sub(at) >= RECHECK)
}

/// Decides which Secrets to hold and which to release. Pure.
#[must_use]
pub fn plan(s: &Observed) -> SecretPlan {
    if !s.pool.finalizers().iter().any(|f| f == POOL_FINALIZER) {
        return SecretPlan::new();
    }
    let children = s.children.iter().map(|c| c.object.as_ref());
    let needed = needed(&s.pool, children, &s.secret_namespaces);
    let record = secret_ref::on_record(&s.pool);
    let recorded = record.iter().map(|entry| {
        let action = if !needed.contains(&secret_ref::key(entry)) {
            SecretAction::Release
        } else if entry.held && !s.secrets_due {
            SecretAction::Keep
        } else {
            SecretAction::Hold { recorded: true }
        };
        (entry.clone(), action)
    });
    let mut plan: SecretPlan = recorded.collect();
    let known: BTreeSet<ObjectKey> = record.iter().map(secret_ref::key).collect();
    plan.extend(
        needed
            .into_iter()
            .filter(|k| !known.contains(k))
            .map(|secret| {
                let entry = HeldSecret {
                    name: secret.name,
                    namespace: secret.namespace,
                    held: false,
                };
                (entry, SecretAction::Hold { recorded: false })
            }),
    );
    plan
}

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
    let living = context.cluster.live_children(&s.key).await?;
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
