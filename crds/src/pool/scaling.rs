//! How many VMs a pool may have.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Limits of the number of VMs. What is not set has no limit. AgentMachines that exceed a limit wait, the youngest ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ScalingSpec {
    /// Most VMs of the pool. VMs that are being removed count until they are gone.
    #[serde(rename = "maxVMs", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10000))]
    pub max_vms: Option<i32>,
    /// Most VMs at once whose Agent has not registered yet. VMs that wait for a person do not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000))]
    pub max_provisioning: Option<i32>,
}
