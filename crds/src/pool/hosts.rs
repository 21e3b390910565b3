//! Hosts of the pool's InfraEnv that are not VMs of agent-forge.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Hosts of the InfraEnv that are not VMs of agent-forge, such as bare metal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct HostsSpec {
    /// True: while a free one of them fits an AgentMachine, no VM is made for it. False (default): the agent provider has one
    /// minute to bind it, then a VM is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count_foreign: Option<bool>,
}

/// Counts of hosts that are not VMs of agent-forge. The operator never writes their Agents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ForeignAgentsStatus {
    /// All of them.
    pub total: i32,
    /// Those that the agent provider could bind now: approved, connected, validated, neither claimed nor reserved.
    pub free: i32,
    /// Physical machines without a BareMetalHost.
    pub bare_metal: i32,
    /// Machines that a BareMetalHost owns.
    pub bare_metal_hosts: i32,
    /// VMs of another hypervisor than vSphere.
    pub other_hypervisor: i32,
    /// VMs on vSphere that no VsphereAgent has on record.
    pub vsphere: i32,
    /// Hosts that OSAC has reserved for a cluster order, of any kind.
    #[serde(rename = "reservedByOSAC")]
    pub reserved_by_osac: i32,
    /// Hosts that have not reported their hardware.
    pub unknown: i32,
}
