use serde_json::{Value, json};

use super::*;

/// The tables that the API server itself is checked with.
const SAMPLE: &str = include_str!("../../../crds/tests/fixtures/pool.yaml");
const AGENT: &str = include_str!("../../../crds/tests/fixtures/agent.yaml");
const REFUSED: &str = include_str!("../../../crds/tests/fixtures/refused.yaml");

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).expect("YAML")
}

fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let fields = target.as_object_mut().expect("an object");
    for (name, value) in patch {
        if value.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

fn checked(objects: &[Value]) -> Validation {
    let text: Vec<String> = objects.iter().map(Value::to_string).collect();
    validate(&manifest_file::parse(&text.join("\n---\n")).expect("documents"))
}

#[test]
fn whatever_the_api_server_refuses_is_found_offline_with_its_field() {
    for sample in [SAMPLE, AGENT] {
        let found = checked(&[yaml(sample)]);
        assert_eq!(found.problems, [], "{}", found.text());
        assert_eq!(found.verdict(), Verdict::Nothing);
        assert!(found.unchecked.is_empty(), "{:?}", found.unchecked);
    }
    let rows = yaml(REFUSED);
    for row in rows.as_array().expect("rows") {
        // A change of a status is no file.
        if row.get("before").is_some() {
            continue;
        }
        let sample = if row["kind"] == "VsphereAgentPool" {
            SAMPLE
        } else {
            AGENT
        };
        let mut object = yaml(sample);
        merge(&mut object, &row["patch"]);
        let found = checked(&[object]);
        let field = format!("{}:", row["mustMention"].as_str().expect("a field"));
        let look = if row["byRule"] == true {
            FoundBy::Rule
        } else {
            FoundBy::Schema
        };
        let named = |p: &Problem| p.message.starts_with(&field) && p.found_by == look;
        assert!(
            found.problems.iter().any(named),
            "{}: {}",
            row["name"],
            found.text()
        );
        assert_eq!(found.verdict(), Verdict::Findings);
    }
}

#[test]
fn what_the_operator_cannot_use_is_found() {
    for (patch, said) in [
        (
            json!({"spec": {"vsphere": {"scsiType": "ide"}}}),
            "spec.vsphere.scsiType",
        ),
        (
            json!({"spec": {"vsphere": {"networkAdapterType": "token-ring"}}}),
            "spec.vsphere.networkAdapterType",
        ),
        (
            json!({"spec": {"agent": {"labels": {"agentMachineRef": "x"}}}}),
            "spec.agent.labels: \"agentMachineRef\"",
        ),
        (
            json!({"spec": {"agent": {"labels": {"a b": "x"}}}}),
            "spec.agent.labels: \"a b\"",
        ),
        (
            json!({"spec": {"agent": {"labels": {"a": "-x"}}}}),
            "spec.agent.labels: \"a\"",
        ),
        (
            json!({"spec": {"iso": {"pathPrefix": "a/../../b"}}}),
            "spec.iso.pathPrefix",
        ),
        (
            json!({"spec": {"iso": {"checkInterval": "soon"}}}),
            "spec.iso.checkInterval",
        ),
        (
            json!({"spec": {"scaling": {"bufferAgents": 1, "bufferSchedule": [
                {"days": "Mon", "from": "07:00", "to": "19:00", "timeZone": "Zurich", "bufferAgents": 2},
            ]}}}),
            "spec.scaling.bufferSchedule: window 1: \"Zurich\" is no time zone",
        ),
        (
            json!({"spec": {"classes": [
                {"name": "large", "template": {}, "labels": {"size": "large"}},
                {"name": "huge", "template": {}, "labels": {"size": "large"}},
            ]}}),
            "spec.classes: class \"huge\" has the labels of class \"large\"",
        ),
        (
            json!({"spec": {"scaling": {"startAfter": [yaml(SAMPLE)["metadata"]["name"]]}}}),
            "spec.scaling.startAfter names the pool itself",
        ),
        (
            json!({"spec": {
                "nodePoolRef": null, "hostedClusterRef": null, "controlPlaneNamespace": null,
                "vsphere": {"folder": "hosts"}, "reassign": {"group": "lab"},
            }}),
            "a pool without nodePoolRef keeps hosts for its group, and this one keeps none",
        ),
        (
            json!({"metadata": {"name": "a".repeat(64)}}),
            "metadata.name",
        ),
    ] {
        let mut object = yaml(SAMPLE);
        merge(&mut object, &patch);
        let found = checked(&[object]);
        let text = found.text();
        assert!(
            text.contains(said) && text.contains("cannot use it"),
            "{patch}: {text}"
        );
        assert_eq!(found.problems.len(), 1, "{text}");
    }
}

#[test]
fn other_kinds_versions_and_twins_are_told() {
    let mut old = yaml(SAMPLE);
    old["apiVersion"] = json!("agent-forge.containeroo.ch/v1");
    assert!(checked(&[old]).text().contains("apiVersion"));
    let found = checked(&[json!({"kind": "Secret", "metadata": {"name": "vc"}})]);
    assert_eq!(found.verdict(), Verdict::Unknown);
    assert!(found.text().contains("Secret vc"), "{}", found.text());
    let mut twin = yaml(SAMPLE);
    twin["metadata"]["name"] = json!("twin");
    let found = checked(&[yaml(SAMPLE), twin]);
    assert!(found.text().contains("PoolConflict"), "{}", found.text());
    let mut typo = yaml(SAMPLE);
    typo["spec"]["templates"] = json!({});
    assert!(
        checked(&[typo])
            .text()
            .contains("spec.templates: is not in the schema")
    );
}

/// Each rule of the definitions is known here, so that nothing is left to the API server.
#[test]
fn every_rule_of_the_definitions_is_known() {
    fn walk(schema: &Value, seen: &mut usize) {
        match schema {
            Value::Object(fields) => {
                let rules = fields
                    .get("x-kubernetes-validations")
                    .and_then(Value::as_array);
                for rule in rules.into_iter().flatten() {
                    let text = rule["rule"].as_str().expect("a rule");
                    assert!(cel::holds(text, &json!("1s")).is_some(), "{text}");
                    *seen += 1;
                }
                fields.values().for_each(|below| walk(below, seen));
            }
            Value::Array(items) => items.iter().for_each(|below| walk(below, seen)),
            _ => {}
        }
    }
    let mut seen = 0;
    for kind in ["VsphereAgentPool", "VsphereAgent"] {
        walk(&manifest_file::schema(kind).expect("a schema"), &mut seen);
    }
    assert_eq!(seen, 10);
}

/// A reader applies what a page shows.
#[test]
fn each_whole_pool_on_a_page_is_valid() {
    fn pages(folder: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                pages(&path, found);
            } else if path.extension().is_some_and(|end| end == "md") {
                found.push(path);
            }
        }
    }
    let mut all = Vec::new();
    let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    pages(&docs, &mut all);
    let mut seen = 0;
    for page in all {
        let text = std::fs::read_to_string(&page).expect("a page");
        let blocks = text.split("```yaml\n").skip(1);
        let blocks = blocks.filter_map(|rest| rest.split("```").next());
        let pools = blocks.filter(|b| b.contains("\nkind: VsphereAgentPool\n"));
        for block in pools.filter(|b| b.contains("\nspec:\n")) {
            let found = validate(&manifest_file::parse(block).expect("documents"));
            assert_eq!(found.problems, [], "{}: {}", page.display(), found.text());
            seen += 1;
        }
    }
    assert!(seen > 0, "no page has a pool");
}
