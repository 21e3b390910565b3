//! Sizes of hosts beside that of `spec.template`.

use std::collections::BTreeMap;

use crate::schema;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{TemplateSpec, VsphereAgentPool};

/// Most classes of a pool.
pub const MAX_CLASSES: usize = 8;

/// A size of hosts with labels of its own. The `agentLabelSelector` of a NodePool chooses by them: an AgentMachine gets a host of
/// the first class whose labels, together with `spec.agent.labels`, fit its selector. `spec.template` comes first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct SizeClass {
    /// Name of the class, once in the pool.
    #[schemars(length(min = 1, max = 63), regex(pattern = schema::DNS_LABEL))]
    pub name: String,
    /// Size of a VM of this class, in the place of `spec.template`.
    pub template: TemplateSpec,
    /// Labels that the Agents of this class get beside `spec.agent.labels`, whose keys they do not repeat.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 8))]
    pub labels: BTreeMap<String, String>,
    /// Hosts of this class in the buffer. `bufferMax`, `bufferMaxAge` and `deletePolicy` of `spec.scaling` count for each class,
    /// `bufferAgents` and `bufferSchedule` for `spec.template` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub buffer_agents: Option<i32>,
    /// VMs of this class are made before this time, and not switched on. RFC 3339. As `spec.powerOnAfter` unless set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_on_after: Option<Time>,
    /// Class under which OSAC finds the hosts of this class that wait. As `spec.agent.resourceClass` unless set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$")
    )]
    pub resource_class: Option<String>,
}

impl VsphereAgentPool {
    /// The pool as its class of that name sees it: a pool with the template, labels and buffer of the class, and without
    /// classes. `None` if it has no such class.
    #[must_use]
    pub fn of_class(&self, name: &str) -> Option<Self> {
        let class = self.spec.classes.iter().find(|class| class.name == name)?;
        let mut pool = self.clone();
        let spec = &mut pool.spec;
        spec.classes.clear();
        spec.template = class.template.clone();
        let labels = class.labels.iter();
        spec.agent
            .labels
            .extend(labels.map(|(k, v)| (k.clone(), v.clone())));
        let scaling = spec.scaling.get_or_insert_default();
        scaling.buffer_agents = class.buffer_agents;
        scaling.buffer_schedule.clear();
        if class.power_on_after.is_some() {
            spec.power_on_after.clone_from(&class.power_on_after);
        }
        if class.resource_class.is_some() {
            spec.agent.resource_class.clone_from(&class.resource_class);
        }
        Some(pool)
    }
}
