//! Finds the differences between two JSON documents.

use serde_json::Value;

/// Differences by path. `ours` is what our code wrote, `theirs` what `vim_rs` writes for the same.
pub fn compare(ours: &Value, theirs: &Value) -> Vec<String> {
    let mut found = Vec::new();
    walk("", ours, theirs, &mut found);
    found
}

fn walk(path: &str, ours: &Value, theirs: &Value, found: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            for (key, value) in a {
                match b.get(key) {
                    Some(other) => walk(&format!("{path}/{key}"), value, other, found),
                    None => found.push(format!("{path}/{key} is not known to the vendor's type")),
                }
            }
            let missing = b.keys().filter(|key| !a.contains_key(*key));
            found.extend(missing.map(|key| format!("{path}/{key} is missing on our side")));
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (at, (value, other)) in a.iter().zip(b).enumerate() {
                walk(&format!("{path}/{at}"), value, other, found);
            }
        }
        // The vendor's `float` has 32 bits.
        (Value::Number(a), Value::Number(b)) if single(a) == single(b) => {}
        (a, b) if a == b => {}
        (a, b) => found.push(format!("{path} is {a} on our side, {b} on theirs")),
    }
}

/// The number itself if it is whole, else rounded to a `float`.
fn single(number: &serde_json::Number) -> Option<(Option<i64>, u32)> {
    let value = number.as_f64()?;
    Some((number.as_i64(), (value as f32).to_bits()))
}
