//! Tests: every query of an alert or a dashboard is made of families and labels that exist.

use std::{collections::BTreeSet, fs, path::PathBuf};

use super::catalog::{self, Family, Kind};

fn repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(repository(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The family that a name in a query means, suffixes of histograms included.
fn family(name: &str) -> Option<&'static Family> {
    catalog::ALL.iter().find(|f| match f.kind {
        Kind::Histogram(_) => ["_bucket", "_sum", "_count"]
            .iter()
            .any(|suffix| name.strip_suffix(suffix) == Some(f.name)),
        _ => f.name == name,
    })
}

fn word(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    &text[..end.unwrap_or(text.len())]
}

/// What is wrong with a query; the families that it uses are added to `used`.
fn faults(query: &str, used: &mut BTreeSet<&'static str>) -> Vec<String> {
    let mut faults = Vec::new();
    let mut labels: BTreeSet<&str> = BTreeSet::from(["le"]);
    let mut matched: Vec<(&str, &str)> = Vec::new();
    for (at, _) in query.match_indices("agent_forge_") {
        let name = word(&query[at..]);
        let Some(found) = family(name) else {
            faults.push(format!("{name} does not exist"));
            continue;
        };
        used.insert(found.name);
        labels.extend(found.labels);
        let rest = &query[at + name.len()..];
        if let Some(selector) = rest.strip_prefix('{').and_then(|r| r.split('}').next()) {
            for part in selector.split(", ") {
                matched.push((name, word(part.trim())));
            }
        }
    }
    if labels.len() == 1 && !query.contains("agent_forge_") {
        faults.push("names no family of ours".to_owned());
    }
    for (name, label) in matched {
        let known = family(name).is_some_and(|f| f.labels.contains(&label) || label == "le");
        if !known {
            faults.push(format!("{name} has no label {label}"));
        }
    }
    for by in query
        .split("by (")
        .skip(1)
        .filter_map(|r| r.split(')').next())
    {
        for label in by.split(", ").filter(|l| !labels.contains(l)) {
            faults.push(format!("no family in it has the label {label}"));
        }
    }
    faults
}

fn alerts() -> Vec<serde_json::Value> {
    let rules: serde_json::Value =
        serde_yaml_ng::from_str(&read("config/prometheus/agent-forge.rules.yaml")).expect("YAML");
    let groups = rules["groups"].as_array().cloned().unwrap_or_default();
    let rules = groups
        .iter()
        .flat_map(|g| g["rules"].as_array().cloned().unwrap_or_default());
    rules.collect()
}

fn text(value: &serde_json::Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[test]
fn alerts_ask_for_what_exists() {
    let alerts = alerts();
    assert!(alerts.len() >= 10, "{} alerts", alerts.len());
    for alert in &alerts {
        let (name, query) = (text(&alert["alert"]), text(&alert["expr"]));
        let faults = faults(query, &mut BTreeSet::new());
        assert!(faults.is_empty(), "{name}: {faults:?}");
    }
}

#[test]
fn each_alert_has_its_runbook_and_its_test() {
    let cases = read("config/prometheus/tests/alerts.yaml");
    for alert in alerts() {
        let name = text(&alert["alert"]);
        let path = text(&alert["annotations"]["runbook"]);
        assert_eq!(path, format!("docs/runbooks/{name}.md"));
        let runbook = read(path);
        let headings = ["## Meaning", "## Impact", "## Check", "## Fix"];
        for part in headings.into_iter().chain([name, text(&alert["expr"])]) {
            assert!(runbook.contains(part), "{path} lacks {part}");
        }
        let fires = format!("alertname: {name}\n    exp_alerts:\n");
        let quiet = format!("alertname: {name}\n    exp_alerts: []");
        assert!(cases.contains(&fires), "no case in which {name} fires");
        assert!(
            cases.contains(&quiet),
            "no case in which {name} does not fire"
        );
    }
}

#[test]
fn both_forms_of_the_rules_are_the_same() {
    let parse = |path| -> serde_json::Value { serde_yaml_ng::from_str(&read(path)).expect("YAML") };
    let plain = parse("config/prometheus/agent-forge.rules.yaml");
    let custom = parse("config/prometheus/prometheus_rule.yaml");
    assert_eq!(plain["groups"], custom["spec"]["groups"]);
}

#[test]
fn dashboards_ask_for_what_exists_and_leave_nothing_out() {
    let mut used = BTreeSet::new();
    let mut queries = 0;
    for board in ["fleet", "pool", "vcenter", "actors"] {
        let path = format!("config/grafana/{board}.json");
        let shown: serde_json::Value = serde_json::from_str(&read(&path)).expect("JSON");
        let panels = shown["panels"].as_array().cloned().unwrap_or_default();
        let targets = panels
            .iter()
            .flat_map(|p| p["targets"].as_array().cloned().unwrap_or_default());
        for target in targets {
            queries += 1;
            let query = text(&target["expr"]);
            let faults = faults(query, &mut used);
            assert!(faults.is_empty(), "{path}: {query}: {faults:?}");
            for label in text(&target["legendFormat"]).split("{{").skip(1) {
                let label = label.split('}').next().unwrap_or_default();
                assert!(
                    query.contains(label) || family(word(query)).is_some(),
                    "{path}: {query} by {label}"
                );
            }
        }
        let variables = shown["templating"]["list"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        for query in variables
            .iter()
            .map(|v| text(&v["query"]))
            .filter(|q| q.contains('('))
        {
            assert_eq!(
                faults(query, &mut used),
                Vec::<String>::new(),
                "{path}: {query}"
            );
        }
    }
    assert!(queries >= 30, "{queries} queries");
    let all: BTreeSet<&str> = catalog::ALL.iter().map(|f| f.name).collect();
    let left_out: Vec<_> = all.difference(&used).collect();
    assert!(left_out.is_empty(), "on no dashboard: {left_out:?}");
}

#[test]
fn a_wrong_query_is_seen() {
    for (query, part) in [
        ("agent_forge_pool_capacities", "agent_forge_pool_capacities"),
        ("agent_forge_pool_capacity{phase=\"x\"}", "no label phase"),
        ("sum by (vm) (agent_forge_actors)", "label vm"),
        ("agent_forge_machine_duration_seconds", "does not exist"),
        ("up", "no family"),
    ] {
        let faults = faults(query, &mut BTreeSet::new());
        assert!(
            faults.iter().any(|f| f.contains(part)),
            "{query}: {faults:?}"
        );
    }
}
