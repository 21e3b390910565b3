//! Checks a value with a structural schema as the API server does, without CEL rules ([`rules`]). And fills in its
//! defaults.

use regex::Regex;
use serde_json::{Map, Value};

/// The problems of `value`, each with the path of its field.
pub fn problems(schema: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(schema, value, "", &mut found);
    found
}

/// A CEL rule that a value has to fulfil.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule<'a> {
    /// Path of the field.
    pub path: String,
    /// The rule, in CEL.
    pub rule: &'a str,
    /// What people read when it does not hold.
    pub message: &'a str,
    /// The value of the field.
    pub value: &'a Value,
}

/// The CEL rules for the fields that `value` has.
pub fn rules<'a>(schema: &'a Value, value: &'a Value) -> Vec<Rule<'a>> {
    let mut found = Vec::new();
    collect(schema, value, String::new(), &mut found);
    found
}

fn collect<'a>(schema: &'a Value, value: &'a Value, path: String, found: &mut Vec<Rule<'a>>) {
    let own = schema["x-kubernetes-validations"].as_array();
    found.extend(own.into_iter().flatten().map(|rule| Rule {
        path: path.clone(),
        rule: rule["rule"].as_str().unwrap_or_default(),
        message: rule["message"].as_str().unwrap_or_default(),
        value,
    }));
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if let Some(schema) = property(schema, name) {
                    collect(schema, value, below(&path, name), found);
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect(&schema["items"], item, format!("{path}[{index}]"), found);
            }
        }
        _ => {}
    }
}

/// Fills in the defaults of missing fields, as the API server does.
pub fn fill_defaults(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let declared = schema["properties"].as_object();
            for (name, schema) in declared.into_iter().flatten() {
                if !fields.contains_key(name) && !schema["default"].is_null() {
                    fields.insert(name.clone(), schema["default"].clone());
                }
            }
            for (name, value) in fields {
                if let Some(schema) = property(schema, name) {
                    fill_defaults(schema, value);
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                fill_defaults(&schema["items"], item);
            }
        }
        _ => {}
    }
}

fn property<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    let declared = schema["properties"].get(name);
    declared.or_else(|| Some(&schema["additionalProperties"]).filter(|s| s.is_object()))
}

fn below(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

fn check(schema: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
    let mut wrong = |what: String| found.push(format!("{path}: {what}"));
    if let Some(kind) = schema["type"].as_str() {
        let fits = match kind {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            // Definitions are generated, and tests know each of their types.
            _ => false,
        };
        if !fits {
            wrong(format!("must be of type {kind}, and is {value}"));
            return;
        }
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        let allowed: Vec<String> = allowed.iter().map(Value::to_string).collect();
        wrong(format!("{value} is none of {}", allowed.join(", ")));
    }
    match value {
        Value::String(text) => string(schema, text, &mut wrong),
        Value::Number(_) => number(schema, value, &mut wrong),
        Value::Array(items) => {
            size(schema, ("Items", "entries"), items.len(), &mut wrong);
            for (index, item) in items.iter().enumerate() {
                check(&schema["items"], item, &format!("{path}[{index}]"), found);
            }
        }
        Value::Object(fields) => object(schema, fields, path, found),
        _ => {}
    }
}

fn number(schema: &Value, value: &Value, wrong: &mut impl FnMut(String)) {
    let Some(number) = value.as_f64() else {
        return;
    };
    let (least, most) = (schema["minimum"].as_f64(), schema["maximum"].as_f64());
    if let Some(least) = least.filter(|least| number < *least) {
        wrong(format!("{value} is too small: at least {least}"));
    }
    if let Some(most) = most.filter(|most| number > *most) {
        wrong(format!("{value} is too large: at most {most}"));
    }
    if schema["format"] == "int32" && number.abs() > f64::from(i32::MAX) {
        wrong(format!("{value} does not fit into 32 bits"));
    }
}

fn string(schema: &Value, text: &str, wrong: &mut impl FnMut(String)) {
    size(
        schema,
        ("Length", "characters"),
        text.chars().count(),
        wrong,
    );
    if let Some(pattern) = schema["pattern"].as_str()
        && !matches(pattern, text)
    {
        wrong(format!("{text:?} does not match {pattern}"));
    }
    let date = r"^\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})$";
    if schema["format"] == "date-time" && !matches(date, text) {
        wrong(format!("{text:?} is no date-time"));
    }
}

fn matches(pattern: &str, text: &str) -> bool {
    Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(text))
}

fn object(schema: &Value, fields: &Map<String, Value>, path: &str, found: &mut Vec<String>) {
    size(schema, ("Properties", "keys"), fields.len(), &mut |what| {
        found.push(format!("{path}: {what}"));
    });
    let required = schema["required"].as_array().into_iter().flatten();
    for required in required.filter_map(Value::as_str) {
        if !fields.contains_key(required) {
            found.push(format!("{}: is required", below(path, required)));
        }
    }
    let open = schema["x-kubernetes-preserve-unknown-fields"] == true;
    let declared = schema["properties"].as_object();
    let shapeless = declared.is_none() && schema["additionalProperties"].is_null();
    for (name, value) in fields {
        match property(schema, name) {
            Some(property) => check(property, value, &below(path, name), found),
            // The API server itself checks metadata better than this schema.
            None if open || (shapeless && path == "metadata") => {}
            None => found.push(format!("{}: is not in the schema", below(path, name))),
        }
    }
}

fn size(schema: &Value, (what, unit): (&str, &str), size: usize, wrong: &mut impl FnMut(String)) {
    let size = size as u64;
    let least = schema[format!("min{what}")].as_u64();
    let most = schema[format!("max{what}")].as_u64();
    if let Some(least) = least.filter(|least| size < *least) {
        wrong(format!("has {size} {unit}: at least {least}"));
    }
    if let Some(most) = most.filter(|most| size > *most) {
        wrong(format!("has {size} {unit}: at most {most}"));
    }
}
