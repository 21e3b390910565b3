//! Condition lists as the controllers write them, in both formats.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// The format of a condition in an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// `metav1.Condition`: reason and message always present, no severity.
    Metav1,
    /// CAPI's v1beta1 type: severity if the status is False; empty texts are left out.
    Capi,
}

/// A condition to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Its type.
    pub kind: &'static str,
    /// `True`, `False` or `Unknown`.
    pub status: &'static str,
    /// The machine-readable reason. It may be empty in [`Shape::Capi`] only.
    pub reason: String,
    /// The message for people.
    pub message: String,
    /// `Error`, `Warning`, `Info` or empty; written in [`Shape::Capi`] only.
    pub severity: &'static str,
}

impl Condition {
    /// A condition without severity.
    #[must_use]
    pub fn new(kind: &'static str, status: &'static str, reason: &str, message: &str) -> Self {
        Self {
            kind,
            status,
            reason: reason.to_owned(),
            message: message.to_owned(),
            severity: "",
        }
    }

    /// The same condition with a severity.
    #[must_use]
    pub fn severe(mut self, severity: &'static str) -> Self {
        self.severity = severity;
        self
    }
}

/// The list to write. The transition time changes only with the status. Conditions of other types in `before` stay.
#[must_use]
pub fn render(
    conditions: &[Condition],
    before: Option<&Value>,
    shape: Shape,
    now: Timestamp,
) -> Value {
    let empty = Vec::new();
    let before = before.and_then(Value::as_array).unwrap_or(&empty);
    let mut list: Vec<Value> = before
        .iter()
        .filter(|old| conditions.iter().all(|new| old["type"] != new.kind))
        .cloned()
        .collect();
    for condition in conditions {
        let old = before.iter().find(|old| old["type"] == condition.kind);
        let since = old
            .filter(|old| old["status"] == condition.status)
            .and_then(|old| old["lastTransitionTime"].as_str())
            .map_or_else(|| seconds(now), str::to_owned);
        list.push(item(condition, &since, shape));
    }
    Value::Array(list)
}

/// A time in the Kubernetes format: whole seconds, UTC.
#[must_use]
pub fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn item(condition: &Condition, since: &str, shape: Shape) -> Value {
    let mut item = Map::new();
    let mut text = |key: &str, value: &str, keep_empty: bool| {
        if keep_empty || !value.is_empty() {
            item.insert(key.to_owned(), json!(value));
        }
    };
    let metav1 = shape == Shape::Metav1;
    text("type", condition.kind, true);
    text("status", condition.status, true);
    text("lastTransitionTime", since, true);
    text("reason", &condition.reason, metav1);
    text("message", &condition.message, metav1);
    if !metav1 && condition.status == "False" {
        text("severity", condition.severity, false);
    }
    Value::Object(item)
}
