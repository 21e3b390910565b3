//! The CEL rules of the definitions, in Rust. There are few, so no interpreter is needed.
//!
//! A test compares this list with the definitions. A rule that is missing here is reported as not checked.

use std::time::Duration;

use agent_forge_crds::duration;
use regex::Regex;
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
        "has(self.nodePoolRef) == has(self.hostedClusterRef) && has(self.nodePoolRef) == has(self.controlPlaneNamespace)" =>
        {
            let has = |field: &str| value.get(field).is_some();
            let all = has("nodePoolRef");
            Some(has("hostedClusterRef") == all && has("controlPlaneNamespace") == all)
        }
        "has(self.nodePoolRef) || (has(self.reassign) && has(self.vsphere.folder) && !has(self.nodeCheck))" =>
        {
            let has = |field: &str| value.get(field).is_some();
            let folder = value.pointer("/vsphere/folder").is_some();
            Some(has("nodePoolRef") || (has("reassign") && folder && !has("nodeCheck")))
        }
        "!has(self.classes) || self.classes.all(c, !c.labels.exists(k, k in self.agent.labels))" => {
            let common = value.pointer("/agent/labels").and_then(Value::as_object);
            let is_common = |key: &String| common.is_some_and(|all| all.contains_key(key));
            let classes = value.get("classes").and_then(Value::as_array);
            let labels = classes.into_iter().flatten();
            let mut keys = labels.filter_map(|c| c["labels"].as_object()).flatten();
            Some(!keys.any(|(key, _)| is_common(key)))
        }
        // Rules about a change: a new object has no old value.
        rule if rule.contains("oldSelf") => Some(true),
        rule => keys(rule, value),
    }
}

/// A rule that each key of a map matches a pattern, or does not: `self.all(k, size(k) <= 317 && k.matches('...'))`.
fn keys(rule: &str, value: &Value) -> Option<bool> {
    let (before, after) = rule
        .strip_prefix("self.all(k, ")?
        .split_once("k.matches('")?;
    let (pattern, _) = after.split_once("')")?;
    let (longest, wanted) = match before {
        "" => (usize::MAX, true),
        "!" => (usize::MAX, false),
        limit => {
            let limit = limit.strip_prefix("size(k) <= ")?.strip_suffix(" && ")?;
            (limit.parse().ok()?, true)
        }
    };
    let pattern = Regex::new(pattern).ok()?;
    let mut keys = value.as_object().into_iter().flatten().map(|(key, _)| key);
    Some(keys.all(|key| key.chars().count() <= longest && pattern.is_match(key) == wanted))
}
