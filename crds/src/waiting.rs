//! Reasons for waiting, used by both kinds.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::conditions::Reason;

/// One thing that does not happen now, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct WaitingOn {
    /// What waits: an object or a step, such as `AgentMachine/demo-demo/worker-1` or `tags`.
    pub subject: String,
    /// The cause as one word for programs.
    #[schemars(with = "String")]
    pub reason: Reason,
    /// The cause as a sentence for people, with what to do about it where someone can do something.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(default)]
    pub message: String,
    /// Since when, for this reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}

impl WaitingOn {
    /// Since when `subject` has waited for this reason, by what stands in `rows`.
    #[must_use]
    pub fn since_of(rows: &[Self], subject: &str, reason: &Reason) -> Option<Time> {
        let is_it = |w: &&Self| w.subject == subject && w.reason == *reason;
        rows.iter().find(is_it)?.since.clone()
    }
}
