//! Which Agent an AgentMachine gets: the first valid one that its selector fits.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

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

/// The Agents to try in turn: in the order of `agents`, or shuffled by `seed` and the AgentMachine's UID.
///
/// # Errors
/// The selector is malformed.
pub fn candidates(
    agents: Vec<Object>,
    wanted: Option<&Value>,
    seed: Option<u64>,
    uid: &str,
) -> Result<Vec<Object>> {
    // A malformed selector is an error even without any Agent.
    selector::fits(wanted, &BTreeMap::new())?;
    let mut found = Vec::new();
    for agent in agents {
        let free = agent.label(AGENT_MACHINE_REF).is_none();
        if free && selector::fits(wanted, &agent.label_map())? && is_valid(&agent) {
            found.push(agent);
        }
    }
    if let Some(seed) = seed {
        found.sort_by_cached_key(|agent| {
            let mut hasher = DefaultHasher::new();
            (seed, uid, agent.name()).hash(&mut hasher);
            hasher.finish()
        });
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

    #[test]
    fn selector_and_claim_narrow_and_a_seed_reorders() {
        let ok = ["False", "True", "True"];
        let list = || {
            ["a", "b", "c", "d", "e"]
                .iter()
                .map(|name| agent(name, &json!({"pool": "x"}), ok, true))
                .chain([
                    agent("other", &json!({"pool": "y"}), ok, true),
                    agent(
                        "claimed",
                        &json!({"pool": "x", "agentMachineRef": "m"}),
                        ok,
                        true,
                    ),
                ])
                .collect::<Vec<_>>()
        };
        let wanted = json!({"matchLabels": {"pool": "x"}});
        let names = |seed| {
            candidates(list(), Some(&wanted), seed, "uid")
                .map(|found| {
                    found
                        .iter()
                        .map(|agent| agent.name().to_owned())
                        .collect::<Vec<_>>()
                })
                .unwrap_or_default()
        };
        assert_eq!(names(None), ["a", "b", "c", "d", "e"]);
        assert!(
            (0..8).any(|seed| names(Some(seed)) != names(None)),
            "no seed changes the order"
        );
        assert_eq!(names(Some(3)), names(Some(3)));
        let malformed = json!({"matchExpressions": [{"key": "pool", "operator": "Near"}]});
        assert!(candidates(Vec::new(), Some(&malformed), None, "uid").is_err());
    }
}
