//! Which Secrets a pool needs, and what is done with their finalizers. Pure.

use std::{collections::BTreeSet, time::Duration};

use agent_forge_crds::{
    agent::VsphereAgent,
    names::POOL_FINALIZER,
    pool::{HeldSecret, VsphereAgentPool},
};
use kube::ResourceExt;

use crate::{domain::names::ObjectKey, pool::observed::Observed, sessions::secret_ref};

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

/// Decides which Secrets to hold and which to release.
#[must_use]
pub fn plan(s: &Observed) -> SecretPlan {
    if !s.pool.finalizers().iter().any(|f| f == POOL_FINALIZER) {
        return SecretPlan::new();
    }
    let children = s.children.iter().chain(&s.group.shared);
    let children = children.map(|c| c.object.as_ref());
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
