//! The check of the hosted cluster's Nodes against the VMs.

use crate::schema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Key of a [`KubeconfigSecretRef`] that names none.
pub const DEFAULT_KUBECONFIG_KEY: &str = "kubeconfig";
/// How many findings [`NodesStatus::findings`] lists.
pub const MAX_NODE_FINDINGS: usize = 10;

/// Compares the Nodes of the hosted cluster with the VMs. It only reports: nothing else depends on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct NodeCheckSpec {
    /// Secret with a kubeconfig that may list the Nodes of the hosted cluster.
    pub kubeconfig_secret_ref: KubeconfigSecretRef,
}

/// Names the Secret with a kubeconfig.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct KubeconfigSecretRef {
    /// `metadata.name` of the Secret.
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::DNS_SUBDOMAIN))]
    pub name: String,
    /// `metadata.namespace` of the Secret. Empty: the pool's own. A Secret in any other namespace has to admit the pool, as one
    /// with credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), regex(pattern = schema::DNS_LABEL_OR_EMPTY))]
    pub namespace: Option<String>,
    /// Key in its `data`, whose value is the kubeconfig. Empty: `kubeconfig`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = r"^[-._a-zA-Z0-9]*$"))]
    pub key: Option<String>,
}

impl KubeconfigSecretRef {
    /// The key that counts.
    pub fn key(&self) -> &str {
        let named = self.key.as_deref().filter(|k| !k.is_empty());
        named.unwrap_or(DEFAULT_KUBECONFIG_KEY)
    }
}

/// The Nodes of the hosted cluster, as they fit to the VMs. Absent while that is unknown: condition `NodesConsistent` has the
/// reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct NodesStatus {
    /// Nodes on VMs of agent-forge.
    #[schemars(range(min = 0))]
    pub ours: i32,
    /// Nodes on other VMs of vSphere.
    #[schemars(range(min = 0))]
    pub foreign: i32,
    /// Nodes that are not on vSphere, such as bare metal.
    #[schemars(range(min = 0))]
    pub ignored: i32,
    /// Nodes of which it is not known what they run on.
    #[schemars(range(min = 0))]
    pub unknown: i32,
    /// What the storage of OpenShift takes for vSphere.
    pub storage: StorageRulesStatus,
    /// How many findings there are, also those that the list leaves out.
    #[schemars(range(min = 0))]
    pub finding_count: i32,
    /// What does not fit together, at most ten rows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default, extend("maxItems" = MAX_NODE_FINDINGS))]
    pub findings: Vec<NodeFinding>,
}

/// How many Nodes each rule of OpenShift takes for vSphere. The vSphere CSI operator of the hosted cluster looks for the VM of
/// each of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct StorageRulesStatus {
    /// By the label `node.openshift.io/platform-type=vsphere`: the CSI operator with the gate `VSphereMixedNodeEnv`.
    #[schemars(range(min = 0))]
    pub by_label: i32,
    /// By the provider id `vsphere://`: the CSI operator without that gate.
    #[serde(rename = "byProviderID")]
    #[schemars(range(min = 0))]
    pub by_provider_id: i32,
    /// By provider id and instance type: the enhancement for mixed Nodes.
    #[schemars(range(min = 0))]
    pub by_both_signs: i32,
    /// Only one of those two signs is there: that enhancement does not tell what they are.
    #[schemars(range(min = 0))]
    pub by_one_sign: i32,
}

/// One thing that does not fit together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct NodeFinding {
    /// `NodeWithoutVM`, `NodeWithoutAgent`, `VMWithoutNode`, `TwoNodesOnOneVM`, `UUIDMismatch` or `OldHardwareVersion`.
    pub kind: String,
    /// The Node, if the finding is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The VsphereAgent of the VM, if the finding is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vm: Option<String>,
    /// One sentence.
    pub message: String,
}
