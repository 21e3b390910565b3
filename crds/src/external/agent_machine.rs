//! `AgentMachine` of the agent CAPI provider: the demand for a host.

use super::condition::{ForeignCondition, find};
use super::kind::foreign_kind;
use super::{NamespacedName, machine};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use kube::ResourceExt;
use serde::{Deserialize, Serialize};

/// API group.
pub const GROUP: &str = "capi-provider.agent-install.openshift.io";
/// Finalizer that the provider sets once it has accepted the owner Machine (§0.14, §1.2).
pub const PROVIDER_FINALIZER: &str = "agentmachine.agent-install.openshift.io/deprovision";
/// Annotation that names the NodePool as `<namespace>/<name>`, on Machine and AgentMachine (§6.3).
pub const NODE_POOL_ANNOTATION: &str = "hypershift.openshift.io/nodePool";
/// Annotation that pauses a CAPI object by being there; HyperShift writes the value `true` (§1.4).
pub const PAUSED_ANNOTATION: &str = "cluster.x-k8s.io/paused";
/// Condition: an Agent is reserved (§1.3).
pub const AGENT_RESERVED: &str = "AgentReserved";
/// Condition: summary of the others (§1.3).
pub const READY: &str = "Ready";
/// Reason of [`AGENT_RESERVED`] (and of [`READY`] in the older generation) while it waits (§1.3).
pub const NO_SUITABLE_AGENTS: &str = "NoSuitableAgents";
/// Reason of [`AGENT_RESERVED`] while an error keeps the provider from looking for an Agent; the message is that error (§1.3).
pub const AGENT_NOT_YET_FOUND: &str = "AgentNotYetFound";

foreign_kind! {
    /// One Machine's claim on a host.
    AgentMachine { spec: AgentMachineSpec, status: AgentMachineStatus }
    group: "capi-provider.agent-install.openshift.io", version: "v1beta1", plural: "agentmachines"
}

/// What the claim asks for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentMachineSpec {
    /// Labels that an Agent must carry. Absent selects every Agent (§1.5). One of another shape also
    /// reads as absent; the kind's own definition refuses to store such a one.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub agent_label_selector: Option<LabelSelector>,
    /// `agent://<Agent name>` once an Agent is claimed (§1.2).
    #[serde(
        rename = "providerID",
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub provider_id: Option<String>,
}

/// What became of the claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentMachineStatus {
    /// Agent that was claimed; never taken back (§0.8).
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub agent_ref: Option<NamespacedName>,
    /// Whether the host is installed; never lowered again (§1.3).
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub ready: Option<bool>,
    /// Conditions, in either generation's shape; may be missing for ever (§0.13).
    #[serde(
        deserialize_with = "crate::lenient::list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub conditions: Vec<ForeignCondition>,
}

impl AgentMachine {
    /// Reference to the owner of kind Machine, in either version of its group (§1.4). At creation
    /// the owner is a MachineSet; the Machine takes its place about a second later (§0.14).
    pub fn owner_machine(&self) -> Option<&OwnerReference> {
        self.owner_references().iter().find(|owner| {
            owner.kind == machine::KIND
                && owner
                    .api_version
                    .strip_prefix(machine::GROUP)
                    .is_some_and(|version| version == "/v1beta1" || version == "/v1beta2")
        })
    }

    /// Conditions; none while the provider has written none.
    pub fn conditions(&self) -> &[ForeignCondition] {
        self.status
            .as_ref()
            .map(|status| status.conditions.as_slice())
            .unwrap_or_default()
    }

    /// Condition `AgentReserved`, which both generations write (§1.3).
    pub fn reserved_condition(&self) -> Option<&ForeignCondition> {
        find(self.conditions(), AGENT_RESERVED)
    }

    /// Condition `Ready`.
    pub fn ready_condition(&self) -> Option<&ForeignCondition> {
        find(self.conditions(), READY)
    }

    /// Whether `AgentReserved` says that no Agent suits it (§0.1).
    pub fn is_waiting(&self) -> bool {
        self.reserved_condition()
            .is_some_and(|condition| condition.is_false_because(NO_SUITABLE_AGENTS))
    }

    /// Whether, without a condition `AgentReserved`, `Ready` says that no Agent suits it: the
    /// older generation's word (§0.1, §1.3).
    pub fn is_waiting_legacy(&self) -> bool {
        self.reserved_condition().is_none()
            && self
                .ready_condition()
                .is_some_and(|condition| condition.is_false_because(NO_SUITABLE_AGENTS))
    }

    /// What keeps the provider from looking for an Agent, in its own words, which may be none (§1.3); `None` where it can look.
    pub fn search_error(&self) -> Option<&str> {
        let reserved = self.reserved_condition()?;
        reserved
            .is_false_because(AGENT_NOT_YET_FOUND)
            .then(|| reserved.message.as_deref().unwrap_or_default())
    }

    /// Agent that was claimed, when its reference has a name.
    pub fn agent_ref(&self) -> Option<&NamespacedName> {
        self.status
            .as_ref()
            .and_then(|status| status.agent_ref.as_ref())
            .filter(|agent| !agent.name.is_empty())
    }

    /// Whether the host is installed (§1.3).
    pub fn is_ready(&self) -> bool {
        self.status.as_ref().and_then(|status| status.ready) == Some(true)
    }

    /// Whether the provider has accepted the owner Machine: its finalizer is there (§0.14).
    pub fn has_provider_finalizer(&self) -> bool {
        self.finalizers()
            .iter()
            .any(|name| name == PROVIDER_FINALIZER)
    }

    /// Whether it carries the pause annotation, whatever its value (§1.4).
    pub fn is_paused(&self) -> bool {
        self.annotations().contains_key(PAUSED_ANNOTATION)
    }

    /// Whether it is being deleted.
    pub fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// NodePool it belongs to, as `(namespace, name)` (§6.3).
    pub fn node_pool(&self) -> Option<(&str, &str)> {
        self.annotations()
            .get(NODE_POOL_ANNOTATION)?
            .split_once('/')
    }
}
