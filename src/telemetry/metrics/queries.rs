//! Tests: every query of an alert or a dashboard uses families and labels that exist.

use std::{
    collections::{BTreeSet, HashSet},
    fs,
    path::PathBuf,
};

use agent_forge_actors::{
    domain::host_class::HostClass,
    nodes::judge,
    ports::{
        effect::EffectKind,
        instruments::{ISO_OPERATIONS, REASSIGNED, RECYCLED, VM_OPERATIONS},
    },
    supervisor::routing::ActorKey,
};
use agent_forge_crds::conditions::{self, Phase, Reason};

use super::{
    MOMENTS, OUTCOMES, STATES,
    catalog::{self, Family, Kind},
};

/// The possible values of that family's label; `None` if any value is possible.
fn values(of: &Family, label: &str) -> Option<Vec<String>> {
    let words = |words: &[&str]| Some(words.iter().map(|w| (*w).to_owned()).collect());
    match label {
        "state" if of.name == catalog::CAPACITY.name => words(&STATES),
        "state" if of.name == catalog::BUFFER.name => words(&["wanted", "ready", "making"]),
        "state" => words(&["done", "total"]),
        "class" if of.name == catalog::NODES.name => {
            words(&["ours", "foreign", "ignored", "unknown"])
        }
        "kind" if of.name == catalog::NODE_FINDINGS.name => words(&judge::KINDS),
        "phase" => Some(Phase::ALL.iter().map(ToString::to_string).collect()),
        "condition" => words(&conditions::POOL_CONDITIONS),
        "status" => words(&["True", "False", "Unknown"]),
        "reason" if of.name == catalog::CONDITION.name => {
            Some(Reason::ALL.iter().map(ToString::to_string).collect())
        }
        "effect" => {
            let names: Vec<_> = EffectKind::ALL.iter().map(|kind| kind.name()).collect();
            words(&names)
        }
        "outcome" => words(&OUTCOMES),
        "until" => words(&MOMENTS.map(|(_, until)| until)),
        "operation" if of.name == catalog::VM_OPERATIONS.name => words(&VM_OPERATIONS),
        "operation" if of.name == catalog::ISO_OPERATIONS.name => words(&ISO_OPERATIONS),
        "result" if of.name == catalog::RECYCLED.name => words(&RECYCLED),
        "result" if of.name == catalog::REASSIGNED.name => words(&REASSIGNED),
        "result" => words(&["success", "error"]),
        "kind" => words(&ActorKey::KINDS),
        "coalesced" | "free" => words(&["true", "false"]),
        "class" if of.name == catalog::FOREIGN.name => Some(
            HostClass::ALL
                .iter()
                .map(|class| class.as_str().to_owned())
                .collect(),
        ),
        _ => None,
    }
}

fn repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(repository(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The family of a name in a query. Suffixes of histograms are accepted.
fn family(name: &str) -> Option<&'static Family> {
    let all = catalog::ALL.iter().chain(catalog::PROCESS);
    all.into_iter().find(|f| match f.kind {
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

/// The defects of a query. The families that it uses are added to `used`.
fn faults(query: &str, used: &mut BTreeSet<&'static str>) -> Vec<String> {
    let mut faults = Vec::new();
    // The scrape adds the last two.
    let mut labels: BTreeSet<&str> = BTreeSet::from(["le", "job", "namespace"]);
    let mut matched: Vec<(&str, &str)> = Vec::new();
    let ours = query.match_indices("agent_forge_");
    for (at, _) in ours.chain(query.match_indices("process_")) {
        let name = word(&query[at..]);
        let Some(found) = family(name) else {
            faults.push(format!("{name} does not exist"));
            continue;
        };
        used.insert(found.name);
        labels.extend(found.shown_labels());
        let rest = &query[at + name.len()..];
        if let Some(selector) = rest.strip_prefix('{').and_then(|r| r.split('}').next()) {
            for part in selector.split(", ") {
                matched.push((name, part.trim()));
            }
        }
    }
    if used.is_empty() && faults.is_empty() {
        faults.push("names no family of ours".to_owned());
    }
    for (name, part) in matched {
        let label = word(part);
        let Some(found) =
            family(name).filter(|f| f.shown_labels().any(|known| known == label) || label == "le")
        else {
            faults.push(format!("{name} has no label {label}"));
            continue;
        };
        let asked = part.split('"').nth(1).unwrap_or_default().split('|');
        // The variable of a dashboard may have any value.
        for value in asked.filter(|v| !v.is_empty() && !v.starts_with('$')) {
            if values(found, label).is_some_and(|all| !all.iter().any(|known| known == value)) {
                faults.push(format!("{name}: {label} is never {value}"));
            }
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

/// The labels of a query's answer: the labels it is grouped by, or else all labels of its families.
fn labels_left(query: &str) -> BTreeSet<&str> {
    let by = query.split("by (").nth(1).and_then(|r| r.split(')').next());
    if let Some(by) = by {
        return by.split(", ").filter(|l| *l != "le").collect();
    }
    if ["sum(", "max(", "min("].iter().any(|f| query.contains(f)) {
        return BTreeSet::new();
    }
    let names = query.match_indices("agent_forge_");
    let families = names.filter_map(|(at, _)| family(word(&query[at..])));
    let ours = families.flat_map(Family::shown_labels);
    // The scrape adds these.
    ours.chain(["job", "instance"]).collect()
}

fn alerts() -> Vec<serde_json::Value> {
    let rules: serde_json::Value =
        serde_saphyr::from_str(&read("config/prometheus/agent-forge.rules.yaml")).expect("YAML");
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
fn each_reason_that_concerns_a_whole_vcenter_belongs_to_one_alert() {
    let asked = |name: &str| -> HashSet<Reason> {
        let alert = alerts().into_iter().find(|a| text(&a["alert"]) == name);
        let alert = alert.unwrap_or_else(|| panic!("no alert {name}"));
        let reasons = text(&alert["expr"]).split("reason=~\"").nth(1);
        let reasons = reasons.and_then(|r| r.split('"').next()).expect("reasons");
        reasons.split('|').map(Reason::from).collect()
    };
    let alerts = [
        asked("AgentForgeVCenterUnreachable"),
        asked("AgentForgeVCenterAccessLost"),
    ];
    // A pool's condition shows these reasons first. Otherwise a failure of one object would hide them from the alerts.
    for reason in Reason::ALL {
        let times = alerts.iter().filter(|a| a.contains(reason)).count();
        assert_eq!(
            times,
            usize::from(reason.concerns_whole_vcenter()),
            "{reason} stands in {times} of them"
        );
    }
}

/// The start of each alert's `runbook_url`. docs/reference/observability.md says how to change it.
const HOME: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/");

#[test]
fn the_document_says_how_runbooks_are_found_elsewhere() {
    let told = read("docs/reference/observability.md");
    assert!(
        told.contains(HOME),
        "docs/reference/observability.md lacks {HOME}"
    );
}

#[test]
fn each_alert_has_its_runbook_and_its_test() {
    let cases = read("config/prometheus/tests/alerts.yaml");
    let told = read("docs/reference/observability.md");
    for alert in alerts() {
        let name = text(&alert["alert"]);
        let url = text(&alert["annotations"]["runbook_url"]);
        let path = url.strip_prefix(HOME).expect("a link into this repository");
        assert_eq!(path, format!("docs/runbooks/{name}.md"));
        let runbook = read(path);
        let severity = text(&alert["labels"]["severity"]);
        let after = alert["for"].as_str().map(|f| format!(" for {f}"));
        let rule = format!(
            "`{}`{}, severity {severity}.",
            text(&alert["expr"]),
            after.unwrap_or_default()
        );
        let headings = ["## Meaning", "## Impact", "## Check", "## Fix"];
        for part in headings.into_iter().chain([name, rule.as_str()]) {
            assert!(runbook.contains(part), "{path} lacks {part}");
        }
        let row = format!("| [{name}](../runbooks/{name}.md) | ");
        assert!(
            told.contains(&row),
            "docs/reference/observability.md lacks {row}"
        );
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
    let parse = |path| -> serde_json::Value { serde_saphyr::from_str(&read(path)).expect("YAML") };
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
            let mut here = BTreeSet::new();
            let faults = faults(query, &mut here);
            assert!(faults.is_empty(), "{path}: {query}: {faults:?}");
            used.extend(here);
            let left = labels_left(query);
            for label in text(&target["legendFormat"]).split("{{").skip(1) {
                let label = label.split('}').next().unwrap_or_default();
                assert!(left.contains(label), "{path}: {query} has no {label} left");
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
            let mut here = BTreeSet::new();
            let faults = faults(query, &mut here);
            assert!(faults.is_empty(), "{path}: {query}: {faults:?}");
            used.extend(here);
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
        ("agent_forge_pool_vms{phase=\"Lost\"}", "never Lost"),
        (
            "agent_forge_pool_condition{condition=\"Ready\", reason=~\"NoAnswer|NoPermission\"}",
            "never NoAnswer",
        ),
        (
            "agent_forge_effects_total{effect=\"log_in\"}",
            "never log_in",
        ),
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

#[test]
fn a_legend_may_name_what_is_left_of_the_labels_alone() {
    let left = |query| labels_left(query).into_iter().collect::<Vec<_>>();
    assert_eq!(
        left("sum by (le, task) (rate(agent_forge_actors[1h]))"),
        ["task"]
    );
    assert_eq!(left("agent_forge_actors"), ["instance", "job", "kind"]);
    assert!(left("sum(agent_forge_actors{kind=\"vm\"})").is_empty());
}
