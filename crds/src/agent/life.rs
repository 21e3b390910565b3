//! The lives of a VM: those that are over, and the way into the next one.

use crate::pool::ReleasedDisk;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How many past lives are kept, the last ones.
pub const MAX_LIVES: usize = 10;

/// How a VM comes to its next life. It is recorded before anything is done to the VM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct RecycleStatus {
    /// Number of the life that begins.
    #[schemars(range(min = 2))]
    pub generation: i32,
    /// When this was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// How many hours the operator has worked on making the VM ready, and could not. Time in which people hold or keep the VM
    /// does not count, nor does time in which no operator runs. After 24 hours the VM counts as one that cannot be made ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub hours_tried: Option<i32>,
    /// Why, in one word: `MachineGone`, or `GuestDead` where a deletion hook waits for the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// `status.debugInfo.state` of its Agent when the VM was made ready and had not been switched on yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_before: Option<String>,
    /// True once its Agent has shown since then that its guest started again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restarted: Option<bool>,
    /// When the guest had made the inventory that its Agent showed at that time, by the guest's clock. That inventory, or an
    /// earlier one, does not show that the guest is back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report_before: Option<Time>,
    /// Value of the label `osac.openshift.io/resource_class` that its Agent had. The operator takes the label off before it
    /// switches the VM off, and puts it back when the host is back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_class: Option<String>,
    /// UUID of the disk with which the VM begins that life, as 32 hexadecimal digits. Absent where the inventory of its Agent
    /// named that disk before. An Agent whose inventory names it has a guest that has started since.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[0-9a-f]{32}$"))]
    pub new_disk: Option<String>,
}

/// What became of the disks of a VM when it was last made ready for another life, as vCenter showed it then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct DiskStatus {
    /// Number of the life that they were made ready for.
    #[schemars(range(min = 2))]
    pub generation: i32,
    /// `Replace`: the VM began that life with a new, empty disk. `Keep`: with all disks that it had.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handling: Option<ReleasedDisk>,
    /// With `Keep`, whose data is on them: namespace of the control plane of the hosted cluster. Absent: unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_of: Option<String>,
}

/// A life of a VM that is over. It is recorded together with the way into the next one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct PastLife {
    /// Its number.
    #[schemars(range(min = 1))]
    pub generation: i32,
    /// When it began: the VM was first switched on, or made ready for that life.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// When the way into the next life was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// Name of the Machine that it served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Namespace of the control plane of the hosted cluster that it served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<String>,
    /// Name of the host in that life, which is the name of its Node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_name: Option<String>,
    /// Trace of that machine.
    #[serde(rename = "traceID", skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[0-9a-f]{32}$"))]
    pub trace_id: Option<String>,
}
