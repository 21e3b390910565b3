//! What becomes of a host whose Machine is gone.

use crate::duration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What becomes of a host whose Machine is gone. `cleanupPolicy: Retain` wins over all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ReleaseSpec {
    /// `Delete` (default): the VM is removed with its Agent. `Recycle`: the same VM boots the discovery ISO again and waits
    /// in the buffer for the next AgentMachine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<ReleasePolicy>,
    /// With `Recycle`, what becomes of its disk: `Replace` (default) or `Keep`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<ReleasedDisk>,
    /// With `Recycle`, how many Machines a VM may serve. Then it is removed. No limit unless set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub max_uses: Option<i32>,
    /// With `Recycle`, a VM that is older when its Machine goes is removed. A Go duration. No limit unless set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = duration::PATTERN_OR_EMPTY))]
    pub max_age: Option<String>,
}

/// What becomes of a host whose Machine is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ReleasePolicy {
    /// Its VM is removed.
    #[default]
    Delete,
    /// Its VM begins another life.
    Recycle,
}

/// What becomes of the disk of a VM that begins another life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ReleasedDisk {
    /// It is destroyed, and a new, empty one takes its place.
    #[default]
    Replace,
    /// It stays with all that is on it.
    Keep,
}

impl ReleaseSpec {
    /// Whether a host begins another life when its Machine is gone.
    #[must_use]
    pub fn recycles(&self) -> bool {
        self.policy == Some(ReleasePolicy::Recycle)
    }
}
