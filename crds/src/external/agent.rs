//! `Agent` of the assisted service: a host that booted the discovery ISO.

use super::NamespacedName;
use super::condition::{ForeignCondition, find};
use super::kind::foreign_kind;
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// API group.
pub const GROUP: &str = "agent-install.openshift.io";
/// Label with the name of the AgentMachine that claimed it. The provider sets it.
pub const AGENT_MACHINE_REF_LABEL: &str = "agentMachineRef";
/// Annotation with the namespace of the AgentMachine that claimed it.
pub const AGENT_MACHINE_REF_NAMESPACE_ANNOTATION: &str = "agentMachineRefNamespace";
/// Label with the name of the InfraEnv that it booted from.
pub const INFRA_ENV_LABEL: &str = "infraenvs.agent-install.openshift.io";
/// Label with the name of the BareMetalHost that owns it. The host is bare metal, whatever its inventory shows.
pub const BARE_METAL_HOST_LABEL: &str = "agent-install.openshift.io/bmh";
/// Label with which OSAC reserves it for one of its cluster orders, before any AgentMachine claims it.
pub const CLUSTER_ORDER_LABEL: &str = "osac.openshift.io/clusterorder";
/// Label with which OSAC offers it to its cluster orders. A person sets it, or the operator for its own VMs.
pub const RESOURCE_CLASS_LABEL: &str = "osac.openshift.io/resource_class";
/// Annotation with the whole inventory, as JSON. The service writes it before `status.inventory`, and empties it when the host
/// registers, is bound or is unbound.
pub const INVENTORY_ANNOTATION: &str = "agent.agent-install.openshift.io/inventory";
/// Annotation with which the service does not remove the Node from the hosted cluster before it goes on. Any value counts.
pub const SKIP_SPOKE_CLEANUP_ANNOTATION: &str =
    "agent.agent-install.openshift.io/skip-spoke-cleanup";
/// Annotation with the keys of `spec.nodeLabels` that the service took over from the InfraEnv, separated by commas. The service
/// writes their values again whenever they differ.
pub const INHERITED_NODE_LABELS_ANNOTATION: &str =
    "agent.agent-install.openshift.io/inherited-node-labels";
/// Condition: bound to a cluster.
pub const BOUND: &str = "Bound";
/// Condition: the host reports to the service.
pub const CONNECTED: &str = "Connected";
/// Condition: the host passes its checks.
pub const VALIDATED: &str = "Validated";
/// Condition: ready to install.
pub const REQUIREMENTS_MET: &str = "RequirementsMet";
/// Condition: the installation is complete.
pub const INSTALLED: &str = "Installed";
/// Condition: the spec reached the service.
pub const SPEC_SYNCED: &str = "SpecSynced";

foreign_kind! {
    /// One discovered host. Its name is the host id. On VMware that is the BIOS UUID in the guest's byte order.
    Agent { spec: AgentSpec, status: AgentStatus }
    group: "agent-install.openshift.io", version: "v1beta1", plural: "agents"
}

/// The wanted settings of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentSpec {
    /// Whether it may be used. Without approval the provider does not use the host.
    #[serde(deserialize_with = "crate::lenient::or_default")]
    pub approved: bool,
    /// Role. The service creates it empty.
    #[serde(deserialize_with = "crate::lenient::or_default")]
    pub role: String,
    /// Hostname. It must be set at the latest with the approval.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub hostname: Option<String>,
    /// ClusterDeployment that it is bound to.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub cluster_deployment_name: Option<NamespacedName>,
    /// Labels that its Node gets from the service once it is ready.
    #[serde(
        deserialize_with = "crate::lenient::string_map",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub node_labels: BTreeMap<String, String>,
}

/// The state of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentStatus {
    /// Hardware, once the host has reported it. It may be outdated.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub inventory: Option<Inventory>,
    /// State in the service's state machine.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub debug_info: Option<DebugInfo>,
    /// Progress of the installation.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub progress: Option<Progress>,
    /// The cluster that the host leaves, as long as its Node there is to be removed.
    #[serde(
        rename = "deprovision_info",
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub deprovision_info: Option<DeprovisionInfo>,
    /// Conditions.
    #[serde(
        deserialize_with = "crate::lenient::list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub conditions: Vec<ForeignCondition>,
}

/// The cluster that a host leaves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeprovisionInfo {
    /// Namespace of its ClusterDeployment, which is that of the control plane.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub cluster_namespace: Option<String>,
    /// Name of the Node.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub node_name: Option<String>,
}

/// Hardware as the host reported it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Inventory {
    /// The host's own hostname.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub hostname: Option<String>,
    /// Manufacturer of the machine.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub system_vendor: Option<SystemVendor>,
    /// Network interfaces in no fixed order, including bridges of the guest.
    #[serde(
        deserialize_with = "crate::lenient::list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub interfaces: Vec<Interface>,
    /// Disks.
    #[serde(
        deserialize_with = "crate::lenient::list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub disks: Vec<InventoryDisk>,
    /// When the host reported this. The service has never written it, so no decision reads it.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub report_time: Option<Time>,
}

/// Manufacturer of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SystemVendor {
    /// Serial number. On VMware: `VMware-` and the BIOS UUID in vSphere's byte order. May be empty.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub serial_number: Option<String>,
    /// Product, such as `VMware20,1`.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub product_name: Option<String>,
    /// Manufacturer, `VMware, Inc.` for a VM.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub manufacturer: Option<String>,
    /// Whether the guest saw that it runs in a VM, of whatever hypervisor. The service leaves it out if not.
    #[serde(
        rename = "virtual",
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub is_virtual: Option<bool>,
}

/// One network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Interface {
    /// Name in the guest.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub name: Option<String>,
    /// MAC address. Case and separators vary.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub mac_address: Option<String>,
}

/// One disk: the texts that may contain its UUID.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InventoryDisk {
    /// What the service knows it by: a path below `/dev/disk`.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub id: Option<String>,
    /// World wide name.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub wwn: Option<String>,
    /// Serial number.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub serial: Option<String>,
}

/// State in the service's state machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DebugInfo {
    /// The name of the state, such as `known-unbound`; empty if it is unknown.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub state: Option<String>,
    /// The service's sentence about that state.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub state_info: Option<String>,
}

/// Progress of the installation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Progress {
    /// The stage of the installation, such as `Joined` or `Done`.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub current_stage: Option<String>,
    /// When that stage was last reported.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub stage_update_time: Option<Time>,
}

impl Agent {
    /// Name of the AgentMachine that claimed it, from the label that the provider sets.
    pub fn claimed_by(&self) -> Option<&str> {
        self.labels()
            .get(AGENT_MACHINE_REF_LABEL)
            .map(String::as_str)
            .filter(|name| !name.is_empty())
    }

    /// Namespace of the AgentMachine that claimed it.
    pub fn claimed_by_namespace(&self) -> Option<&str> {
        self.annotations()
            .get(AGENT_MACHINE_REF_NAMESPACE_ANNOTATION)
            .map(String::as_str)
    }

    /// Cluster order that reserved it.
    pub fn cluster_order(&self) -> Option<&str> {
        let labels = self.labels();
        labels.get(CLUSTER_ORDER_LABEL).map(String::as_str)
    }

    /// Whether it is claimed, or bound to a cluster. Then it has the claim label of the provider or of a cluster order,
    /// or `spec.clusterDeploymentName`. A free Agent has none of them.
    pub fn is_claimed_or_bound(&self) -> bool {
        self.claimed_by().is_some()
            || self.cluster_order().is_some()
            || self.spec.cluster_deployment_name.is_some()
    }

    /// Whether the service took that key of `spec.nodeLabels` over from the InfraEnv, and keeps it.
    pub fn inherits_node_label(&self, key: &str) -> bool {
        let keys = self.annotations().get(INHERITED_NODE_LABELS_ANNOTATION);
        keys.is_some_and(|keys| keys.split(',').any(|k| k.trim() == key))
    }

    /// Whether a BareMetalHost owns it.
    pub fn is_bare_metal_host(&self) -> bool {
        self.labels().contains_key(BARE_METAL_HOST_LABEL)
    }

    /// uid of the owner InfraEnv with that name; `None` if there is no such owner.
    pub fn infra_env_uid(&self, name: &str) -> Option<&str> {
        let mut owners = self.owner_references().iter();
        let owner = owners.find(|o| o.kind == "InfraEnv" && o.name == name)?;
        Some(owner.uid.as_str()).filter(|uid| !uid.is_empty())
    }

    /// InfraEnv that it booted from.
    pub fn infra_env(&self) -> Option<&str> {
        self.labels().get(INFRA_ENV_LABEL).map(String::as_str)
    }

    /// Conditions; empty before the service has written any.
    pub fn conditions(&self) -> &[ForeignCondition] {
        self.status
            .as_ref()
            .map(|status| status.conditions.as_slice())
            .unwrap_or_default()
    }

    /// Condition with that type.
    pub fn condition(&self, type_: &str) -> Option<&ForeignCondition> {
        find(self.conditions(), type_)
    }

    /// Whether the provider would accept it for a claim, apart from its labels: approved, `Bound` False, `Connected`
    /// and `Validated` True.
    pub fn is_valid_for_claim(&self) -> bool {
        let holds = |type_| self.condition(type_).is_some_and(ForeignCondition::is_true);
        self.spec.approved
            && self
                .condition(BOUND)
                .is_some_and(ForeignCondition::is_false)
            && holds(CONNECTED)
            && holds(VALIDATED)
    }

    /// Whether the installation is complete.
    pub fn is_installed(&self) -> bool {
        self.condition(INSTALLED)
            .is_some_and(ForeignCondition::is_true)
    }

    /// Class that OSAC offers it as.
    pub fn resource_class(&self) -> Option<&str> {
        let labels = self.labels();
        labels.get(RESOURCE_CLASS_LABEL).map(String::as_str)
    }

    /// State in the service's state machine; empty if it is unknown.
    pub fn state(&self) -> &str {
        self.status
            .as_ref()
            .and_then(|status| status.debug_info.as_ref()?.state.as_deref())
            .unwrap_or_default()
    }

    /// The service's sentence about that state; empty if there is none.
    pub fn state_info(&self) -> &str {
        self.status
            .as_ref()
            .and_then(|status| status.debug_info.as_ref()?.state_info.as_deref())
            .unwrap_or_default()
    }

    /// Hardware, once the host has reported it.
    pub fn inventory(&self) -> Option<&Inventory> {
        self.status.as_ref()?.inventory.as_ref()
    }

    /// When the guest made the inventory that the Agent shows, by the guest's own clock. `None` if the service shows none, or
    /// the guest told no time.
    pub fn inventory_time(&self) -> Option<Time> {
        let text = self.annotations().get(INVENTORY_ANNOTATION)?;
        let read: serde_json::Value = serde_json::from_str(text).ok()?;
        let seconds = read.get("timestamp")?.as_i64()?;
        Timestamp::from_second(seconds).ok().map(Time)
    }

    /// Leaves of the annotation with the inventory what [`Self::inventory_time`] reads.
    pub fn trim_inventory(&mut self) {
        let seconds = self.inventory_time().map(|t| t.0.as_second());
        if let Some(text) = self.annotations_mut().get_mut(INVENTORY_ANNOTATION) {
            *text = seconds.map_or_else(String::new, |s| format!("{{\"timestamp\":{s}}}"));
        }
    }

    /// Stage of the installation.
    pub fn current_stage(&self) -> Option<&str> {
        self.status
            .as_ref()?
            .progress
            .as_ref()?
            .current_stage
            .as_deref()
    }

    /// When the stage of the installation was last reported. A boot of the discovery image reports none.
    pub fn stage_update_time(&self) -> Option<&Time> {
        let progress = self.status.as_ref()?.progress.as_ref()?;
        progress.stage_update_time.as_ref()
    }

    /// Whether it is being deleted.
    pub fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }
}
