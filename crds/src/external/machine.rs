//! `Machine` of Cluster API: only its metadata, in the version that the cluster serves.
//!
//! The operator only needs to know whether a Machine exists and whether it is being deleted. Both are in the metadata,
//! which is the same in all versions.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::core::{ApiResource, GroupVersionKind, PartialObjectMeta};

use super::agent_machine::{NODE_POOL_ANNOTATION, PAUSED_ANNOTATION};

/// API group.
pub const GROUP: &str = "cluster.x-k8s.io";
/// Kind.
pub const KIND: &str = "Machine";
/// Plural name in API paths.
pub const PLURAL: &str = "machines";
/// Annotation with which the agent provider delays a Machine's deletion.
pub const AGENT_HOOK_ANNOTATION: &str =
    "pre-terminate.delete.hook.machine.cluster.x-k8s.io/agentmachine";
/// Label with the name of the CAPI Cluster.
pub const CLUSTER_NAME_LABEL: &str = "cluster.x-k8s.io/cluster-name";

/// Version of the Machine API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MachineVersion {
    /// `v1beta1`, served by every HyperShift so far.
    V1Beta1,
    /// `v1beta2`, served by newer ones.
    V1Beta2,
}

impl MachineVersion {
    /// All versions, the newest first: the order in which a served version is looked for.
    pub const NEWEST_FIRST: [Self; 2] = [Self::V1Beta2, Self::V1Beta1];

    /// The word in `apiVersion`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V1Beta1 => "v1beta1",
            Self::V1Beta2 => "v1beta2",
        }
    }

    /// `apiVersion` of a Machine in this version.
    pub fn api_version(self) -> String {
        format!("{GROUP}/{}", self.as_str())
    }

    /// The resource with which a dynamic client addresses Machines in this version.
    pub fn api_resource(self) -> ApiResource {
        ApiResource::from_gvk_with_plural(
            &GroupVersionKind::gvk(GROUP, self.as_str(), KIND),
            PLURAL,
        )
    }
}

/// The metadata of one Machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineMeta {
    /// Standard metadata.
    pub metadata: ObjectMeta,
}

impl<K> From<PartialObjectMeta<K>> for MachineMeta {
    fn from(partial: PartialObjectMeta<K>) -> Self {
        Self {
            metadata: partial.metadata,
        }
    }
}

impl From<ObjectMeta> for MachineMeta {
    fn from(metadata: ObjectMeta) -> Self {
        Self { metadata }
    }
}

impl MachineMeta {
    /// `metadata.name`; empty if it is missing.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// `metadata.namespace`; empty if it is missing.
    pub fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// `metadata.uid`.
    pub fn uid(&self) -> Option<&str> {
        self.metadata.uid.as_deref()
    }

    /// Whether it is being deleted. From then on its Agent must be fenced.
    pub fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Whether the agent provider delays its deletion.
    pub fn has_agent_hook(&self) -> bool {
        self.annotation(AGENT_HOOK_ANNOTATION).is_some()
    }

    /// Whether it has the pause annotation, with any value.
    pub fn is_paused(&self) -> bool {
        self.annotation(PAUSED_ANNOTATION).is_some()
    }

    /// NodePool that it belongs to, as `(namespace, name)`.
    pub fn node_pool(&self) -> Option<(&str, &str)> {
        self.annotation(NODE_POOL_ANNOTATION)?.split_once('/')
    }

    /// Whether an owner reference means this Machine, by uid.
    pub fn is_owner(&self, owner: &OwnerReference) -> bool {
        owner.kind == KIND && self.uid() == Some(owner.uid.as_str())
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata
            .annotations
            .as_ref()?
            .get(key)
            .map(String::as_str)
    }
}
