//! Conditions as others write them, in every generation of their shape (§1.1, §2, §3.2).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

/// One condition; everything but its type may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ForeignCondition {
    /// Type, unique in its list.
    #[serde(rename = "type", deserialize_with = "crate::lenient::or_default")]
    pub type_: String,
    /// `True`, `False` or `Unknown`; empty when missing.
    #[serde(deserialize_with = "crate::lenient::or_default")]
    pub status: String,
    /// Cause as one word.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub reason: Option<String>,
    /// Cause as a sentence.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub message: Option<String>,
    /// Weight, only in the older generation of AgentMachine.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub severity: Option<String>,
    /// Since when the status stands.
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

    /// Whether it says that it does not hold. A missing status is neither true nor false.
    pub fn is_false(&self) -> bool {
        self.status == "False"
    }

    /// Whether it does not hold, for exactly this reason.
    pub fn is_false_because(&self, reason: &str) -> bool {
        self.is_false() && self.reason.as_deref() == Some(reason)
    }
}

/// The condition of that type, if the list has it.
pub fn find<'a>(conditions: &'a [ForeignCondition], type_: &str) -> Option<&'a ForeignCondition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}
