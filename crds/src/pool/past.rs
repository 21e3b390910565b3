//! Hosts of a pool that are gone.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How many rows `status.pastHosts` has at most.
pub const MAX_PAST_HOSTS: usize = 50;
/// How many days a row is kept at most.
pub const PAST_HOST_DAYS: i64 = 30;

/// One life of the VM of a VsphereAgent that is gone or is being deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct PastHost {
    /// Namespace of the VsphereAgent.
    pub namespace: String,
    /// Name of the VsphereAgent.
    pub name: String,
    /// uid of the VsphereAgent.
    pub uid: String,
    /// Number of the life: how many Machines the VM had served by then, this one included.
    #[schemars(range(min = 1))]
    pub life: i32,
    /// Name of the VM in vCenter.
    pub vm_name: String,
    /// InfraEnv whose ISO the VM booted from, as `namespace/name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infra_env: Option<String>,
    /// Namespace of the control plane of the hosted cluster that the VM served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<String>,
    /// Name of the Machine that the VM served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// When that life began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// When it ended: the way into the next life was recorded, or the VsphereAgent was deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
}
