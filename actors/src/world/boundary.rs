//! What a pool may use outside its own namespace. This is the one rule, used wherever a decision includes this pool or
//! another one.
//!
//! A namespace allows pools of another one by its annotation `allow-pools-from` ([`grants`]). The rule checks two kinds of
//! namespaces:
//! - The namespace of the NodePool that an AgentMachine names. If it names none, its own namespace.
//! - Each namespace in which the InfraEnv may be. The operator does not look into one that refuses the pool.
//!
//! Guarantees: objects in the pool's own namespace need no grant. A pool that is refused serves no AgentMachine and blocks
//! no other pool. Its recorded hosts are still recognised, fenced and removed: that needs no grant. A namespace that the
//! operator does not serve (`--namespaces`) allows no pool, whatever its annotation contains.
//!
//! Assumption: a user who may edit a Namespace is responsible for all objects in it.

use std::{
    borrow::Borrow,
    collections::{BTreeMap, BTreeSet},
};

use agent_forge_crds::{
    external::agent_machine::AgentMachine, names::ALLOW_POOLS_FROM_ANNOTATION,
    pool::VsphereAgentPool,
};

use crate::{
    domain::{belonging, grants, names::ObjectKey},
    ports::cluster::View,
};

/// The annotations of the Namespaces that a decision needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    annotations: BTreeMap<String, Option<String>>,
    /// Namespaces among them that the operator does not serve.
    unserved: BTreeSet<String>,
}

impl FromIterator<(String, Option<String>)> for Grants {
    fn from_iter<I: IntoIterator<Item = (String, Option<String>)>>(annotations: I) -> Self {
        Self {
            annotations: annotations.into_iter().collect(),
            unserved: BTreeSet::new(),
        }
    }
}

impl Grants {
    /// Reads what a decision about these pools and AgentMachines needs.
    #[must_use]
    pub fn read<'a>(
        view: &dyn View,
        pools: impl IntoIterator<Item = &'a VsphereAgentPool>,
        agent_machines: impl IntoIterator<Item = impl Borrow<AgentMachine>>,
    ) -> Self {
        let mut all = Self::default();
        for pool in pools {
            all.look_at(view, pool.control_plane());
            for home in belonging::infra_envs(pool) {
                all.look_at(view, &home.namespace);
            }
        }
        for am in agent_machines {
            all.look_at(view, owner(am.borrow()));
        }
        all
    }

    fn look_at(&mut self, view: &dyn View, namespace: &str) {
        if self.annotations.contains_key(namespace) {
            return;
        }
        let grant = view.namespace_grant(namespace);
        self.annotations.insert(namespace.to_owned(), grant);
        if !view.serves(namespace) {
            self.unserved.insert(namespace.to_owned());
        }
    }

    /// Whether the pool may use objects in `namespace`.
    #[must_use]
    pub fn admit(&self, namespace: &str, pool: &VsphereAgentPool) -> bool {
        self.admit_from(
            namespace,
            pool.metadata.namespace.as_deref().unwrap_or_default(),
        )
    }

    /// Whether pools of namespace `own` may use objects in `namespace`.
    #[must_use]
    pub fn admit_from(&self, namespace: &str, own: &str) -> bool {
        if namespace == own {
            return true;
        }
        let grant = self.annotations.get(namespace).and_then(Option::as_deref);
        !self.unserved.contains(namespace) && grants::allows(grant, own)
    }

    /// Namespaces in which the pool's InfraEnv may be and is looked for, in order of preference.
    #[must_use]
    pub fn homes(&self, pool: &VsphereAgentPool) -> Vec<ObjectKey> {
        let mut all = belonging::infra_envs(pool);
        all.retain(|home| self.admit(&home.namespace, pool));
        all
    }

    /// The namespaces that refuse the pool.
    #[must_use]
    pub fn refused_homes(&self, pool: &VsphereAgentPool) -> Vec<String> {
        let all = belonging::infra_envs(pool).into_iter();
        let mut refused: Vec<String> = all
            .map(|home| home.namespace)
            .filter(|namespace| !self.admit(namespace, pool))
            .collect();
        refused.dedup();
        refused
    }

    /// The namespace whose grant the pool lacks to serve this AgentMachine. It is that of its NodePool. Else it is that of
    /// the InfraEnv, if no namespace in which it may be allows the pool.
    #[must_use]
    pub fn lacking(&self, pool: &VsphereAgentPool, am: &AgentMachine) -> Option<String> {
        let owner = owner(am);
        if !self.admit(owner, pool) {
            return Some(owner.to_owned());
        }
        self.lacking_home(pool)
    }

    /// The namespace whose grant the pool lacks to use any InfraEnv at all.
    #[must_use]
    pub fn lacking_home(&self, pool: &VsphereAgentPool) -> Option<String> {
        let refused = self.refused_homes(pool).into_iter().next();
        refused.filter(|_| self.homes(pool).is_empty())
    }

    /// The pool's control plane namespace, if the operator does not serve it.
    #[must_use]
    pub fn unserved_control_plane(&self, pool: &VsphereAgentPool) -> Option<String> {
        let namespace = pool.control_plane();
        self.unserved.get(namespace).cloned()
    }

    /// Whether the owner of the AgentMachine allows the pool to see it.
    #[must_use]
    pub fn shows(&self, pool: &VsphereAgentPool, am: &AgentMachine) -> bool {
        self.admit(owner(am), pool)
    }

    /// Whether the owner of the AgentMachine allows pools of namespace `own` to see it.
    #[must_use]
    pub fn shows_to(&self, own: &str, am: &AgentMachine) -> bool {
        self.admit_from(owner(am), own)
    }

    /// Whether the pool serves this AgentMachine, and is allowed to.
    #[must_use]
    pub fn serves(&self, pool: &VsphereAgentPool, am: &AgentMachine) -> bool {
        belonging::belongs(pool, am) && self.lacking(pool, am).is_none()
    }

    /// The message for a pool of namespace `own` about namespaces that it may not use, and who can change that.
    #[must_use]
    pub fn sentence(&self, namespaces: &[String], own: &str) -> String {
        let (unserved, refusing): (Vec<&str>, Vec<&str>) = namespaces
            .iter()
            .map(String::as_str)
            .partition(|namespace| self.unserved.contains(*namespace));
        let refusing = (!refusing.is_empty()).then(|| not_admitted(&refusing.join(", "), own));
        let unserved = (!unserved.is_empty()).then(|| not_served(&unserved.join(", ")));
        let all: Vec<String> = refusing.into_iter().chain(unserved).collect();
        all.join("; ")
    }
}

/// The namespace that decides who may serve the AgentMachine: that of the NodePool that it names, else its own.
fn owner(am: &AgentMachine) -> &str {
    let named = am.node_pool().map(|(namespace, _)| namespace);
    let own = am.metadata.namespace.as_deref().unwrap_or_default();
    named.filter(|n| !n.is_empty()).unwrap_or(own)
}

fn not_admitted(named: &str, own: &str) -> String {
    format!(
        "namespace {named} does not admit pools of namespace {own}: nothing there is fetched, pinned, created for or \
         approved. Its owner admits them by the annotation {ALLOW_POOLS_FROM_ANNOTATION}: \"{own}\" on the Namespace (a \
         list, separated by commas)"
    )
}

fn not_served(named: &str) -> String {
    format!(
        "namespace {named} is not among --namespaces of the operator, so nothing in it is read or written: add it \
         there, with the Roles of config/overlays/namespaced/served"
    )
}

#[cfg(test)]
mod tests;
