//! What a pool asks of the VM of a VsphereAgent.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How many earlier AgentMachines of a host are kept, the last ones.
pub const MAX_BEFORE: usize = 8;

/// For whom a host is, and which life its VM is to begin. The pool writes it whole, in one patch. It is a request and proves
/// nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct Goal {
    /// AgentMachine that gets the host. Absent: the host waits in the buffer of its pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_machine: Option<NamedUid>,
    /// Machine that owns that AgentMachine. Absent: it is not known yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<NamedUid>,
    /// Life that the VM begins while it waits in the buffer. It counts while it is the next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub life: Option<NextLife>,
    /// uids of the AgentMachines that the host was for before, at most eight. They explain what the VM says of them in vCenter.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default, extend("maxItems" = MAX_BEFORE))]
    pub before: Vec<String>,
    /// Pool of another namespace that uses the host. Absent: the pool of `spec.poolRef` does. It counts while the Namespaces of both
    /// pools admit each other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolKey>,
}

/// A pool of any namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct PoolKey {
    /// Its namespace.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// An object in the namespace of the hosted control plane.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct NamedUid {
    /// `metadata.name`.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// `metadata.uid`. It decides; the name is for reads.
    #[schemars(length(min = 1, max = 64))]
    pub uid: String,
}

/// One life of one VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct NextLife {
    /// Which of the VsphereAgent's VMs, as in `status.vm.attempt`.
    #[schemars(range(min = 1))]
    pub attempt: i32,
    /// Number of the life, as in `status.vm.generation`.
    #[schemars(range(min = 2))]
    pub generation: i32,
}
