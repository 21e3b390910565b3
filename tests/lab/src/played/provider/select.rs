//! Which Agent an AgentMachine gets: the first valid one that its selector fits.

use std::collections::BTreeMap;

use anyhow::Result;
use kube::core::DynamicObject;
use serde_json::Value;

use super::{
    super::{mirror::Object, object::Facts as _, selector},
    AGENT_MACHINE_REF,
};

/// Whether the provider would take this Agent: it is approved, not bound, connected and validated. Nothing else counts.
#[must_use]
pub fn is_valid(agent: &DynamicObject) -> bool {
    let is = |kind: &str, status: &str| {
        agent
            .condition(kind)
            .is_some_and(|condition| condition.status == status)
    };
    agent.flag("/spec/approved")
        && is("Bound", "False")
        && is("Connected", "True")
        && is("Validated", "True")
}

/// The Agents to try in turn, in the order of `agents`.
///
/// # Errors
/// The selector is malformed.
pub fn candidates(agents: Vec<Object>, wanted: Option<&Value>) -> Result<Vec<Object>> {
    // A malformed selector is an error even without any Agent.
    selector::fits(wanted, &BTreeMap::new())?;
    let mut found = Vec::new();
    for agent in agents {
        let free = agent.label(AGENT_MACHINE_REF).is_none();
        if free && selector::fits(wanted, &agent.label_map())? && is_valid(&agent) {
            found.push(agent);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    fn agent(name: &str, labels: &Value, conditions: [&str; 3], approved: bool) -> Object {
        let [bound, connected, validated] = conditions;
        let object = json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {"approved": approved},
            "status": {"conditions": [
                {"type": "Bound", "status": bound},
                {"type": "Connected", "status": connected},
                {"type": "Validated", "status": validated},
            ]},
        });
        Arc::new(serde_json::from_value(object).unwrap_or_else(|error| panic!("{error}")))
    }

    #[test]
    fn validity_asks_for_exactly_four_things() {
        let ok = ["False", "True", "True"];
        assert!(is_valid(&agent("a", &json!({}), ok, true)));
        assert!(!is_valid(&agent("a", &json!({}), ok, false)));
        for (at, value) in [
            (0, "True"),
            (0, "Unknown"),
            (1, "False"),
            (2, "Unknown"),
            (2, "False"),
        ] {
            let mut conditions = ok;
            conditions[at] = value;
            assert!(
                !is_valid(&agent("a", &json!({}), conditions, true)),
                "{conditions:?}"
            );
        }
    }
}
