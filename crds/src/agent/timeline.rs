//! When each milestone of a machine was reached. The machine's trace and its durations come from these times.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most entries that a timeline keeps: ten for a machine that needed one VM.
pub const MAX_TIMELINE_ROWS: usize = 64;

/// One thing that happened, and when. The list is in the order of the events and only grows at its end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct Milestone {
    /// What happened. `Demanded`: the AgentMachine was created. `Accepted`: the VsphereAgent was created. `ISOReady`,
    /// `Placed`, `Created`, `PoweredOn`. `Discovered`: its Agent registered. `Prepared`, `Bound`. `Replaced`: another VM is
    /// made. `Recycled`: the VM began another life. `InstallAbandoned`: the deletion came before the Agent was installed. `Deleting`. `Absent`: its VM is gone.
    pub event: String,
    /// To which VM in a row for this request.
    #[schemars(range(min = 1))]
    pub attempt: i32,
    /// When.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(default, with = "Option<String>", extend("format" = "date-time"))]
    pub at: Option<MicroTime>,
}

impl Milestone {
    /// `event`: its Agent was bound.
    pub const BOUND: &'static str = "Bound";
    /// `event`: the VM began another life. What was before it says nothing of that life.
    pub const RECYCLED: &'static str = "Recycled";
}
