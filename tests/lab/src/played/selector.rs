//! Kubernetes label selectors, evaluated as apimachinery does.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use serde_json::Value;

/// Whether `labels` fit `selector`, a `LabelSelector` as JSON. No selector fits everything.
///
/// The whole selector is checked first, so a malformed one fails for any labels.
///
/// # Errors
/// The selector has an unknown operator, or one without the values that it needs.
pub fn fits(selector: Option<&Value>, labels: &BTreeMap<String, String>) -> Result<bool> {
    let Some(selector) = selector else {
        return Ok(true);
    };
    let mut equal = selector["matchLabels"].as_object().into_iter().flatten();
    let mut fitting =
        equal.all(|(key, wanted)| labels.get(key).map(String::as_str) == wanted.as_str());
    for expression in selector["matchExpressions"]
        .as_array()
        .into_iter()
        .flatten()
    {
        fitting &= expression_fits(expression, labels)?;
    }
    Ok(fitting)
}

fn expression_fits(expression: &Value, labels: &BTreeMap<String, String>) -> Result<bool> {
    let key = expression["key"].as_str().unwrap_or_default();
    let operator = expression["operator"].as_str().unwrap_or_default();
    let values: Vec<&str> = expression["values"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let have = labels.get(key).map(String::as_str);
    let among = have.is_some_and(|value| values.contains(&value));
    match operator {
        "In" | "NotIn" if values.is_empty() => {
            bail!("label selector: {operator} on {key:?} needs values")
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            bail!("label selector: {operator} on {key:?} takes no values")
        }
        "In" => Ok(among),
        "NotIn" => Ok(!among),
        "Exists" => Ok(have.is_some()),
        "DoesNotExist" => Ok(have.is_none()),
        _ => bail!("label selector: {operator:?} is not an operator"),
    }
}
