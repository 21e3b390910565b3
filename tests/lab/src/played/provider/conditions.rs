//! The conditions of an AgentMachine in either generation.

use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::super::{condition::Condition, object::Facts as _, options::Generation};

const RESERVED: &str = "AgentReserved";
/// The AgentMachine's condition, the Agent's condition that it mirrors, and the legacy severity for status False.
const MIRRORED: [(&str, &str, &str); 4] = [
    ("AgentSpecSynced", "SpecSynced", "Error"),
    ("AgentValidated", "Validated", "Error"),
    ("AgentRequirementsMet", "RequirementsMet", "Error"),
    ("Installed", "Installed", "Info"),
];

/// The conditions without a reserved Agent. `trouble` is the error of a failed search.
#[must_use]
pub fn unreserved(generation: Generation, trouble: Option<&str>) -> Vec<Condition> {
    let reserved = match trouble {
        None => Condition::new(RESERVED, "False", "NoSuitableAgents", "").severe("Warning"),
        Some(text) => Condition::new(RESERVED, "False", "AgentNotYetFound", text).severe("Info"),
    };
    let mut all = vec![reserved];
    for (kind, _, _) in MIRRORED {
        all.push(
            Condition::new(kind, "False", "AgentNotYetFound", "Agent not yet reserved")
                .severe("Info"),
        );
    }
    summarised(generation, all)
}

/// The conditions with the reserved `agent`. They show the Agent's conditions.
#[must_use]
pub fn reserved(generation: Generation, agent: &DynamicObject) -> Vec<Condition> {
    let legacy = generation == Generation::Legacy;
    let passed = |kind, reason| Condition::new(kind, "True", if legacy { "" } else { reason }, "");
    let mut all = vec![passed(RESERVED, "AgentReserved")];
    for (kind, source, severity) in MIRRORED {
        all.push(match agent.condition(source) {
            Some(condition) if condition.status == "True" => passed(kind, "AgentConditionTrue"),
            Some(condition) => {
                let failed = condition.reason == "InstallationFailed";
                Condition::new(kind, "False", condition.reason, condition.message)
                    .severe(if failed { "Error" } else { severity })
            }
            None => Condition::new(
                kind,
                "False",
                if legacy { "" } else { "ConditionNotFound" },
                "",
            )
            .severe(severity),
        });
    }
    summarised(generation, all)
}

/// Whether the summary is ready.
#[must_use]
pub fn are_ready(conditions: &[Condition]) -> bool {
    conditions
        .iter()
        .any(|condition| condition.kind == "Ready" && condition.status == "True")
}

/// The list as Cluster API's helpers write it: `Ready` first, then the others by type. Each condition names the object's
/// `generation`, which the legacy format does not have.
#[must_use]
pub fn arranged(list: Value, generation: Option<i64>) -> Value {
    let mut list = list.as_array().cloned().unwrap_or_default();
    list.sort_by_key(|condition| {
        let kind = condition["type"].as_str().unwrap_or_default().to_owned();
        (kind != "Ready", kind)
    });
    if let Some(generation) = generation {
        for condition in &mut list {
            condition["observedGeneration"] = json!(generation);
        }
    }
    Value::Array(list)
}

fn summarised(generation: Generation, mut all: Vec<Condition>) -> Vec<Condition> {
    let ready = match generation {
        Generation::Legacy => legacy_summary(&all),
        Generation::Current => current_summary(&all),
    };
    all.push(ready);
    all
}

/// The summary has the reason of the most severe issue. Its message counts the completed conditions.
fn legacy_summary(all: &[Condition]) -> Condition {
    let rank = |condition: &&Condition| match condition.severity {
        "Error" => 0,
        "Warning" => 1,
        _ => 2,
    };
    let issues: Vec<&Condition> = all
        .iter()
        .filter(|condition| condition.status != "True")
        .collect();
    match issues.iter().copied().min_by_key(rank) {
        None => Condition::new("Ready", "True", "", ""),
        Some(worst) => {
            let done = all.len() - issues.len();
            let message = format!("{done} of {} completed", all.len());
            Condition::new("Ready", "False", &worst.reason, &message).severe(worst.severity)
        }
    }
}

/// The summary has one reason for any issue. Its message lists them all.
fn current_summary(all: &[Condition]) -> Condition {
    let line = |condition: &Condition| {
        let text = if condition.message.is_empty() {
            &condition.reason
        } else {
            &condition.message
        };
        format!("* {}: {text}", condition.kind)
    };
    let of = |status: &str| -> Vec<String> {
        all.iter()
            .filter(|condition| condition.status == status)
            .map(line)
            .collect()
    };
    let (issues, unknown) = (of("False"), of("Unknown"));
    if !issues.is_empty() {
        Condition::new(
            "Ready",
            "False",
            "IssuesReported",
            &[issues, unknown].concat().join("\n"),
        )
    } else if !unknown.is_empty() {
        Condition::new("Ready", "Unknown", "UnknownReported", &unknown.join("\n"))
    } else {
        Condition::new("Ready", "True", "InfoReported", "")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(conditions: &[Condition]) -> (&str, &str, &str) {
        let ready = conditions.last().unwrap_or_else(|| panic!("no summary"));
        assert_eq!(ready.kind, "Ready");
        (ready.status, &ready.reason, &ready.message)
    }

    #[test]
    fn waiting_looks_different_in_each_generation() {
        let current = unreserved(Generation::Current, None);
        let (status, reason, message) = ready(&current);
        assert_eq!((status, reason), ("False", "IssuesReported"));
        assert!(message.starts_with(
            "* AgentReserved: NoSuitableAgents\n* AgentSpecSynced: Agent not yet reserved"
        ));
        let legacy = unreserved(Generation::Legacy, None);
        assert_eq!(
            ready(&legacy),
            ("False", "NoSuitableAgents", "0 of 5 completed")
        );
        for conditions in [current, legacy] {
            assert_eq!(
                (conditions[0].kind, conditions[0].reason.as_str()),
                ("AgentReserved", "NoSuitableAgents")
            );
        }
    }

    #[test]
    fn ready_comes_first_and_the_others_by_type() {
        let list = json!([{"type": "Installed"}, {"type": "AgentReserved"}, {"type": "Ready"}]);
        let wanted = json!([{"type": "Ready"}, {"type": "AgentReserved"}, {"type": "Installed"}]);
        assert_eq!(arranged(list.clone(), None), wanted);
        let current = arranged(list, Some(2));
        assert_eq!(
            current[0],
            json!({"type": "Ready", "observedGeneration": 2})
        );
    }

    #[test]
    fn a_failed_search_is_not_a_demand() {
        let conditions = unreserved(Generation::Current, Some("no cluster"));
        assert_eq!(
            (
                conditions[0].reason.as_str(),
                conditions[0].message.as_str()
            ),
            ("AgentNotYetFound", "no cluster")
        );
    }

    #[test]
    fn a_reserved_machine_mirrors_the_conditions_of_its_agent() {
        let agent: DynamicObject = serde_json::from_value(json!({
            "metadata": {"name": "a"},
            "status": {"conditions": [
                {"type": "SpecSynced", "status": "True", "reason": "SyncOK", "message": "ok"},
                {"type": "Validated", "status": "True", "reason": "ValidationsPassing", "message": "ok"},
                {"type": "Installed", "status": "False", "reason": "InstallationInProgress", "message": "busy"},
            ]},
        }))
        .unwrap_or_else(|error| panic!("{error}"));
        let current = reserved(Generation::Current, &agent);
        let reasons: Vec<&str> = current
            .iter()
            .map(|condition| condition.reason.as_str())
            .collect();
        assert_eq!(
            reasons,
            [
                "AgentReserved",
                "AgentConditionTrue",
                "AgentConditionTrue",
                "ConditionNotFound",
                "InstallationInProgress",
                "IssuesReported"
            ]
        );
        let legacy = reserved(Generation::Legacy, &agent);
        assert_eq!(
            ready(&legacy),
            ("False", "", "3 of 5 completed"),
            "the missing condition is an error without reason"
        );
        assert!(!are_ready(&legacy));
    }
}
