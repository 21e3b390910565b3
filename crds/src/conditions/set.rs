//! Writes a condition list without changing times of unchanged conditions.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

use super::Reason;

/// Longest message that the schema of a condition accepts, in characters.
const MAX_MESSAGE: usize = 32768;

/// The three values of a condition's `status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It is not known.
    Unknown,
}

impl ConditionStatus {
    /// The word in the object.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// The new content of a condition; see [`set_condition`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionUpdate<'a> {
    /// Condition type, unique in its list.
    pub type_: &'a str,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// Why, as one word.
    pub reason: &'a Reason,
    /// Sentence for people; may be empty. It is cut at 32768 characters, the limit of the schema.
    pub message: &'a str,
    /// The `metadata.generation` that was observed.
    pub observed_generation: Option<i64>,
}

/// Puts one condition into the list. Returns whether the list changed.
///
/// `lastTransitionTime` becomes `now`, in whole seconds as in the object, only if the condition is new or its status
/// changes. Other conditions and the order do not change.
pub fn set_condition(
    conditions: &mut Vec<Condition>,
    update: &ConditionUpdate<'_>,
    now: &Time,
) -> bool {
    let wanted = |last_transition_time| Condition {
        type_: update.type_.to_owned(),
        status: update.status.as_str().to_owned(),
        reason: update.reason.to_string(),
        message: update.message.chars().take(MAX_MESSAGE).collect(),
        observed_generation: update.observed_generation,
        last_transition_time,
    };
    match conditions.iter_mut().find(|c| c.type_ == update.type_) {
        Some(present) => {
            let since = if present.status == update.status.as_str() {
                present.last_transition_time.clone()
            } else {
                whole_seconds(now)
            };
            let next = wanted(since);
            let changed = *present != next;
            *present = next;
            changed
        }
        None => {
            conditions.push(wanted(whole_seconds(now)));
            true
        }
    }
}

/// Removes the condition with that type, if there is one.
pub fn remove_condition(conditions: &mut Vec<Condition>, type_: &str) {
    conditions.retain(|c| c.type_ != type_);
}

/// The condition with that type.
pub fn find_condition<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.type_ == type_)
}

/// Whether the condition with that type exists and holds.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find_condition(conditions, type_).is_some_and(|c| c.status == "True")
}

fn whole_seconds(time: &Time) -> Time {
    // A timestamp cut to its own second is always in range. The fallback is never used.
    Time(Timestamp::from_second(time.0.as_second()).unwrap_or(time.0))
}
