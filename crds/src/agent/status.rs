//! Status of one VM: its identity and place, which are recorded before the first write to vCenter; and its further
//! history.

use super::hardware::{HardwareDifference, VmTemplate};
use super::life::{DiskStatus, MAX_LIVES, PastLife, RecycleStatus};
use super::timeline::{MAX_TIMELINE_ROWS, Milestone};
use crate::WaitingOn;
use crate::conditions::{Phase, Reason};
use crate::pool::{CleanupPolicy, CredentialsSecretRef, MAX_WAITING_ROWS, OwnedVm, VM_SOURCES};
use crate::schema;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the operator recorded about one VM.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, transform = schema::no_nulls)]
pub struct VsphereAgentStatus {
    /// Generation of the spec that the rest of the status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The VM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vm: Option<VmStatus>,
    /// Observations with their reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default, schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// Identity of the cluster under which the VM was made; part of the VM's marker in
    /// vCenter, so it never changes.
    #[serde(rename = "clusterID", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "self == oldSelf",
        "message": "clusterID is part of the VM's identity and can not change",
    }]))]
    pub cluster_id: Option<String>,
    /// Everything that does not happen now, with its reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default, extend("maxItems" = MAX_WAITING_ROWS))]
    pub waiting_on: Vec<WaitingOn>,
    /// Trace of the machine, by which a tracing backend finds everything that was done for it.
    #[serde(rename = "traceID", skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[0-9a-f]{32}$"))]
    pub trace_id: Option<String>,
    /// What happened to the machine, and when.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default, extend("maxItems" = MAX_TIMELINE_ROWS))]
    pub timeline: Vec<Milestone>,
    /// Cleanup policy of the pool as last seen; it holds where the pool is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cleanup_policy: Option<CleanupPolicy>,
    /// The last VM that was given up, and what vCenter showed of it. Its Agent did not register in time or was lost before
    /// it served, a person asked for another VM, or the pool's template changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<Failure>,
    /// A drive that the predecessor was emptying when it was replaced; it is finished, and taken off. Ours records none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iso_ejection: Option<IsoEjection>,
}

/// One drive that is being emptied, as releases of the predecessor after 1.1.0 record it before they do so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct IsoEjection {
    /// Name of the VM in vCenter.
    pub vm_name: String,
    /// BIOS UUID of the VM.
    #[serde(rename = "biosUUID")]
    pub bios_uuid: String,
    /// uid of the VsphereAgent that the VM's notes name.
    #[serde(rename = "ownerUID", skip_serializing_if = "Option::is_none")]
    pub owner_uid: Option<String>,
    /// Name of the datacenter.
    pub datacenter: String,
    /// Key of the drive.
    pub device_key: i64,
    /// ISO that is taken out, as `[datastore] path`.
    pub iso_path: String,
    /// When it was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// True from the moment before vCenter was asked to disconnect the drive. Before that nothing is under way.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schemars(default)]
    pub disconnect_started: bool,
    /// Question of the VM that was about to be answered.
    #[serde(rename = "questionID", skip_serializing_if = "Option::is_none")]
    pub question_id: Option<String>,
}

/// A VM that was given up before it served: evidence for people, and the proof that it may go.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct Failure {
    /// Attempt that was given up.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub attempt: Option<i32>,
    /// InfraEnv whose ISO it booted from.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(default, schema_with = "schema::object_reference")]
    pub infra_env_ref: Option<ObjectReference>,
    /// How many VMs that booted from the ISO of that InfraEnv were given up in a row, this one included.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub count: Option<i32>,
    /// How far it came: `NotRunning`, `NoGuest`, `NoAddress` or `NotRegistered`; `AgentDisconnected`, `AgentInsufficient`,
    /// `AgentWithoutInventory` or `AgentGone` where its Agent had registered; `Asked` where a person asked for another VM;
    /// `TemplateChanged` where the pool wants other hardware.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// When it was given up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
    /// BIOS UUID that it had.
    #[serde(rename = "biosUUID", skip_serializing_if = "Option::is_none")]
    pub bios_uuid: Option<String>,
    /// Managed object id that it had.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moref: Option<String>,
    /// Power state then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_state: Option<String>,
    /// State of VMware Tools then, as on the wire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools_status: Option<String>,
    /// Address of the guest then, as VMware Tools reported it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest_address: Option<String>,
    /// Host name of the guest then, as VMware Tools reported it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest_host_name: Option<String>,
}

/// One VM: what its row in the pool's status shows, and what it takes to find it again in vCenter
/// without the pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct VmStatus {
    /// Name of the VM in vCenter.
    pub name: String,
    /// BIOS UUID of the VM, in vSphere's byte order. Chosen before the VM is made.
    #[serde(rename = "biosUUID", skip_serializing_if = "Option::is_none")]
    pub bios_uuid: Option<String>,
    /// MAC address with hyphens. In an object that was taken over it may be a bridge of the guest,
    /// so it proves nothing; see `macAddresses`.
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
    /// uid of the VsphereAgent that the VM's notes in vCenter name as its owner, as the predecessor's 1.1.0 reads it.
    #[serde(rename = "ownerUID", skip_serializing_if = "Option::is_none")]
    pub owner_uid: Option<String>,
    /// How the VM came to be on record. One that was only seen through its Agent is never touched.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = VM_SOURCES))]
    pub source: Option<String>,

    /// Which VM in a row this is for its request; rises only after the one before it was
    /// proven absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1), extend("x-kubernetes-validations" = [{
        "rule": "self >= oldSelf",
        "message": "attempt can not go back",
    }]))]
    pub attempt: Option<i32>,
    /// Managed object id that vCenter gave the VM, such as `vm-66`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moref: Option<String>,
    /// Instance UUID that vCenter gave the VM; tells it from a clone.
    #[serde(rename = "instanceUUID", skip_serializing_if = "Option::is_none")]
    pub instance_uuid: Option<String>,
    /// vCenter task that is running for the VM.
    #[serde(rename = "taskID", skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    /// MAC addresses of the VM's network cards as vCenter shows them, lower-case with
    /// colons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default, inner(regex(pattern = "^[0-9a-f]{2}(:[0-9a-f]{2}){5}$")))]
    pub mac_addresses: Vec<String>,
    /// Secret that opens the vCenter where the VM stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials_ref: Option<CredentialsSecretRef>,
    /// Address of the vCenter where the VM stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// `about.instanceUuid` of that vCenter, which it keeps when its address changes. The recorded Secret may lead to it under
    /// another address, and never to another vCenter.
    #[serde(rename = "serverInstanceUUID", skip_serializing_if = "Option::is_none")]
    pub server_instance_uuid: Option<String>,
    /// Path of the VM's configuration file, as `[datastore] directory/name.vmx`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vm_path: Option<String>,
    /// Power state as vCenter shows it: `poweredOn`, `poweredOff` or `suspended`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_state: Option<String>,
    /// True once the CD-ROM drive was emptied after the installation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iso_ejected: Option<bool>,
    /// True while tags of `spec.vsphere.vmTags` could not be attached to the VM; recorded before the VM
    /// is switched on without them. They are tried again until they are attached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags_missing: Option<bool>,
    /// InfraEnv whose ISO the VM boots from, as it was before the VM was made. Only an Agent of that InfraEnv can be the
    /// VM's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(default, schema_with = "schema::object_reference")]
    pub infra_env_ref: Option<ObjectReference>,
    /// When the service made the ISO that the VM booted from in its present life. Absent where an older release made the VM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iso_created: Option<Time>,
    /// When this VM was first switched on, or a moment before that; a later start does not move it. An Agent that was
    /// created more than five minutes earlier is not the VM's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_powered_on: Option<Time>,
    /// When the VM is replaced if its Agent has not registered by then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discovery_deadline: Option<Time>,
    /// True once an Agent of this VM was bound in its present life; nothing takes that back for as long as that life lasts.
    /// Nothing but a Machine that is proven gone, or a person, ends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub served: Option<bool>,
    /// True once VMware Tools reported a name and an address of a guest that the operator did not switch on in that life.
    /// It may be a node whose Agent is missing. A reboot, or Tools that stop, do not take that back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest_may_be_node: Option<bool>,
    /// What the VM says in vCenter of its guest, as it was last seen there (`extraConfig` key `agent-forge.may-serve`):
    /// `<life>/<uid of the AgentMachine that may have the host>`, or `<life>/no`. An Agent is prepared for an AgentMachine only
    /// after that. Absent: unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub may_serve: Option<String>,
    /// True while the AgentMachine carries the pause annotation, and from then on where it went like that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_machine_paused: Option<bool>,
    /// True where the Machine went and its Agent was not unbound, as where a paused AgentMachine is deleted: the VM may be
    /// a node of another hub. It stays until its Agent is seen unbound, or until it is deleted with the annotation
    /// `force-delete`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_vanished_paused: Option<bool>,
    /// True while an administrator of vCenter pauses the VM with the `extraConfig` key `agent-forge.pause`.
    #[serde(rename = "pausedInVCenter", skip_serializing_if = "Option::is_none")]
    pub paused_in_vcenter: Option<bool>,
    /// True while an administrator of vCenter keeps the VM with the `extraConfig` key `agent-forge.skip-delete`.
    #[serde(
        rename = "skipDeleteInVCenter",
        skip_serializing_if = "Option::is_none"
    )]
    pub skip_delete_in_vcenter: Option<bool>,
    /// When the operator switched the VM on because somebody had switched it off, within the last hour.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub switched_on_again: Vec<Time>,
    /// The last reset of the VM after its guest booted the discovery ISO although it should boot its disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_repair: Option<BootRepair>,
    /// Since when the Agent, which registered and serves nobody, is disconnected or gone. The VM is replaced when that
    /// has lasted for the discovery timeout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_lost_since: Option<Time>,
    /// AgentMachine that the VM was made for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(default, schema_with = "schema::object_reference")]
    pub agent_machine_ref: Option<ObjectReference>,
    /// Where the VM stands, decided once and before it is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// Hardware that the VM was made with, recorded before it was made. Absent where that is unknown: the predecessor or an
    /// older release made the VM, or its status was lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<VmTemplate>,
    /// What differed from `template` when the VM was last looked at: somebody has changed it in vCenter.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default, extend("maxItems" = MAX_DIFFERENCES))]
    pub hardware_drift: Vec<HardwareDifference>,
    /// Hardware version of the VM when it was last looked at: 19 for `vmx-19`. Absent where vCenter did not show it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub hardware_version: Option<i32>,
    /// ESXi host on which the VM was when it was last looked at: its name, or its id (`host-12`) where the vCenter user may not
    /// read the name.
    #[serde(rename = "esxiHost", skip_serializing_if = "Option::is_none")]
    pub esxi_host: Option<String>,
    /// Storage that the VM used when it was last looked at, in GiB, rounded up. A change of less than 10 % or of less than 1 GiB
    /// is not recorded.
    #[serde(rename = "usedStorageGiB", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub used_storage_gib: Option<i32>,
    /// True if the VM had a snapshot when it was last looked at. A snapshot grows, and while there is one, the disk cannot be
    /// replaced when the host is recycled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub has_snapshot: Option<bool>,
    /// Number of the VM's present life: how many Machines it served, or is to serve. Absent in its first life.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2))]
    pub generation: Option<i32>,
    /// When that life began. Absent in its first life.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation_since: Option<Time>,
    /// The attempt in the annotation `replace` when that life began: it was about an earlier life, and asks for nothing in this
    /// one. Absent once the annotation is taken off or changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub replace_ignored: Option<i32>,
    /// The VM is being made ready for another life. It ends when its Agent is back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recycle: Option<RecycleStatus>,
    /// What became of its disks when it was last made ready for another life. Absent in its first life, and where an older
    /// release made it ready: then it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskStatus>,
    /// The lives of the VM that are over, the last one last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default, extend("maxItems" = MAX_LIVES))]
    pub lives: Vec<PastLife>,
    /// The VsphereAgent that had the VM before, if a release before 1.0 moved it here. Absent if this one made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken_from: Option<TakenFrom>,
}

/// The VsphereAgent of another pool that had the VM before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct TakenFrom {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Which of its VMs.
    #[schemars(range(min = 1))]
    pub attempt: i32,
    /// True once the VM's mark in vCenter was seen to name this VsphereAgent. Before that the VM is not its own. False until the
    /// operator begins to change the mark. Until then it can let go of the VM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stamped: Option<bool>,
}

/// More than a VM has fields that are compared.
const MAX_DIFFERENCES: usize = 32;

/// A reset of a VM so that its guest boots from its disk. It is recorded before vCenter is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct BootRepair {
    /// How many resets were recorded in the present life of this VM, this one included. There are two at most.
    #[schemars(range(min = 0))]
    pub count: i32,
    /// When it was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,
    /// `status.progress.stageUpdateTime` of the Agent then. It tells one occurrence from the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_updated_at: Option<Time>,
}

/// Where a VM stands in vCenter: names for people, managed object ids (`…Ref`) for calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct Placement {
    /// Name of the datacenter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub datacenter: Option<String>,
    /// Id of the datacenter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub datacenter_ref: Option<String>,
    /// Path of the VM folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// Id of the VM folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder_ref: Option<String>,
    /// Path of the resource pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_pool: Option<String>,
    /// Id of the resource pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_pool_ref: Option<String>,
    /// Name of the datastore that holds the VM's files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub datastore: Option<String>,
    /// Id of the datastore.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub datastore_ref: Option<String>,
    /// Name of the host, where the operator had to choose one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Id of the host, where the operator had to choose one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_ref: Option<String>,
    /// Name of the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
}

impl VmStatus {
    /// The VM's row in its pool's `status.ownedVMs`: the fields that both kinds share.
    pub fn to_owned_vm(&self) -> OwnedVm {
        OwnedVm {
            name: self.name.clone(),
            bios_uuid: self.bios_uuid.clone(),
            mac_address: self.mac_address.clone(),
            agent_ref: self.agent_ref.clone(),
            machine_ref: self.machine_ref.clone(),
            phase: self.phase.clone(),
            reason: self.reason.clone(),
            last_transition_time: self.last_transition_time.clone(),
            owner_uid: self.owner_uid.clone(),
            source: self.source.clone(),
            class: None,
        }
    }
}
