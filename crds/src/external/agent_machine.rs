//! `AgentMachine` of the agent CAPI provider: the demand for a host.

use super::condition::{ForeignCondition, find};
use super::kind::foreign_kind;
use super::{NamespacedName, machine};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use kube::ResourceExt;
use serde::{Deserialize, Serialize};

/// API group.
pub const GROUP: &str = "capi-provider.agent-install.openshift.io";
/// Finalizer that the provider sets once it has accepted the owner Machine.
pub const PROVIDER_FINALIZER: &str = "agentmachine.agent-install.openshift.io/deprovision";
/// Annotation that names the NodePool as `<namespace>/<name>`, on Machine and AgentMachine.
pub const NODE_POOL_ANNOTATION: &str = "hypershift.openshift.io/nodePool";
/// Annotation that pauses a CAPI object, with any value. HyperShift writes the value `true`.
pub const PAUSED_ANNOTATION: &str = "cluster.x-k8s.io/paused";
/// Condition: an Agent is reserved.
pub const AGENT_RESERVED: &str = "AgentReserved";
/// Condition: summary of the others.
pub const READY: &str = "Ready";
/// Reason of [`AGENT_RESERVED`] while the AgentMachine waits. In the older generation also the reason of [`READY`].
pub const NO_SUITABLE_AGENTS: &str = "NoSuitableAgents";
/// Reason of [`AGENT_RESERVED`] while an error prevents the provider from looking for an Agent. The message is that
/// error.
pub const AGENT_NOT_YET_FOUND: &str = "AgentNotYetFound";

foreign_kind! {
    /// The claim of one Machine for a host.
    AgentMachine { spec: AgentMachineSpec, status: AgentMachineStatus }
    group: "capi-provider.agent-install.openshift.io", version: "v1beta1", plural: "agentmachines"
}

/// What the claim requires.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentMachineSpec {
    /// Labels that an Agent must have. Without a selector every Agent fits. A value of another type also reads as
    /// absent, but the CRD does not accept such a value.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub agent_label_selector: Option<LabelSelector>,
    /// `agent://<Agent name>` once an Agent is claimed.
    #[serde(
        rename = "providerID",
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub provider_id: Option<String>,
}

/// The result of the claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentMachineStatus {
    /// Agent that was claimed. It is never removed.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub agent_ref: Option<NamespacedName>,
    /// Whether the host is installed. It never becomes false again.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub ready: Option<bool>,
    /// Conditions in the format of either generation. They may be missing for ever.
    #[serde(
        deserialize_with = "crate::lenient::list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub conditions: Vec<ForeignCondition>,
}

impl AgentMachine {
    /// Reference to the owner of kind Machine, in either version of its group. At creation the owner is a MachineSet.
    /// The Machine becomes the owner about a second later.
    pub fn owner_machine(&self) -> Option<&OwnerReference> {
        self.owner_references().iter().find(|owner| {
            owner.kind == machine::KIND
                && owner
                    .api_version
                    .strip_prefix(machine::GROUP)
                    .is_some_and(|version| version == "/v1beta1" || version == "/v1beta2")
        })
    }

    /// Conditions; empty while the provider has written none.
    pub fn conditions(&self) -> &[ForeignCondition] {
        self.status
            .as_ref()
            .map(|status| status.conditions.as_slice())
            .unwrap_or_default()
    }

    /// Condition `AgentReserved`, which both generations write.
    pub fn reserved_condition(&self) -> Option<&ForeignCondition> {
        find(self.conditions(), AGENT_RESERVED)
    }

    /// Condition `Ready`.
    pub fn ready_condition(&self) -> Option<&ForeignCondition> {
        find(self.conditions(), READY)
    }

    /// Whether condition `AgentReserved` reports that no Agent fits.
    pub fn is_waiting(&self) -> bool {
        self.reserved_condition()
            .is_some_and(|condition| condition.is_false_because(NO_SUITABLE_AGENTS))
    }

    /// Whether condition `Ready` reports that no Agent fits, without a condition `AgentReserved`. The older generation
    /// does this.
    pub fn is_waiting_legacy(&self) -> bool {
        self.reserved_condition().is_none()
            && self
                .ready_condition()
                .is_some_and(|condition| condition.is_false_because(NO_SUITABLE_AGENTS))
    }

    /// The error that prevents the provider from looking for an Agent. The text may be empty. `None` if there is no
    /// such error.
    pub fn search_error(&self) -> Option<&str> {
        let reserved = self.reserved_condition()?;
        reserved
            .is_false_because(AGENT_NOT_YET_FOUND)
            .then(|| reserved.message.as_deref().unwrap_or_default())
    }

    /// Agent that was claimed, if its reference has a name.
    pub fn agent_ref(&self) -> Option<&NamespacedName> {
        self.status
            .as_ref()
            .and_then(|status| status.agent_ref.as_ref())
            .filter(|agent| !agent.name.is_empty())
    }

    /// Whether the host is installed.
    pub fn is_ready(&self) -> bool {
        self.status.as_ref().and_then(|status| status.ready) == Some(true)
    }

    /// Whether the provider has accepted the owner Machine, which means that its finalizer is set.
    pub fn has_provider_finalizer(&self) -> bool {
        self.finalizers()
            .iter()
            .any(|name| name == PROVIDER_FINALIZER)
    }

    /// Whether it has the pause annotation, with any value.
    pub fn is_paused(&self) -> bool {
        self.annotations().contains_key(PAUSED_ANNOTATION)
    }

    /// Whether it is being deleted.
    pub fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// NodePool that it belongs to, as `(namespace, name)`.
    pub fn node_pool(&self) -> Option<(&str, &str)> {
        self.annotations()
            .get(NODE_POOL_ANNOTATION)?
            .split_once('/')
    }
}
