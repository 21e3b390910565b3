//! Checks a value with a structural schema as the API server does, without CEL rules, which need the server.

use regex::Regex;
use serde_json::{Map, Value};

/// The problems of `value`, each with the path of its field.
pub fn problems(schema: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(schema, value, "", &mut found);
    found
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
            other => panic!("{path}: schema has the type {other}"),
        };
        if !fits {
            wrong(format!("is no {kind}: {value}"));
            return;
        }
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        wrong(format!("{value} is none of {allowed:?}"));
    }
    match value {
        Value::String(text) => string(schema, text, &mut wrong),
        Value::Number(number) => {
            let number = number.as_f64().unwrap();
            if schema["minimum"]
                .as_f64()
                .is_some_and(|least| number < least)
                || schema["maximum"].as_f64().is_some_and(|most| number > most)
            {
                wrong(format!("{number} is out of range"));
            }
            if schema["format"] == "int32" && number.abs() > f64::from(i32::MAX) {
                wrong(format!("{number} is no int32"));
            }
        }
        Value::Array(items) => {
            size(schema, "Items", items.len(), &mut wrong);
            for (index, item) in items.iter().enumerate() {
                check(&schema["items"], item, &format!("{path}[{index}]"), found);
            }
        }
        Value::Object(fields) => object(schema, fields, path, found),
        _ => {}
    }
}

fn string(schema: &Value, text: &str, wrong: &mut impl FnMut(String)) {
    size(schema, "Length", text.chars().count(), wrong);
    if let Some(pattern) = schema["pattern"].as_str()
        && !Regex::new(pattern).unwrap().is_match(text)
    {
        wrong(format!("{text:?} does not match {pattern}"));
    }
    if schema["format"] == "date-time" {
        let date = r"^\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})$";
        if !Regex::new(date).unwrap().is_match(text) {
            wrong(format!("{text:?} is no date-time"));
        }
    }
}

fn object(schema: &Value, fields: &Map<String, Value>, path: &str, found: &mut Vec<String>) {
    let below = |name: &str| {
        if path.is_empty() {
            name.to_owned()
        } else {
            format!("{path}.{name}")
        }
    };
    size(schema, "Properties", fields.len(), &mut |what| {
        found.push(format!("{path}: {what}"));
    });
    for required in schema["required"].as_array().into_iter().flatten() {
        let required = required.as_str().unwrap();
        if !fields.contains_key(required) {
            found.push(format!("{}: is required", below(required)));
        }
    }
    let open = schema["x-kubernetes-preserve-unknown-fields"] == true;
    let declared = schema["properties"].as_object();
    let shapeless = declared.is_none() && schema["additionalProperties"].is_null();
    for (name, value) in fields {
        match declared.and_then(|all| all.get(name)) {
            Some(property) => check(property, value, &below(name), found),
            None if schema["additionalProperties"].is_object() => {
                check(&schema["additionalProperties"], value, &below(name), found);
            }
            // The API server itself checks metadata better than this schema.
            None if open || (shapeless && path == "metadata") => {}
            None => found.push(format!("{}: is not in the schema", below(name))),
        }
    }
}

fn size(schema: &Value, what: &str, size: usize, wrong: &mut impl FnMut(String)) {
    let size = size as u64;
    if schema[format!("min{what}")]
        .as_u64()
        .is_some_and(|least| size < least)
        || schema[format!("max{what}")]
            .as_u64()
            .is_some_and(|most| size > most)
    {
        wrong(format!("{size} {what} are out of range"));
    }
}
