//! The CEL rules of the definitions, in Rust. There are few, so no interpreter is needed.
//!
//! A test compares this list with the definitions. A rule that is missing here is reported as not checked.

use std::time::Duration;

use agent_forge_crds::duration;
use serde_json::Value;

/// Whether the rule holds for the value. `None`: it is not known here.
#[must_use]
pub fn holds(rule: &str, value: &Value) -> Option<bool> {
    match rule {
        "self == '' || duration(self) > duration('0s')" => {
            let text = value.as_str()?;
            let longer = duration::parse(text).is_ok_and(|d| d > Duration::ZERO);
            Some(text.is_empty() || longer)
        }
        // Rules about a change: a new object has no old value.
        rule if rule.contains("oldSelf") => Some(true),
        _ => None,
    }
}
