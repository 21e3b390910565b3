//! How many VMs a pool may have, and how many hosts it has ready before anybody asks.

use crate::duration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Days of a [`BufferWindow`]: names or ranges, such as `Mon-Fri` or `Mon,Wed,Sat-Sun`.
const DAYS: &str = r"^(Mon|Tue|Wed|Thu|Fri|Sat|Sun)(-(Mon|Tue|Wed|Thu|Fri|Sat|Sun))?(,(Mon|Tue|Wed|Thu|Fri|Sat|Sun)(-(Mon|Tue|Wed|Thu|Fri|Sat|Sun))?)*$";
/// A time of day.
const TIME: &str = "^([01][0-9]|2[0-3]):[0-5][0-9]$";

/// How many VMs a pool may have, and how many hosts wait in its buffer. What is not set has no limit, and without
/// `bufferAgents` there is no buffer. AgentMachines that exceed a limit wait, the youngest ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// Hosts that are discovered, unbound and ready, beside those in use. An AgentMachine that waits gets one of them at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub buffer_agents: Option<i32>,
    /// Hosts that may stay in the buffer if there are more than wanted. A smaller number than that has no effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub buffer_max: Option<i32>,
    /// A host that has been in the buffer for longer is replaced, one at a time. A Go duration. No limit unless set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = duration::PATTERN_OR_EMPTY))]
    pub buffer_max_age: Option<String>,
    /// Times with another number of hosts. Of the windows that match, the one with the most hosts replaces `bufferAgents`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default, length(max = 32))]
    pub buffer_schedule: Vec<BufferWindow>,
    /// Which host leaves the buffer first when it has too many: `Oldest` (default) or `Newest`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delete_policy: Option<DeletePolicy>,
    /// Pools of this namespace that start first: VMs that do not serve are made and stay off while a machine of one of those is
    /// not ready, or its buffer lacks a host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default, length(max = 8))]
    pub start_after: Vec<String>,
}

/// A time of the week with its own number of buffer hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct BufferWindow {
    /// Days on which it begins: names or ranges, separated by commas, such as `Mon-Fri`.
    #[schemars(length(max = 60), regex(pattern = DAYS))]
    pub days: String,
    /// When it begins, as `HH:MM`.
    #[schemars(regex(pattern = TIME))]
    pub from: String,
    /// When it ends, as `HH:MM`. A time that is not after `from` is on the next day.
    #[schemars(regex(pattern = TIME))]
    pub to: String,
    /// IANA time zone, such as `Europe/Zurich`.
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: String,
    /// Hosts in the buffer during that time.
    #[schemars(range(min = 0, max = 1000))]
    pub buffer_agents: i32,
}

/// Which host leaves the buffer first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletePolicy {
    /// The one that was made first.
    #[default]
    Oldest,
    /// The one that was made last.
    Newest,
}

impl ScalingSpec {
    /// Which host leaves the buffer first, `Oldest` unless set.
    #[must_use]
    pub fn delete_policy(&self) -> DeletePolicy {
        self.delete_policy.unwrap_or_default()
    }
}
