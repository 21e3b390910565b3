//! Conditions as other projects write them, in every generation of their format.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

/// One condition. Everything except its type may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ForeignCondition {
    /// Type, unique in its list.
    #[serde(rename = "type", deserialize_with = "crate::lenient::or_default")]
    pub type_: String,
    /// `True`, `False` or `Unknown`; empty if it is missing.
    #[serde(deserialize_with = "crate::lenient::or_default")]
    pub status: String,
    /// Reason in one word.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub reason: Option<String>,
    /// Reason as a sentence.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub message: Option<String>,
    /// Severity, only in the older generation of AgentMachine.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub severity: Option<String>,
    /// Time of the last change of the status.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub last_transition_time: Option<Time>,
}

impl ForeignCondition {
    /// Whether it holds.
    pub fn is_true(&self) -> bool {
        self.status == "True"
    }

    /// Whether its status is False. A missing status is neither true nor false.
    pub fn is_false(&self) -> bool {
        self.status == "False"
    }

    /// Whether its status is False with exactly this reason.
    pub fn is_false_because(&self, reason: &str) -> bool {
        self.is_false() && self.reason.as_deref() == Some(reason)
    }
}

/// The condition with that type, if the list has it.
pub fn find<'a>(conditions: &'a [ForeignCondition], type_: &str) -> Option<&'a ForeignCondition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}
