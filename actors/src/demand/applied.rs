//! Labels of Nodes, and the class of OSAC: what an Agent gets beside what it takes to be claimed. Pure.
//!
//! Other people and services write both. So the annotation [`APPLIED_ANNOTATION`] records what the operator set, and the same
//! patch writes it. The operator changes and removes only what still has the recorded value. A key that the service took over
//! from the InfraEnv is the service's: the service writes its value again for ever.

use std::collections::BTreeMap;

use agent_forge_crds::{
    external::agent::{Agent, RESOURCE_CLASS_LABEL},
    names::APPLIED_ANNOTATION,
    pool::VsphereAgentPool,
};
use kube::ResourceExt as _;
use serde::{Deserialize, Serialize};

use crate::{
    domain::{belonging, selector::Labels},
    ports::cluster::AgentPatch,
};

/// What the operator set on an Agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Applied {
    /// Entries of `spec.nodeLabels`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    node_labels: Labels,
    /// Value of the label of OSAC.
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_class: Option<String>,
}

impl Applied {
    /// What is on record. If that cannot be read, all of the Agent is of other people.
    fn read(agent: &Agent) -> Self {
        let text = agent.annotations().get(APPLIED_ANNOTATION);
        text.and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default()
    }

    /// Adds the record to the patch, if it differs from `before`.
    fn write(self, before: &Self, patch: &mut AgentPatch) {
        if self == *before {
            return;
        }
        let text = (self != Self::default()).then(|| serde_json::json!(self).to_string());
        patch
            .annotations
            .insert(APPLIED_ANNOTATION.to_owned(), text);
    }

    /// The class of that Agent, if the operator set it.
    fn class_of<'a>(&self, agent: &'a Agent) -> Option<&'a str> {
        let class = agent.resource_class();
        class.filter(|class| self.resource_class.as_deref() == Some(*class))
    }
}

/// Adds to the patch what `agent` lacks, or has too much. `class`: the class that OSAC is to find it by. None: by no class of ours.
pub fn apply(pool: &VsphereAgentPool, class: Option<&str>, agent: &Agent, patch: &mut AgentPatch) {
    let before = Applied::read(agent);
    let after = Applied {
        node_labels: node_labels(&belonging::node_labels(pool), &before, agent, patch),
        resource_class: resource_class(class, &before, agent, patch),
    };
    after.write(&before, patch);
}

/// Adds to the patch that OSAC no longer finds the Agent by a class of ours.
pub fn withdraw(agent: &Agent, patch: &mut AgentPatch) {
    let before = Applied::read(agent);
    let after = Applied {
        resource_class: resource_class(None, &before, agent, patch),
        ..before.clone()
    };
    after.write(&before, patch);
}

/// The patch with which OSAC no longer finds the Agent by a class of ours. None: it does not.
///
/// An Agent that a cluster order has reserved keeps the class. OSAC counts its reserved Agents by both labels, its NodePools
/// choose by both, and nobody else reserves such an Agent.
#[must_use]
pub fn withdrawn(agent: &Agent) -> Option<AgentPatch> {
    let ours = Applied::read(agent).class_of(agent).is_some();
    if !ours || agent.cluster_order().is_some() {
        return None;
    }
    let mut patch = AgentPatch::of(agent);
    withdraw(agent, &mut patch);
    Some(patch)
}

/// Whether the patch does no more than [`withdrawn`]. No Machine chooses an Agent that serves by that label.
#[must_use]
pub fn withdraws_only(patch: &AgentPatch) -> bool {
    let labels = patch.labels.iter();
    let only_class = labels
        .map(|(key, value)| (key.as_str(), value))
        .eq([(RESOURCE_CLASS_LABEL, &None)]);
    let only_record = patch
        .annotations
        .keys()
        .all(|key| key == APPLIED_ANNOTATION);
    only_class
        && only_record
        && patch.node_labels.is_empty()
        && patch.approved.is_none()
        && patch.hostname.is_none()
        && patch.role.is_none()
}

/// The class that a person set. The operator gives it back after it had to take it off.
#[must_use]
pub fn class_of_people(agent: &Agent) -> Option<&str> {
    let ours = Applied::read(agent).class_of(agent).is_some();
    agent.resource_class().filter(|_| !ours)
}

/// Plans the Node labels. Returns those that are then on record.
fn node_labels(wanted: &Labels, before: &Applied, agent: &Agent, patch: &mut AgentPatch) -> Labels {
    let now = &agent.spec.node_labels;
    let is_ours = |key: &String| {
        let set = before.node_labels.get(key);
        set.is_some() && set == now.get(key) && !agent.inherits_node_label(key)
    };
    let left = before.node_labels.keys();
    let left = left.filter(|key| !wanted.contains_key(*key) && is_ours(key));
    patch
        .node_labels
        .extend(left.map(|key| (key.clone(), None)));
    let mut record = Labels::new();
    for (key, value) in wanted {
        let of_others = now.contains_key(key) && !is_ours(key);
        if of_others || agent.inherits_node_label(key) {
            continue;
        }
        record.insert(key.clone(), value.clone());
        if now.get(key) != Some(value) {
            patch.node_labels.insert(key.clone(), Some(value.clone()));
        }
    }
    record
}

/// Plans the class. Returns the one that is then on record.
fn resource_class(
    wanted: Option<&str>,
    before: &Applied,
    agent: &Agent,
    patch: &mut AgentPatch,
) -> Option<String> {
    let ours = before.class_of(agent);
    let wanted = wanted.filter(|_| ours.is_some() || agent.resource_class().is_none());
    if wanted != ours {
        let value = wanted.map(str::to_owned);
        patch.labels.insert(RESOURCE_CLASS_LABEL.to_owned(), value);
    }
    wanted.map(str::to_owned)
}

#[cfg(test)]
mod tests;
