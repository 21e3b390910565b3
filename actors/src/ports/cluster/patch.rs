//! What a write changes, and what it was computed from.

use std::collections::BTreeMap;

use agent_forge_crds::{agent::Goal, external::agent::Agent};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::domain::names::ObjectKey;

/// A merge patch for one Agent, with the resourceVersion it was computed from.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentPatch {
    /// Which Agent.
    pub key: ObjectKey,
    /// Precondition: its uid.
    pub uid: String,
    /// Precondition: its resourceVersion.
    pub resource_version: String,
    /// Labels to set (`Some`) or remove (`None`).
    pub labels: BTreeMap<String, Option<String>>,
    /// Annotations, likewise.
    pub annotations: BTreeMap<String, Option<String>>,
    /// `spec.approved`.
    pub approved: Option<bool>,
    /// `spec.hostname`.
    pub hostname: Option<String>,
    /// `spec.role`.
    pub role: Option<String>,
    /// Entries of `spec.nodeLabels`, as labels.
    pub node_labels: BTreeMap<String, Option<String>>,
}

impl AgentPatch {
    /// A patch of `agent` as it is now, which changes nothing yet.
    #[must_use]
    pub fn of(agent: &Agent) -> Self {
        Self {
            key: ObjectKey::of(agent),
            uid: agent.metadata.uid.clone().unwrap_or_default(),
            resource_version: agent.metadata.resource_version.clone().unwrap_or_default(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            approved: None,
            hostname: None,
            role: None,
            node_labels: BTreeMap::new(),
        }
    }

    /// Whether its preconditions hold for `agent`.
    #[must_use]
    pub fn is_made_from(&self, agent: &Agent) -> bool {
        agent.metadata.uid.as_ref() == Some(&self.uid)
            && agent.metadata.resource_version.as_ref() == Some(&self.resource_version)
    }
}

/// Identity of an object for a delete or patch, so that the call cannot change another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Precondition {
    /// Namespace and name.
    pub key: ObjectKey,
    /// uid.
    pub uid: String,
    /// resourceVersion.
    pub resource_version: String,
}

impl Precondition {
    /// The object as it was read.
    pub fn of<K: kube::ResourceExt>(object: &K) -> Self {
        Self {
            key: ObjectKey::of(object),
            uid: object.uid().unwrap_or_default(),
            resource_version: object.resource_version().unwrap_or_default(),
        }
    }
}

/// What changes in one of our own objects: labels and annotations to set (`Some`) or remove (`None`), and what is replaced whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnPatch {
    /// Labels.
    pub labels: BTreeMap<String, Option<String>>,
    /// Annotations.
    pub annotations: BTreeMap<String, Option<String>>,
    /// The whole new list of finalizers.
    pub finalizers: Option<Vec<String>>,
    /// The whole new goal of a VsphereAgent.
    pub goal: Option<Goal>,
    /// The pool of its namespace that a VsphereAgent moves to, and all its owners then.
    pub pool: Option<(String, Vec<OwnerReference>)>,
    /// The class that a VsphereAgent has in the pool that uses it from now on. `Some(None)`: that of `spec.template`.
    pub class: Option<Option<String>>,
}
