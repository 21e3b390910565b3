//! Status of a pool.

use super::{
    ForeignAgentsStatus, MAX_CLASSES, MAX_PAST_HOSTS, NodesStatus, PastHost, ReassignStatus,
};
use crate::WaitingOn;
use crate::conditions::{Phase, Reason};
use crate::schema;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Rows that the operator writes to `status.ownedVMs` at most; counts stay exact beyond it.
pub const MAX_OWNED_VM_ROWS: usize = 100;
/// Rows that the schema allows in `status.waitingOn`.
pub const MAX_WAITING_ROWS: usize = 100;

/// `source` of a VM for which a VsphereAgent stands.
pub const SOURCE_VSPHERE_AGENT: &str = "VsphereAgent";
/// `source` of a VM that the predecessor saw through an Agent and did not make: nobody deletes it.
pub const SOURCE_DISCOVERED_AGENT: &str = "DiscoveredAgent";
/// Every `source` that there is.
pub const VM_SOURCES: [&str; 2] = [SOURCE_VSPHERE_AGENT, SOURCE_DISCOVERED_AGENT];

/// What the operator saw and did for a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, transform = schema::no_nulls)]
pub struct VsphereAgentPoolStatus {
    /// Generation of the spec that the rest of the status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// AgentMachines seen: the number of hosts that the NodePool wants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired_replicas: Option<i32>,
    /// AgentMachines of the NodePool in `controlPlaneNamespace` that are not being deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_machines: Option<i32>,
    /// AgentMachines that say that no Agent suits them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_agent_machines: Option<i32>,
    /// AgentMachines that are not ready: waiting for an Agent, or installing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unready_agent_machines: Option<i32>,
    /// AgentMachines that are not ready and have no Agent. While there are any, free hosts stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_machines_without_agent: Option<i32>,
    /// Agents of this pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matching_agents: Option<i32>,
    /// Agents of this pool that serve a Machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound_agents: Option<i32>,
    /// Agents of this pool that serve no Machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_agents: Option<i32>,
    /// The buffer. Absent if it is empty and is to be empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer: Option<BufferStatus>,
    /// Hosts shared with other pools. Absent without `spec.reassign`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reassign: Option<ReassignStatus>,
    /// Hosts of the InfraEnv that are not VMs of agent-forge. Absent if there are none, or if they are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub foreign_agents: Option<ForeignAgentsStatus>,
    /// The Nodes of the hosted cluster. Absent without `spec.nodeCheck`, and while nothing is known of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<NodesStatus>,
    /// The discovery ISO on its datastore.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iso: Option<IsoStatus>,
    /// VMs of this pool, at most 100 rows; `VsphereAgent` objects are the full record.
    #[serde(rename = "ownedVMs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub owned_vms: Vec<OwnedVm>,
    /// Hosts that are gone, one row for each Machine that their VM served, the last one last. At most 50 rows, each for 30 days at
    /// most; the oldest ones go first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default, extend("maxItems" = MAX_PAST_HOSTS))]
    pub past_hosts: Vec<PastHost>,
    /// What the last pass decided to do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub planned_actions: Vec<PlannedAction>,
    /// Observations with their reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default, schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// True once the pool takes no new hosts because it is being deleted; never taken
    /// back.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "self || !oldSelf",
        "message": "closed can not be taken back",
    }]))]
    pub closed: Option<bool>,
    /// Secrets that are kept from deletion while this pool or its VMs need them, by the finalizer
    /// `agent-forge.containeroo.ch/pool-<uid of this pool>`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub held_secrets: Vec<HeldSecret>,
    /// The credentials that vCenter refused last, until it takes some: they are not tried again for 10 minutes, by
    /// whichever process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused_credentials: Option<RefusedCredentials>,
    /// Everything that does not happen now, with its reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default, extend("maxItems" = MAX_WAITING_ROWS))]
    pub waiting_on: Vec<WaitingOn>,
}

/// A Secret that the pool or its VMs need.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct HeldSecret {
    /// `metadata.name` of the Secret.
    pub name: String,
    /// `metadata.namespace` of the Secret.
    pub namespace: String,
    /// True once the finalizer was seen on it.
    pub held: bool,
}

/// Credentials that vCenter refused: which state of which Secret held them, and nothing of what is in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct RefusedCredentials {
    /// `user@host` that the refusal counts for, across all Secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// SHA-256 over certificate and instance UUID of the vCenter under that host name, as 64 hex digits. Names of one
    /// vCenter count as one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vcenter: Option<String>,
    /// When vCenter refused other credentials of the account, less than 10 minutes before these. Two refusals in that time
    /// hold the account back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub earlier_at: Option<Time>,
    /// When vCenter refused them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused_at: Option<Time>,
    /// `metadata.resourceVersion` of the Secret as it was read.
    pub secret_resource_version: String,
    /// `metadata.uid` of the Secret.
    #[serde(rename = "secretUID")]
    pub secret_uid: String,
}

/// The discovery ISO as it is on its datastore.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct IsoStatus {
    /// Address it was fetched from, without the token that opens it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// SHA-256 of its bytes, as 64 hex digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Path on the ISO datastore that new VMs are given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Size in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<i64>,
    /// When its bytes were last compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checked_at: Option<Time>,
    /// When it was uploaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uploaded_at: Option<Time>,
    /// Value of the annotation `agent-forge.containeroo.ch/force-iso-refresh` that was last acted on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub force_refresh_token: Option<String>,
    /// Versions on the datastore, newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub history: Vec<IsoHistoryEntry>,
    /// Digest of what identifies the source, without its token: equal key, equal ISO,
    /// even where the bytes differ on every download.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_key: Option<String>,
    /// InfraEnv that offered it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(default, schema_with = "schema::object_reference")]
    pub infra_env_ref: Option<ObjectReference>,
    /// What the InfraEnv put into it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageStatus>,
    /// Where the bytes lie, as `[datastore] path`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stored_path: Option<String>,
    /// Bytes fetched so far of a running transfer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub downloaded_bytes: Option<i64>,
    /// Bytes that a running transfer has in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub total_bytes: Option<i64>,
    /// Speed of a running transfer so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub bytes_per_second: Option<i64>,
    /// Seconds that a running transfer still takes at that speed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub eta_seconds: Option<i64>,
    /// True when the source was seen to send other bytes for the same InfraEnv, URL and
    /// `createdTime`: the ISO is then kept until one of these changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volatile: Option<bool>,
    /// `ETag` that the source gave the bytes. Only servers other than the assisted service's
    /// are asked for changes with it.
    #[serde(rename = "sourceETag", skip_serializing_if = "Option::is_none")]
    pub source_etag: Option<String>,
    /// `Last-Modified` that the source gave the bytes, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_last_modified: Option<String>,
    /// SHA-256 of the whole URL it was fetched from, as releases of the predecessor after 1.1.0 record it; kept for as long
    /// as the ISO is the one that they fetched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url_hash: Option<String>,
    /// `Last-Modified` that the predecessor was given with those bytes; kept likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_modified: Option<String>,
}

/// What an InfraEnv put into its ISO, and since which ISO that is so. Hosts of the buffer that booted from an earlier one are
/// replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ImageStatus {
    /// When the service made the ISO: `status.createdTime` of the InfraEnv.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<Time>,
    /// Digest of what all hosts get: proxy, certificates, SSH keys, time servers, version of the operating system, kernel
    /// arguments, Ignition changes, and which NMStateConfigs are chosen.
    pub content: String,
    /// When the first ISO with that content was made. Absent: no earlier content is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_since: Option<Time>,
    /// The NMStateConfigs in it, by MAC address. Absent where the InfraEnv chooses none, where they could not be read, or where
    /// there are more than 500.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxItems" = MAX_HOST_NETWORKS))]
    pub host_networks: Option<Vec<HostNetwork>>,
}

/// Most MAC addresses of NMStateConfigs that a pool's status records.
pub const MAX_HOST_NETWORKS: usize = 500;

/// The NMStateConfig of one card.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct HostNetwork {
    /// MAC address of the card.
    pub mac: String,
    /// Digest of its configuration. Empty: it had one in an earlier ISO.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(default)]
    pub config: String,
    /// When the first ISO with that configuration was made. Absent: no earlier one is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}

/// One version of the ISO on the datastore.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct IsoHistoryEntry {
    /// SHA-256 of its bytes, as 64 hex digits.
    pub sha256: String,
    /// Path on its datastore.
    pub path: String,
    /// Datastore that it is on: `spec.vsphere.isoDatastore`, or one that the pool has left since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub datastore: Option<String>,
    /// Size in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<i64>,
    /// When it was uploaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uploaded_at: Option<Time>,
    /// Where it was downloaded from; the token in it is redacted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// One step that a pass decided on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct PlannedAction {
    /// Kind of step: `DemandDeficit`, `DeleteVM`, `DeleteAgent`, `PatchAgent` or `Noop`. In a dry run also
    /// `PinAgentMachine`, `ChangeFinalizer`, `UploadISO` and `ChangeVM`.
    #[serde(rename = "type")]
    pub type_: String,
    /// VM or Agent that it concerns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Why it is needed, as a sentence.
    pub reason: String,
}

/// One VM of the pool, as its row in the pool's status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct OwnedVm {
    /// Name of the VM in vCenter.
    pub name: String,
    /// BIOS UUID of the VM, in vSphere's byte order.
    #[serde(rename = "biosUUID", skip_serializing_if = "Option::is_none")]
    pub bios_uuid: Option<String>,
    /// MAC address with hyphens. In an object that was taken over it may be a bridge of the guest,
    /// so it proves nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac_address: Option<String>,
    /// Agent that registered from the VM.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(default, schema_with = "schema::object_reference")]
    pub agent_ref: Option<ObjectReference>,
    /// Machine that the Agent serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(default, schema_with = "schema::object_reference")]
    pub machine_ref: Option<ObjectReference>,
    /// Where the VM stands: `Provisioning`, `Available`, `Bound`, `Released` or `Orphaned`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", default)]
    pub phase: Option<Phase>,
    /// Why it stands there, as one word for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub reason: Option<Reason>,
    /// When the phase last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// uid of the VsphereAgent that the VM's notes in vCenter name as its owner.
    #[serde(rename = "ownerUID", skip_serializing_if = "Option::is_none")]
    pub owner_uid: Option<String>,
    /// How the VM came to be on record.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = VM_SOURCES))]
    pub source: Option<String>,
    /// Class of the pool that it has (`spec.classes`). Absent: that of `spec.template`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
}

/// Hosts in the buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct BufferStatus {
    /// How many there are to be now.
    pub wanted: i32,
    /// How many an AgentMachine could get at once.
    pub ready: i32,
    /// How many are on their way.
    pub making: i32,
    /// How many of them are of each class of `spec.classes`. The others are of `spec.template`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default, extend("maxItems" = MAX_CLASSES))]
    pub classes: Vec<ClassBuffer>,
}

/// Hosts of one class in the buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ClassBuffer {
    /// Name of the class.
    pub name: String,
    /// How many there are to be now.
    pub wanted: i32,
    /// How many an AgentMachine could get at once.
    pub ready: i32,
    /// How many are on their way.
    pub making: i32,
}
