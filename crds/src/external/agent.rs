//! `Agent` of the assisted service: a host that booted the discovery ISO.

use super::NamespacedName;
use super::condition::{ForeignCondition, find};
use super::kind::foreign_kind;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};

/// API group.
pub const GROUP: &str = "agent-install.openshift.io";
/// Label with the name of the AgentMachine that claimed it, set by the provider (§1.2).
pub const AGENT_MACHINE_REF_LABEL: &str = "agentMachineRef";
/// Annotation with the namespace of the AgentMachine that claimed it (§1.2).
pub const AGENT_MACHINE_REF_NAMESPACE_ANNOTATION: &str = "agentMachineRefNamespace";
/// Label with the name of the InfraEnv it booted from (§3.5).
pub const INFRA_ENV_LABEL: &str = "infraenvs.agent-install.openshift.io";
/// Label with the name of the BareMetalHost that owns it: it runs on bare metal, whatever its inventory says.
pub const BARE_METAL_HOST_LABEL: &str = "agent-install.openshift.io/bmh";
/// Label by which OSAC reserves it for one of its cluster orders, before any AgentMachine claims it.
pub const CLUSTER_ORDER_LABEL: &str = "osac.openshift.io/clusterorder";
/// Annotation that lets a deletion skip removing the Node from the hosted cluster (§3.5).
pub const SKIP_SPOKE_CLEANUP_ANNOTATION: &str =
    "agent.agent-install.openshift.io/skip-spoke-cleanup";
/// Condition: bound to a cluster (§3.4).
pub const BOUND: &str = "Bound";
/// Condition: the host reports (§3.4).
pub const CONNECTED: &str = "Connected";
/// Condition: the host passes its checks (§3.4).
pub const VALIDATED: &str = "Validated";
/// Condition: ready to install (§3.4).
pub const REQUIREMENTS_MET: &str = "RequirementsMet";
/// Condition: installation is complete (§3.4).
pub const INSTALLED: &str = "Installed";
/// Condition: the spec reached the service (§3.4).
pub const SPEC_SYNCED: &str = "SpecSynced";

foreign_kind! {
    /// One discovered host. Its name is the host id, which on VMware is the BIOS UUID in the
    /// guest's byte order (§0.3).
    Agent { spec: AgentSpec, status: AgentStatus }
    group: "agent-install.openshift.io", version: "v1beta1", plural: "agents"
}

/// What the host shall be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentSpec {
    /// Whether it may be used; without it the provider leaves the host alone (§1.5).
    #[serde(deserialize_with = "crate::lenient::or_default")]
    pub approved: bool,
    /// Role; the service creates it empty (§3.1).
    #[serde(deserialize_with = "crate::lenient::or_default")]
    pub role: String,
    /// Hostname, to be set no later than approval (§0.6).
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub hostname: Option<String>,
    /// ClusterDeployment that it is bound to (§1.5, §1.8).
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub cluster_deployment_name: Option<NamespacedName>,
}

/// What the host is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentStatus {
    /// Hardware, from the host's first report on; may be stale (§3.2).
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub inventory: Option<Inventory>,
    /// State of the service's state machine.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub debug_info: Option<DebugInfo>,
    /// How far the installation is.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub progress: Option<Progress>,
    /// Conditions (§3.4).
    #[serde(
        deserialize_with = "crate::lenient::list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub conditions: Vec<ForeignCondition>,
}

/// Hardware as the host reported it (§3.2).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Inventory {
    /// Hostname that the host has on its own.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub hostname: Option<String>,
    /// Who made the machine.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub system_vendor: Option<SystemVendor>,
    /// Network interfaces in no stable order, bridges of the guest included (§3.6).
    #[serde(
        deserialize_with = "crate::lenient::list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub interfaces: Vec<Interface>,
}

/// Who made the machine (§3.6).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SystemVendor {
    /// Serial number, on VMware `VMware-` and the BIOS UUID in vSphere's byte order; may be empty.
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
    /// Maker, `VMware, Inc.` for a VM.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub manufacturer: Option<String>,
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
    /// MAC address; case and separators vary (§3.6).
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub mac_address: Option<String>,
}

/// State of the service's state machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DebugInfo {
    /// One of the words of §3.3; empty when unknown.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub state: Option<String>,
}

/// How far the installation is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Progress {
    /// One of the stages of §3.3, such as `Joined` or `Done`.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub current_stage: Option<String>,
}

impl Agent {
    /// Name of the AgentMachine that claimed it: the label that the provider sets (§1.2).
    pub fn claimed_by(&self) -> Option<&str> {
        self.labels()
            .get(AGENT_MACHINE_REF_LABEL)
            .map(String::as_str)
            .filter(|name| !name.is_empty())
    }

    /// Namespace of the AgentMachine that claimed it (§1.2).
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

    /// Whether somebody claimed it or it is bound to a cluster: it carries the claim label of the provider or of a cluster
    /// order, or `spec.clusterDeploymentName` (§1.6). All are absent only on a free Agent.
    pub fn is_claimed_or_bound(&self) -> bool {
        self.claimed_by().is_some()
            || self.cluster_order().is_some()
            || self.spec.cluster_deployment_name.is_some()
    }

    /// Whether a BareMetalHost owns it.
    pub fn is_bare_metal_host(&self) -> bool {
        self.labels().contains_key(BARE_METAL_HOST_LABEL)
    }

    /// uid of the InfraEnv of that name that owns it; `None` where it does not say.
    pub fn infra_env_uid(&self, name: &str) -> Option<&str> {
        let mut owners = self.owner_references().iter();
        let owner = owners.find(|o| o.kind == "InfraEnv" && o.name == name)?;
        Some(owner.uid.as_str()).filter(|uid| !uid.is_empty())
    }

    /// InfraEnv it booted from (§3.5).
    pub fn infra_env(&self) -> Option<&str> {
        self.labels().get(INFRA_ENV_LABEL).map(String::as_str)
    }

    /// Conditions; none before the service wrote any.
    pub fn conditions(&self) -> &[ForeignCondition] {
        self.status
            .as_ref()
            .map(|status| status.conditions.as_slice())
            .unwrap_or_default()
    }

    /// Condition of that type.
    pub fn condition(&self, type_: &str) -> Option<&ForeignCondition> {
        find(self.conditions(), type_)
    }

    /// Whether the provider would take it for a claim, labels aside: approved, `Bound` False,
    /// `Connected` and `Validated` True (§1.5).
    pub fn is_valid_for_claim(&self) -> bool {
        let holds = |type_| self.condition(type_).is_some_and(ForeignCondition::is_true);
        self.spec.approved
            && self
                .condition(BOUND)
                .is_some_and(ForeignCondition::is_false)
            && holds(CONNECTED)
            && holds(VALIDATED)
    }

    /// Whether installation is complete (§3.4).
    pub fn is_installed(&self) -> bool {
        self.condition(INSTALLED)
            .is_some_and(ForeignCondition::is_true)
    }

    /// State of the service's state machine, empty when unknown (§3.3).
    pub fn state(&self) -> &str {
        self.status
            .as_ref()
            .and_then(|status| status.debug_info.as_ref()?.state.as_deref())
            .unwrap_or_default()
    }

    /// Hardware, once the host reported it (§3.6).
    pub fn inventory(&self) -> Option<&Inventory> {
        self.status.as_ref()?.inventory.as_ref()
    }

    /// Stage of the installation (§3.3).
    pub fn current_stage(&self) -> Option<&str> {
        self.status
            .as_ref()?
            .progress
            .as_ref()?
            .current_stage
            .as_deref()
    }

    /// Whether it is being deleted.
    pub fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }
}
