//! Reads single values from objects of any kind.

use std::collections::BTreeMap;

use kube::core::DynamicObject;
use serde_json::Value;

/// What the played parts read from an object of any kind.
pub trait Facts {
    /// The object's name; empty only before the API server saw it.
    fn name(&self) -> &str;
    /// The object's UID; empty only before the API server saw it.
    fn uid(&self) -> &str;
    /// The value at a JSON pointer below the object's root, outside `metadata`.
    fn at(&self, pointer: &str) -> Option<&Value>;
    /// The string at a JSON pointer; empty if there is none.
    fn text(&self, pointer: &str) -> &str;
    /// The boolean at a JSON pointer; false if there is none.
    fn flag(&self, pointer: &str) -> bool;
    /// A label's value.
    fn label(&self, key: &str) -> Option<&str>;
    /// An annotation's value.
    fn annotation(&self, key: &str) -> Option<&str>;
    /// Whether the object has this finalizer.
    fn has_finalizer(&self, finalizer: &str) -> bool;
    /// Whether the object is being deleted.
    fn is_deleting(&self) -> bool;
    /// All labels.
    fn label_map(&self) -> BTreeMap<String, String>;
    /// The condition of this type in the list at `pointer` (`/status/conditions` and its variants).
    fn condition_in(&self, pointer: &str, kind: &str) -> Option<Condition<'_>>;
    /// The condition of this type in `status.conditions`.
    fn condition(&self, kind: &str) -> Option<Condition<'_>> {
        self.condition_in("/status/conditions", kind)
    }
}

/// One condition; missing texts are empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Condition<'a> {
    /// `True`, `False` or `Unknown`.
    pub status: &'a str,
    /// The machine-readable reason.
    pub reason: &'a str,
    /// The message for people.
    pub message: &'a str,
}

impl Facts for DynamicObject {
    fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    fn at(&self, pointer: &str) -> Option<&Value> {
        self.data.pointer(pointer).filter(|value| !value.is_null())
    }

    fn text(&self, pointer: &str) -> &str {
        self.at(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    fn flag(&self, pointer: &str) -> bool {
        self.at(pointer)
            .and_then(Value::as_bool)
            .unwrap_or_default()
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata
            .annotations
            .as_ref()?
            .get(key)
            .map(String::as_str)
    }

    fn has_finalizer(&self, finalizer: &str) -> bool {
        self.metadata
            .finalizers
            .iter()
            .flatten()
            .any(|have| have == finalizer)
    }

    fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    fn label_map(&self) -> BTreeMap<String, String> {
        self.metadata.labels.clone().unwrap_or_default()
    }

    fn condition_in(&self, pointer: &str, kind: &str) -> Option<Condition<'_>> {
        let found = self
            .at(pointer)?
            .as_array()?
            .iter()
            .find(|condition| condition["type"] == kind)?;
        let text = |key: &str| found.get(key).and_then(Value::as_str).unwrap_or_default();
        Some(Condition {
            status: text("status"),
            reason: text("reason"),
            message: text("message"),
        })
    }
}

/// Whether a merge of `part` into `whole` would change nothing. Null means absent, as in a merge patch.
#[must_use]
pub fn merge_is_idle(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => part
            .iter()
            .all(|(key, value)| merge_is_idle(whole.get(key).unwrap_or(&Value::Null), value)),
        (Value::Null, Value::Object(part)) => part.values().all(Value::is_null) && !part.is_empty(),
        _ => whole == part,
    }
}
