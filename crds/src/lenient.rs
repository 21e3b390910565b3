//! Reads what other projects wrote. A value of a wrong type reads as absent. Otherwise it would make the whole list
//! unreadable.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::BTreeMap;

/// `Some` if the value fits `T`; `None` if it is absent, null or of another type.
pub(crate) fn option<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    Ok(fit(Value::deserialize(deserializer)?))
}

/// The value if it fits `T`, else `T::default()`.
pub(crate) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    Ok(fit(Value::deserialize(deserializer)?).unwrap_or_default())
}

/// The elements that fit `T`, in order; empty if the value is no list.
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

/// The entries whose value is a string; empty if the value is no map.
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

/// Allows that a `spec` is missing. The predecessor's schema does not require it, and one such object must not make its
/// whole list unreadable.
///
/// For a type that derives with `#[serde(remote = "Self")]`. If a field is missing, serde asks its type for an optional
/// value. So reading it as `Option` turns "missing" (and null) into the default.
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
