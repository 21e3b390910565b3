//! Edits of a pool's spec, made from the schema of its CRD: values that the schema admits and values that it refuses.
//!
//! Guarantee: the API server admits an edit exactly if it is [`Edit::is_valid`] (tests/sim/tests/all/edits.rs asks a real one).

use agent_forge_crds::manifest;
use anyhow::{Context as _, Result};
use regex::Regex;
use serde_json::{Map, Value, json};

use crate::kube::store::merge;

/// The words that fields get. Some are valid only in some fields.
const WORDS: &[&str] = &[
    "",
    "edited",
    "7",
    "1h",
    "2030-01-01T00:00:00Z",
    "not a name!",
];
/// A word of this length is tried where the schema does not limit the length.
const LONG: usize = 300;

/// Fields that a rule of the spec keeps together: none of them goes alone.
const TOGETHER: [&str; 3] = ["hostedClusterRef", "nodePoolRef", "controlPlaneNamespace"];

/// One field of the spec gets another value, or is removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The field, from the spec on.
    pub path: Vec<String>,
    /// Its new value; null removes it.
    pub value: Value,
    /// Whether the schema admits it.
    pub is_valid: bool,
}

impl Edit {
    /// What is merged over the pool.
    #[must_use]
    pub fn patch(&self) -> Value {
        json!({"spec": nested(&self.path, self.value.clone())})
    }

    /// What is merged over the edited pool, so that it has the old `spec` again.
    #[must_use]
    pub fn undo(&self, spec: &Value) -> Value {
        // A merge keeps the keys that it does not name, so the new ones are removed.
        let mut old = spec;
        for (depth, key) in self.path.iter().enumerate() {
            match old.get(key) {
                Some(value) => old = value,
                None => return json!({"spec": nested(&self.path[..=depth], Value::Null)}),
            }
        }
        let mut back = old.clone();
        if let (Value::Object(back), Value::Object(new)) = (&mut back, &self.value) {
            for key in new.keys() {
                back.entry(key).or_insert(Value::Null);
            }
        }
        json!({"spec": nested(&self.path, back)})
    }
}

fn nested(path: &[String], value: Value) -> Value {
    path.iter()
        .rev()
        .fold(value, |inner, key| json!({ key: inner }))
}

/// All edits, in the order of the schema.
///
/// # Errors
/// The schema has a shape that this does not know.
pub fn all() -> Result<Vec<Edit>> {
    let crd = serde_json::to_value(manifest::pool())?;
    let spec = crd
        .pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec")
        .context("the CRD has no schema of the spec")?;
    let mut edits = Vec::new();
    fields(spec, &[], &mut edits)?;
    Ok(edits)
}

/// The edits of the fields of an object.
fn fields(schema: &Value, path: &[String], edits: &mut Vec<Edit>) -> Result<()> {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let mut path = path.to_vec();
        path.push(name.clone());
        let mut edit = |value: Value, is_valid| {
            edits.push(Edit {
                path: path.clone(),
                value,
                is_valid,
            });
        };
        let has_default = field.get("default").is_some();
        let alone = path.len() == 1 && TOGETHER.contains(&name.as_str());
        let may_lack = !required.contains(&json!(name)) && !alone;
        edit(Value::Null, has_default || may_lack);
        for (value, is_valid) in values(field).with_context(|| path.join("."))? {
            edit(value, is_valid);
        }
        if field.get("properties").is_some() {
            let mut inner = Vec::new();
            fields(field, &path, &mut inner)?;
            if field.get("required").is_some() && may_lack {
                inner = whole(field, &path, inner)?;
            }
            edits.append(&mut inner);
        }
    }
    Ok(())
}

/// The same edits with the fields beside them that the schema requires: the pool may lack the whole object.
fn whole(object: &Value, path: &[String], edits: Vec<Edit>) -> Result<Vec<Edit>> {
    let example = example(object)?;
    let with_rest = |edit: Edit| {
        let mut value = example.clone();
        merge(&mut value, &nested(&edit.path[path.len()..], edit.value));
        Edit {
            path: path.to_vec(),
            value,
            is_valid: edit.is_valid,
        }
    };
    Ok(edits.into_iter().map(with_rest).collect())
}

/// An object with the fields that the schema requires.
fn example(object: &Value) -> Result<Value> {
    let mut example = Map::new();
    for name in object["required"].as_array().into_iter().flatten() {
        let name = name.as_str().context("a name of a field")?;
        let field = &object["properties"][name];
        let value = match field.get("properties") {
            Some(_) => self::example(field)?,
            None => {
                let mut values = values(field)?.into_iter();
                let valid = values.find(|(_, is_valid)| *is_valid);
                valid
                    .with_context(|| format!("no valid value of {name}"))?
                    .0
            }
        };
        example.insert(name.to_owned(), value);
    }
    Ok(Value::Object(example))
}

/// Values of a field, and whether its schema admits them.
fn values(field: &Value) -> Result<Vec<(Value, bool)>> {
    let size = |key: &str| field[key].as_u64();
    Ok(match field["type"].as_str().unwrap_or_default() {
        "string" if field.get("enum").is_some() => {
            let words = field["enum"].as_array().into_iter().flatten();
            let words = words.map(|word| (word.clone(), true));
            words.chain([(json!("edited"), false)]).collect()
        }
        "string" => words(field)?,
        "integer" => {
            let bound = |key: &str| field[key].as_f64().map(|bound| bound as i64);
            let (least, most) = (bound("minimum"), bound("maximum"));
            let (Some(least), Some(most)) = (least, most) else {
                anyhow::bail!("a number without bounds");
            };
            let inside = [least, least.midpoint(most), most].map(|n| (json!(n), true));
            let outside = [json!(least - 1), json!(most + 1), json!("7")].map(|v| (v, false));
            inside.into_iter().chain(outside).collect()
        }
        "boolean" => [(json!(true), true), (json!(false), true)]
            .into_iter()
            .chain([(json!("yes"), false)])
            .collect(),
        // No word fits in each field of a row.
        "array" if field["items"]["type"] == "object" => vec![
            (json!([]), true),
            (json!(["edited"]), false),
            (json!("edited"), false),
        ],
        "array" => {
            let most = size("maxItems").context("a list without a bound")?;
            let many = |n: u64| json!((0..n).map(|at| format!("edited-{at}")).collect::<Vec<_>>());
            [(many(0), true), (many(1), true), (many(most), true)]
                .into_iter()
                .chain([(many(most + 1), false), (json!("edited"), false)])
                .collect()
        }
        "object" if field.get("additionalProperties").is_some() => {
            let most = size("maxProperties").context("a map without a bound")?;
            let many = |n: u64| {
                let pair = |at| (format!("edited-{at}"), json!("edited"));
                Value::Object((0..n).map(pair).collect::<Map<_, _>>())
            };
            // A merge adds to what is there already, so the upper bound is passed for certain.
            let values = [(many(1), true), (json!({"edited": 7}), false)];
            let values = values.into_iter();
            values.chain([(many(most + 1), false)]).collect()
        }
        "object" => vec![(json!("edited"), false)],
        other => anyhow::bail!("fields of type {other:?} are not edited"),
    })
}

/// Words for a string, and whether its schema admits them.
fn words(field: &Value) -> Result<Vec<(Value, bool)>> {
    let length = |key: &str| field[key].as_u64().map(|n| n as usize);
    let (least, most) = (length("minLength").unwrap_or(0), length("maxLength"));
    let pattern = field["pattern"].as_str().map(Regex::new).transpose()?;
    let is_time = field["format"] == "date-time";
    let admits = |word: &str| {
        let count = word.chars().count();
        let fits = count >= least && most.is_none_or(|most| count <= most);
        let is_right = !is_time || word.parse::<jiff::Timestamp>().is_ok();
        fits && is_right && pattern.as_ref().is_none_or(|p| p.is_match(word))
    };
    let long = most.map_or_else(|| vec![LONG], |most| vec![most, most + 1]);
    let words = WORDS.iter().map(|w| (*w).to_owned());
    let words = words.chain(long.into_iter().map(|n| "x".repeat(n)));
    let words = words.map(|word| {
        let is_valid = admits(&word);
        (json!(word), is_valid)
    });
    Ok(words.chain([(json!(7), false)]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_edit_can_be_undone() {
        let spec = json!({"template": {}, "agent": {"labels": {"customer": "example"}},
            "vsphere": {"network": "VM Network"}});
        for edit in all().unwrap() {
            let mut pool = json!({ "spec": spec });
            merge(&mut pool, &edit.patch());
            merge(&mut pool, &edit.undo(&spec));
            assert_eq!(pool, json!({ "spec": spec }), "{edit:?}");
        }
    }
}
