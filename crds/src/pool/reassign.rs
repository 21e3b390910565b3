//! Pools that give each other free hosts.

use crate::schema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Pools that give each other free hosts: those of one group, if they have InfraEnv and credentials Secret in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ReassignSpec {
    /// Name of the group. Pools with the same name give each other free hosts of their buffers.
    #[schemars(length(min = 1, max = 63), regex(pattern = schema::DNS_LABEL))]
    pub group: String,
    /// True: the pool takes only hosts with a new disk from others. By default it also takes a host whose disk has data of its
    /// own hosted cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_disk: Option<bool>,
    /// Most hosts of this pool that the pools of one other namespace may have at once. No limit unless set. A host that moves
    /// inside its namespace becomes the other pool's own, and does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10000))]
    pub max_per_namespace: Option<i32>,
}

/// Hosts that the pool shares with pools of other namespaces. A host that moved inside its namespace is its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ReassignStatus {
    /// Hosts of the pool that a pool of another namespace made.
    #[schemars(range(min = 0))]
    pub borrowed: i32,
    /// Hosts that the pool made, and that a pool of another namespace uses.
    #[schemars(range(min = 0))]
    pub lending: i32,
    /// Pools of the group that give this one nothing as they are set up, each with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default, extend("maxItems" = MAX_REFUSALS))]
    pub refused: Vec<String>,
}

/// How many pools [`ReassignStatus::refused`] lists.
pub const MAX_REFUSALS: usize = 16;
