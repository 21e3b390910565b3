//! Reading what others wrote: a value that does not fit reads as absent instead of failing the
//! whole list it came in.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::BTreeMap;

/// `Some` when the value fits `T`, `None` when it is absent, null or of another shape.
pub(crate) fn option<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    Ok(fit(Value::deserialize(deserializer)?))
}

/// The value when it fits `T`, else `T::default()`.
pub(crate) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    Ok(fit(Value::deserialize(deserializer)?).unwrap_or_default())
}

/// The elements that fit `T`, in order; empty when the value is no list.
pub(crate) fn list<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    Ok(match Value::deserialize(deserializer)? {
        Value::Array(items) => items.into_iter().filter_map(fit).collect(),
        _ => Vec::new(),
    })
}

/// The entries whose value is a string; empty when the value is no map.
pub(crate) fn string_map<'de, D>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error>
where
    D: Deserializer<'de>,
{
    Ok(match Value::deserialize(deserializer)? {
        Value::Object(map) => map
            .into_iter()
            .filter_map(|(key, value)| match value {
                Value::String(text) => Some((key, text)),
                _ => None,
            })
            .collect(),
        _ => BTreeMap::new(),
    })
}

fn fit<T: DeserializeOwned>(value: Value) -> Option<T> {
    match value {
        Value::Null => None,
        value => serde_json::from_value(value).ok(),
    }
}

/// Lets a `spec` be missing from its object: the predecessor's schema does not require it, and one
/// such object must not make the list it comes in unreadable.
///
/// For a type that derives with `#[serde(remote = "Self")]`. Serde asks a missing field's type for
/// an optional value, so reading as `Option` is what turns "missing" (and null) into the default.
macro_rules! absent_is_default {
    ($type:ident) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Present($type);
                impl<'de> serde::Deserialize<'de> for Present {
                    fn deserialize<D: serde::Deserializer<'de>>(
                        deserializer: D,
                    ) -> Result<Self, D::Error> {
                        $type::deserialize(deserializer).map(Self)
                    }
                }
                let present: Option<Present> = serde::Deserialize::deserialize(deserializer)?;
                Ok(present.map(|Present(value)| value).unwrap_or_default())
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $type::serialize(self, serializer)
            }
        }
    };
}
pub(crate) use absent_is_default;
