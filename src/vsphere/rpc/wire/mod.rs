//! Shapes on the wire.
//!
//! Requests are typed. They have `_typeName` first in every data object, because the vendor's schema wants it. Replies are
//! read leniently: unknown fields are ignored, and `_typeName` may be anywhere.

pub(crate) mod collector;
pub(crate) mod device;
pub(crate) mod files;
pub(crate) mod session;
pub(crate) mod storage;
pub(crate) mod vm;

use agent_forge_actors::domain::names::MoRef;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A managed object reference. Reading ignores `_typeName`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "_typeName", rename = "ManagedObjectReference")]
pub(crate) struct Ref {
    /// Managed object type.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// Identifier.
    pub(crate) value: String,
}

impl From<&MoRef> for Ref {
    fn from(r: &MoRef) -> Self {
        Self {
            kind: r.kind.clone(),
            value: r.id.clone(),
        }
    }
}

impl From<Ref> for MoRef {
    fn from(r: Ref) -> Self {
        Self::new(r.kind, r.value)
    }
}

/// A value in an any-typed slot: primitives and arrays travel boxed there, with their type's name.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "_typeName", content = "_value", rename_all = "camelCase")]
pub(crate) enum Boxed {
    /// `string`
    String(String),
}

/// A method without arguments.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct NoArguments {}

/// `OptionValue` of `extraConfig`.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "_typeName")]
pub(crate) struct OptionValue {
    /// Key.
    pub(crate) key: String,
    /// Any-typed.
    pub(crate) value: Boxed,
}

impl OptionValue {
    /// A text option.
    pub(crate) fn text(key: &str, value: impl Into<String>) -> Self {
        Self {
            key: key.to_owned(),
            value: Boxed::String(value.into()),
        }
    }
}

/// The value itself, out of its box if it has one. Arrays of any-typed values stay as they are inside.
pub(crate) fn unboxed(value: &Value) -> &Value {
    value.get("_value").unwrap_or(value)
}

/// Reads a reference, boxed or not.
pub(crate) fn reference_in(value: &Value) -> Option<MoRef> {
    let value = unboxed(value);
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    Some(MoRef::new(text("type")?, text("value")?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_carry_their_type_name_first() {
        let wire = serde_json::to_string(&Ref::from(&MoRef::new("Task", "task-9"))).expect("json");
        assert_eq!(
            wire,
            r#"{"_typeName":"ManagedObjectReference","type":"Task","value":"task-9"}"#
        );
        for text in [
            wire.as_str(),
            r#"{"value":"task-9","type":"Task","new":1,"_typeName":"ManagedObjectReference"}"#,
        ] {
            assert_eq!(
                MoRef::from(serde_json::from_str::<Ref>(text).expect(text)),
                MoRef::new("Task", "task-9")
            );
        }
    }

    #[test]
    fn any_slots_are_boxed_out_and_unboxed_in() {
        assert_eq!(
            serde_json::to_value(OptionValue::text("k", "v")).expect("json"),
            json!({"_typeName": "OptionValue", "key": "k", "value": {"_typeName": "string", "_value": "v"}})
        );
        let boxed = json!({"_value": [1, 2], "_typeName": "ArrayOfInt"});
        assert_eq!(unboxed(&boxed), &json!([1, 2]));
        assert_eq!(unboxed(&json!("plain")), &json!("plain"));
    }
}
