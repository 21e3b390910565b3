//! Kind `VsphereAgentPool`: hosts on vSphere for one HyperShift NodePool.
//!
//! Every name, type, default and limit is a contract with the objects in live clusters, which the predecessor defined.
//! `tests/wire/predecessor.rs` lists the few optional fields that were added later. Fields with a default in the schema
//! are `Option` here, and have a method of the same name that returns the default.

mod classes;
mod hosts;
mod iso;
mod nodes;
mod past;
mod reassign;
mod references;
mod release;
mod scaling;
mod status;
mod template;
mod vsphere;

pub use classes::{MAX_CLASSES, SizeClass};
pub use hosts::{ForeignAgentsStatus, HostsSpec};
pub use iso::{DEFAULT_RETAIN_VERSIONS, IsoSpec};
pub use nodes::{
    DEFAULT_KUBECONFIG_KEY, KubeconfigSecretRef, MAX_NODE_FINDINGS, NodeCheckSpec, NodeFinding,
    NodesStatus, StorageRulesStatus,
};
pub use past::{MAX_PAST_HOSTS, PAST_HOST_DAYS, PastHost};
pub use reassign::{MAX_REFUSALS, ReassignSpec, ReassignStatus};
pub use references::{
    CaBundleRef, CredentialsSecretRef, DEFAULT_CA_BUNDLE_KEY, InfraEnvRef, ObjectNameRef,
};
pub use release::{ReleasePolicy, ReleaseSpec, ReleasedDisk};
pub use scaling::{BufferWindow, DeletePolicy, ScalingSpec};
pub use status::{
    BufferStatus, ClassBuffer, HeldSecret, HostNetwork, ImageStatus, IsoHistoryEntry, IsoStatus,
    MAX_HOST_NETWORKS, MAX_OWNED_VM_ROWS, MAX_WAITING_ROWS, OwnedVm, PlannedAction,
    RefusedCredentials, SOURCE_DISCOVERED_AGENT, SOURCE_VSPHERE_AGENT, VM_SOURCES,
    VsphereAgentPoolStatus,
};
pub use template::{
    AgentSpec, DEFAULT_DISK_GIB, DEFAULT_MEMORY_MIB, DEFAULT_NUM_CPUS, DEFAULT_ROLE, TemplateSpec,
};
pub use vsphere::{
    DEFAULT_DATACENTER, DEFAULT_GUEST_ID, DEFAULT_NETWORK_ADAPTER_TYPE, DEFAULT_SCSI_TYPE,
    Firmware, VsphereSpec,
};

use crate::lenient::absent_is_default;
use crate::schema;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Default of `spec.iso.checkInterval`, a Go duration.
pub const DEFAULT_CHECK_INTERVAL: &str = "10m";

/// Which NodePool gets hosts, where its objects live, and what a host looks like.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
#[schemars(!default, !remote, transform = schema::no_nulls, extend("x-kubernetes-validations" = [
    {
        "rule": "has(self.nodePoolRef) == has(self.hostedClusterRef) && has(self.nodePoolRef) == has(self.controlPlaneNamespace)",
        "message": "nodePoolRef, hostedClusterRef and controlPlaneNamespace go together: set all three, or none for a pool that keeps hosts for its group",
    },
    {
        "rule": "has(self.nodePoolRef) || (has(self.reassign) && has(self.vsphere.folder) && !has(self.nodeCheck))",
        "message": "a pool without nodePoolRef needs reassign.group and vsphere.folder, and has no nodeCheck",
    },
    {
        "rule": "!has(self.classes) || self.classes.all(c, !c.labels.exists(k, k in self.agent.labels))",
        "message": "the labels of a class do not repeat keys of agent.labels: take the key out of agent.labels",
    },
    {
        "rule": "has(self.nodePoolRef) == has(oldSelf.nodePoolRef)",
        "message": "a pool cannot get or lose its nodePoolRef: make another pool",
    },
]))]
#[kube(
    group = "agent-forge.containeroo.ch",
    version = "v1alpha1",
    kind = "VsphereAgentPool",
    plural = "vsphereagentpools",
    singular = "vsphereagentpool",
    shortname = "vap",
    namespaced,
    status = "VsphereAgentPoolStatus",
    schema = "manual",
    derive = "Default",
    derive = "PartialEq",
    doc = "Hosts on vSphere, made and removed as the AgentMachines of one NodePool ask for them.",
    category = "agentforge",
    selectable = ".spec.nodePoolRef.name",
    selectable = ".spec.controlPlaneNamespace",
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].reason"}"#,
    printcolumn = r#"{"name":"Waiting","type":"integer","jsonPath":".status.waitingAgentMachines"}"#,
    printcolumn = r#"{"name":"Desired","type":"integer","jsonPath":".status.desiredReplicas"}"#,
    printcolumn = r#"{"name":"Agents","type":"integer","jsonPath":".status.matchingAgents"}"#,
    printcolumn = r#"{"name":"Bound","type":"integer","jsonPath":".status.boundAgents","priority":1}"#,
    printcolumn = r#"{"name":"Buffer","type":"integer","jsonPath":".status.buffer.ready","priority":1}"#,
    printcolumn = r#"{"name":"ISO","type":"string","jsonPath":".status.iso.sha256","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
pub struct VsphereAgentPoolSpec {
    /// HostedCluster that the hosts join. Absent in a pool that only keeps hosts for the other pools of its group: then
    /// `nodePoolRef` and `controlPlaneNamespace` are absent too.
    #[serde(skip_serializing_if = "ObjectNameRef::is_unnamed")]
    #[schemars(with = "Option<ObjectNameRef>")]
    pub hosted_cluster_ref: ObjectNameRef,
    /// NodePool whose AgentMachines are the demand. Absent: see `hostedClusterRef`.
    #[serde(skip_serializing_if = "ObjectNameRef::is_unnamed")]
    #[schemars(with = "Option<ObjectNameRef>")]
    pub node_pool_ref: ObjectNameRef,
    /// InfraEnv that offers the discovery ISO and in whose namespace the Agents appear.
    pub infra_env_ref: InfraEnvRef,
    /// Namespace of the hosted control plane: AgentMachines and Machines live there. Absent: see `hostedClusterRef`.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(with = "Option<String>", length(min = 1, max = 63), regex(pattern = schema::DNS_LABEL))]
    pub control_plane_namespace: String,
    /// Where the VMs stand and what kind of vSphere hardware they get.
    pub vsphere: VsphereSpec,
    /// Size of a VM.
    pub template: TemplateSpec,
    /// Other sizes of VMs, each with labels by which a NodePool chooses it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default, length(max = MAX_CLASSES), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub classes: Vec<SizeClass>,
    /// What an Agent is given before the provider may bind it.
    pub agent: AgentSpec,
    /// How the discovery ISO is kept on its datastore.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iso: Option<IsoSpec>,
    /// What happens to a VM and its unbound Agent when nothing needs them any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = CleanupPolicy::Delete))]
    pub cleanup_policy: Option<CleanupPolicy>,
    /// What happens to a VM that serves, or did, when somebody switches it off: `Report` (default) or `EnsureOn`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power: Option<PowerPolicy>,
    /// VMs are made before this time, and not switched on. RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_on_after: Option<Time>,
    /// How many VMs the pool may have, and how many hosts wait in its buffer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaling: Option<ScalingSpec>,
    /// What becomes of a host whose Machine is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<ReleaseSpec>,
    /// Pools with which this one shares its free hosts. None unless set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reassign: Option<ReassignSpec>,
    /// Hosts of the InfraEnv that are not VMs of agent-forge, such as bare metal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts: Option<HostsSpec>,
    /// Compares the Nodes of the hosted cluster with the VMs, and reports what does not fit. Not done unless set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_check: Option<NodeCheckSpec>,
    /// True: nothing is changed. `status.plannedActions` lists what would be done now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
}

absent_is_default!(VsphereAgentPoolSpec);

/// What happens to hosts that nothing needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CleanupPolicy {
    /// The VM is destroyed, then its Agent is deleted.
    #[default]
    Delete,
    /// Both stay; the Agent is taken out of selection, and a person decides.
    Retain,
}

/// What happens to a VM that serves, or did, when somebody switches it off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PowerPolicy {
    /// It is left off and reported.
    #[default]
    Report,
    /// It is switched on again, at most three times an hour.
    EnsureOn,
}

impl VsphereAgentPoolSpec {
    /// Power policy, `Report` unless set.
    pub fn power(&self) -> PowerPolicy {
        self.power.unwrap_or_default()
    }

    /// Cleanup policy, `Delete` unless set.
    pub fn cleanup_policy(&self) -> CleanupPolicy {
        self.cleanup_policy.unwrap_or_default()
    }

    /// The group of pools that lend each other hosts.
    pub fn group(&self) -> Option<&str> {
        let group = self.reassign.as_ref().map(|r| r.group.as_str());
        group.filter(|group| !group.is_empty())
    }

    /// Whether the pool only plans, `false` unless set.
    pub fn dry_run(&self) -> bool {
        self.dry_run.unwrap_or_default()
    }

    /// Whether a free host that is not a VM of agent-forge takes the place of a VM, `false` unless set.
    pub fn counts_foreign(&self) -> bool {
        let hosts = self.hosts.as_ref();
        hosts.and_then(|h| h.count_foreign).unwrap_or_default()
    }

    /// Path of the VM folder below the datacenter's VM folder: `spec.vsphere.folder`, else the
    /// HostedCluster's name.
    pub fn folder(&self) -> &str {
        match self.vsphere.folder.as_deref() {
            None | Some("") => &self.hosted_cluster_ref.name,
            Some(folder) => folder,
        }
    }

    /// Versions of the ISO to keep on the datastore, the current one included.
    pub fn retain_versions(&self) -> i32 {
        self.iso
            .as_ref()
            .map_or(DEFAULT_RETAIN_VERSIONS, IsoSpec::retain_versions)
    }

    /// How often the ISO's bytes are looked at, as written (a Go duration); `10m` unless set.
    /// A stored object may hold a text that is no duration.
    pub fn check_interval(&self) -> &str {
        match self
            .iso
            .as_ref()
            .and_then(|iso| iso.check_interval.as_deref())
        {
            None | Some("") => DEFAULT_CHECK_INTERVAL,
            Some(text) => text,
        }
    }
}

impl VsphereAgentPool {
    /// Whether AgentMachines can ask this pool for hosts. Without a NodePool it keeps hosts for the other pools of its group.
    pub fn has_node_pool(&self) -> bool {
        !self.spec.node_pool_ref.is_unnamed()
    }

    /// Namespace of the hosted control plane. The one of the pool itself, where no hosted cluster lives, in a pool without a
    /// NodePool.
    pub fn control_plane(&self) -> &str {
        match self.spec.control_plane_namespace.as_str() {
            "" => self.metadata.namespace.as_deref().unwrap_or_default(),
            namespace => namespace,
        }
    }

    /// Directory of ISOs on their datastore: `spec.iso.pathPrefix`, else
    /// `agent-forge/<namespace>/<name>`. As written: whether the path is safe is for the reader
    /// to check.
    pub fn iso_path_prefix(&self) -> Cow<'_, str> {
        match self
            .spec
            .iso
            .as_ref()
            .and_then(|iso| iso.path_prefix.as_deref())
        {
            None | Some("") => format!(
                "agent-forge/{}/{}",
                self.metadata.namespace.as_deref().unwrap_or_default(),
                self.metadata.name.as_deref().unwrap_or_default()
            )
            .into(),
            Some(prefix) => prefix.into(),
        }
    }

    /// Namespace of the credentials Secret: the one in the reference, else the pool's own.
    pub fn credentials_namespace(&self) -> &str {
        match self
            .spec
            .vsphere
            .credentials_secret_ref
            .namespace
            .as_deref()
        {
            None | Some("") => self.metadata.namespace.as_deref().unwrap_or_default(),
            Some(namespace) => namespace,
        }
    }
}

impl JsonSchema for VsphereAgentPool {
    fn schema_name() -> Cow<'static, str> {
        "VsphereAgentPool".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        schema::root(
            "Hosts on vSphere, made and removed as the AgentMachines of one HyperShift NodePool \
             ask for them.",
            &generator.subschema_for::<VsphereAgentPoolSpec>(),
            &generator.subschema_for::<VsphereAgentPoolStatus>(),
        )
    }
}
