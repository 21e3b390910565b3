//! `ByoMachine` and `ByoHost` of BYOH: a machine that asks for a host, and a host that somebody brings.
//!
//! Source of each fact: <https://github.com/vmware-tanzu/cluster-api-provider-bringyourownhost>, commit df816565.

use super::condition::{ForeignCondition, find};
use super::kind::foreign_kind;
use k8s_openapi::api::core::v1::ObjectReference;
use serde::{Deserialize, Serialize};

/// API group.
pub const GROUP: &str = "infrastructure.cluster.x-k8s.io";
/// Annotation on an installer config: version of Kubernetes for the host, as in `Machine.spec.version` before a `+`.
pub const K8S_VERSION_ANNOTATION: &str = "byoh.infrastructure.cluster.x-k8s.io/k8sversion";
/// Label on all objects of a Cluster: its name.
pub const CLUSTER_NAME_LABEL: &str = "cluster.x-k8s.io/cluster-name";
/// Condition of a ByoMachine: its host is a Node.
pub const BYO_HOST_READY: &str = "BYOHostReady";
/// Reason of [`BYO_HOST_READY`]: the ByoMachine has a host, and waits for the scripts.
pub const INSTALLATION_SECRET_NOT_AVAILABLE: &str = "InstallationSecretNotAvailable";

foreign_kind! {
    /// A machine that asks for a host.
    ByoMachine { spec: ByoMachineSpec, status: ByoMachineStatus }
    group: "infrastructure.cluster.x-k8s.io", version: "v1beta1", plural: "byomachines"
}

/// Nothing of it is read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByoMachineSpec {}

/// What the machine waits for, and what its host is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ByoMachineStatus {
    /// Its host. BYOH may write it one pass after the condition.
    #[serde(
        rename = "hostinfo",
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub host_info: Option<HostInfo>,
    /// Conditions.
    #[serde(
        deserialize_with = "crate::lenient::list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub conditions: Vec<ForeignCondition>,
}

/// What a host says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostInfo {
    /// Kind of the operating system, such as `linux`.
    #[serde(
        rename = "osname",
        deserialize_with = "crate::lenient::or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub os_name: String,
    /// The operating system with its version, such as `Ubuntu 22.04.4 LTS`.
    #[serde(
        rename = "osimage",
        deserialize_with = "crate::lenient::or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub os_image: String,
    /// Architecture as Go names it, such as `amd64`.
    #[serde(
        deserialize_with = "crate::lenient::or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub architecture: String,
}

impl ByoMachine {
    /// Whether it has a host and waits for the scripts.
    pub fn awaits_scripts(&self) -> bool {
        let conditions = self.status.as_ref().map(|s| s.conditions.as_slice());
        find(conditions.unwrap_or_default(), BYO_HOST_READY)
            .is_some_and(|c| c.is_false_because(INSTALLATION_SECRET_NOT_AVAILABLE))
    }

    /// Its host, once all of that is known.
    pub fn host_info(&self) -> Option<&HostInfo> {
        let info = self.status.as_ref()?.host_info.as_ref()?;
        let all = [&info.os_name, &info.os_image, &info.architecture];
        all.iter().all(|text| !text.is_empty()).then_some(info)
    }
}

foreign_kind! {
    /// A host that somebody brings. It may be in any namespace.
    ByoHost { spec: ByoHostSpec, status: ByoHostStatus }
    group: "infrastructure.cluster.x-k8s.io", version: "v1beta1", plural: "byohosts"
}

/// What the host is to do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ByoHostSpec {
    /// The Secret with the scripts. The host takes it off when it has left its machine.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub installation_secret: Option<ObjectReference>,
}

/// Nothing of it is read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByoHostStatus {}
