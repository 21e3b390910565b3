//! Custody of credentials: the Secrets that a pool's VsphereAgents need stay as long as those do (reliability.md: credentials outlive their use).
//!
//! Each pool holds them by a finalizer of its own, named after its uid, so that pools which share a Secret need not agree
//! on who is the last. What is held stands in `status.heldSecrets` *before* the finalizer is put on and until it is proven
//! off; so nothing is held that nobody knows of, whenever the process dies. VM actors write nothing to vCenter for the
//! first time before the Secret is confirmed as held.
//!
//! Assumption: the pool carries our finalizer, which stays until this list is empty.

use std::{collections::BTreeSet, time::Duration};

use agent_forge_crds::{
    agent::VsphereAgent,
    conditions::reason,
    names::POOL_FINALIZER,
    pool::{HeldSecret, VsphereAgentPool},
};
use kube::ResourceExt;

use super::{Memory, observed::Observed, pass, plan::Action, publish};
use crate::{
    context::Context,
    domain::{failure::ReconcileError, names::ObjectKey},
    mutants::{Mutant, on},
    ports::effect::{Effect, EffectKind},
    sessions::secret_ref,
};

/// What was confirmed is looked at again after that: a person may have taken the finalizer off.
const RECHECK: Duration = Duration::from_secs(300);

/// The Secret that a VsphereAgent's record names.
fn recorded(child: &VsphereAgent, allowed: &[String]) -> Option<ObjectKey> {
    let vm = child.status.as_ref()?.vm.as_ref()?;
    let own = child.namespace().unwrap_or_default();
    secret_ref::secret_at(vm.credentials_ref.as_ref()?, &own, allowed).ok()
}

/// The Secrets that the pool's VsphereAgents need: what each one has on record, and, while there are any or one is about
/// to be made, what the spec names.
#[must_use]
pub fn needed<'a>(
    pool: &VsphereAgentPool,
    children: impl Iterator<Item = &'a VsphereAgent>,
    creating: bool,
    allowed: &[String],
) -> BTreeSet<ObjectKey> {
    let mut any = creating;
    let mut all = BTreeSet::new();
    for child in children {
        any = true;
        all.extend(recorded(child, allowed));
    }
    if any {
        all.extend(secret_ref::secret(pool, allowed).ok());
    }
    all
}

/// Holds what is needed and lets go of what is not; the record in `s.pool` is as new as what was done.
///
/// # Errors
/// The first trouble; the other Secrets were seen to all the same.
pub async fn tend(
    context: &Context,
    s: &mut Observed,
    actions: &[Action],
    memory: &mut Memory,
) -> Result<(), ReconcileError> {
    if !s.pool.finalizers().iter().any(|f| f == POOL_FINALIZER) || on(Mutant::NothingHeld) {
        return Ok(());
    }
    let allowed = &context.settings.secret_namespaces;
    let creating = actions
        .iter()
        .any(|a| matches!(a, Action::CreateChild { .. }));
    let children = s.children.iter().map(|c| c.object.as_ref());
    let needed = needed(&s.pool, children, creating, allowed);
    let known: BTreeSet<ObjectKey> = secret_ref::on_record(&s.pool)
        .iter()
        .map(secret_ref::key)
        .collect();
    if needed.is_empty() && known.is_empty() {
        return Ok(());
    }
    let mut entries = secret_ref::on_record(&s.pool).to_vec();
    entries.extend(needed.difference(&known).map(|k| HeldSecret {
        name: k.name.clone(),
        namespace: k.namespace.clone(),
        held: false,
    }));
    record(context, s, entries.clone(), memory).await?;

    let due = memory
        .custody_checked
        .is_none_or(|at| s.now.saturating_sub(at) >= RECHECK);
    let mut trouble = None;
    let mut kept = Vec::new();
    for mut entry in entries {
        let secret = secret_ref::key(&entry);
        if needed.contains(&secret) {
            if due || !entry.held {
                match hold(context, s, &secret).await {
                    Ok(held) => entry.held = held,
                    Err(t) => {
                        if t.reason == reason::SECRET_NAMESPACE_REFUSED && known.contains(&secret) {
                            // Its owner took the pool's leave back: nobody can log in with it, so it need not stay. The entry
                            // does, until the pool needs the Secret no more.
                            release(context, s, &secret).await?;
                            entry.held = false;
                        }
                        trouble = trouble.or(Some(t));
                    }
                }
            }
            kept.push(entry);
            continue;
        }
        match let_go(context, s, &secret).await {
            Ok(true) => {}
            Ok(false) => kept.push(entry),
            Err(t) => {
                trouble = trouble.or(Some(t));
                kept.push(entry);
            }
        }
    }
    record(context, s, kept, memory).await?;
    match trouble {
        Some(trouble) => Err(trouble),
        None => {
            if due {
                memory.custody_checked = Some(s.now);
            }
            Ok(())
        }
    }
}

async fn hold(context: &Context, s: &Observed, secret: &ObjectKey) -> Result<bool, ReconcileError> {
    let namespace = &s.key.namespace;
    if secret.namespace != *namespace {
        // A finalizer is a write: the Secret has to admit the pool first. Whether vCenter answers does not matter.
        let asked = context.sessions.session(secret, namespace);
        match tokio::time::timeout(pass::SESSION_PATIENCE, asked).await {
            Ok(Err(t)) if t.reason == reason::SECRET_NAMESPACE_REFUSED => return Err(t),
            Ok(_) => {}
            Err(_) => return Ok(false),
        }
    }
    let effect = Effect::new(EffectKind::HoldSecret, &s.key);
    let held = context
        .cluster
        .hold_secret(&effect, secret, &secret_ref::finalizer(&s.pool))
        .await?;
    Ok(held)
}

/// Lets go of a Secret, unless a live look shows somebody who needs it.
async fn let_go(
    context: &Context,
    s: &Observed,
    secret: &ObjectKey,
) -> Result<bool, ReconcileError> {
    let living = context.cluster.live_children(&s.key).await?;
    let allowed = &context.settings.secret_namespaces;
    if needed(&s.pool, living.iter(), false, allowed).contains(secret) {
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
    let effect = Effect::new(EffectKind::ReleaseSecret, &s.key);
    let finalizer = secret_ref::finalizer(&s.pool);
    let released = context.cluster.release_secret(&effect, secret, &finalizer);
    Ok(released.await?)
}

async fn record(
    context: &Context,
    s: &mut Observed,
    entries: Vec<HeldSecret>,
    memory: &mut Memory,
) -> Result<(), ReconcileError> {
    publish::record(context, s, memory, |status| status.held_secrets = entries).await?;
    s.pool = memory.status.over(&s.pool);
    Ok(())
}

#[cfg(test)]
mod tests;
