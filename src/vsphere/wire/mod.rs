//! Types of the wire format. What we send is typed, with `_typeName` first in every data object, as the vendor's schema
//! requires. What we receive is read tolerantly: unknown fields are ignored, and `_typeName` may be anywhere.

pub(super) mod collector;
pub(super) mod device;
pub(super) mod files;
pub(super) mod session;
pub(super) mod storage;
pub(super) mod vm;

use agent_forge_actors::model::names::MoRef;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A managed object reference. Reading ignores `_typeName`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "_typeName", rename = "ManagedObjectReference")]
pub(super) struct Ref {
    /// Managed object type.
    #[serde(rename = "type")]
    pub(super) kind: String,
    /// Identifier.
    pub(super) value: String,
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

/// A value in an any-typed slot. Primitives and arrays are boxed there, with the name of their type.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "_typeName", content = "_value", rename_all = "camelCase")]
pub(super) enum Boxed {
    /// `string`
    String(String),
}

/// A method without arguments.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct NoArguments {}

/// `OptionValue` of `extraConfig`.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "_typeName")]
pub(super) struct OptionValue {
    /// Key.
    pub(super) key: String,
    /// Any-typed.
    pub(super) value: Boxed,
}

impl OptionValue {
    /// A text option.
    pub(super) fn text(key: &str, value: impl Into<String>) -> Self {
        Self {
            key: key.to_owned(),
            value: Boxed::String(value.into()),
        }
    }
}

/// The value without its box, if it has one. Elements of any-typed arrays are not changed.
pub(super) fn unboxed(value: &Value) -> &Value {
    value.get("_value").unwrap_or(value)
}

/// Reads a reference, boxed or not.
pub(super) fn reference_in(value: &Value) -> Option<MoRef> {
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
