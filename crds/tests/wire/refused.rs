//! Tables of objects that the API server must refuse, and of unusual ones that it must accept because the predecessor's
//! did. This test checks them with the schema alone. CEL rules need the real server.

use crate::files;
use agent_forge_crds::manifest::{self, structural};
use serde_json::{Value, json};

/// The definition and the sample of a kind.
fn base(kind: &str) -> (Value, Value) {
    match kind {
        "VsphereAgentPool" => (files::json(&manifest::pool()), files::fixture("pool.yaml")),
        "VsphereAgent" => (
            files::json(&manifest::agent()),
            files::fixture("agent.yaml"),
        ),
        other => panic!("kind {other}"),
    }
}

/// JSON merge patch, RFC 7386.
fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let fields = target.as_object_mut().unwrap();
    for (name, value) in patch {
        if value.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

fn text<'a>(row: &'a Value, field: &str) -> &'a str {
    row[field]
        .as_str()
        .unwrap_or_else(|| panic!("{field} of {row}"))
}

#[test]
fn the_samples_are_accepted() {
    for kind in ["VsphereAgentPool", "VsphereAgent"] {
        let (definition, sample) = base(kind);
        let found = structural::problems(files::schema(&definition, "v1alpha1"), &sample);
        assert_eq!(found, Vec::<String>::new(), "{kind}");
    }
}

#[test]
fn bad_objects_are_refused_with_the_name_of_the_field() {
    let rows = files::fixture("refused.yaml");
    let rows = rows.as_array().unwrap();
    assert!(rows.len() >= 25, "{} rows", rows.len());
    for row in rows {
        let name = text(row, "name");
        let (definition, mut object) = base(text(row, "kind"));
        let schema = files::schema(&definition, "v1alpha1");
        let must_mention = text(row, "mustMention");
        if let Some(before) = row.get("before") {
            merge(&mut object, before);
            let found = structural::problems(schema, &object);
            assert_eq!(found, Vec::<String>::new(), "{name}: before");
        }
        merge(&mut object, &row["patch"]);
        let found = structural::problems(schema, &object);
        if row["byRule"] == true {
            assert_eq!(
                found,
                Vec::<String>::new(),
                "{name}: the schema alone accepts it"
            );
            let rules = rule_at(schema, must_mention);
            assert!(rules.is_array(), "{name}: no rule at {must_mention}");
        } else {
            let named = found
                .iter()
                .any(|problem| problem.starts_with(&format!("{must_mention}:")));
            assert!(named, "{name}: {must_mention} is not named in {found:?}");
        }
    }
}

fn rule_at<'a>(schema: &'a Value, path: &str) -> &'a Value {
    let field = path
        .split('.')
        .fold(schema, |schema, name| &schema["properties"][name]);
    &field["x-kubernetes-validations"]
}

#[test]
fn odd_objects_of_the_predecessor_are_accepted() {
    let theirs = files::shared(
        "predecessor",
        "odd objects against the predecessor's schema",
    );
    let rows = files::fixture("accepted.yaml");
    for row in rows.as_array().unwrap() {
        let (definition, mut object) = base(text(row, "kind"));
        merge(&mut object, &row["patch"]);
        let name = text(row, "name");
        let found = structural::problems(files::schema(&definition, "v1alpha1"), &object);
        assert_eq!(found, Vec::<String>::new(), "{name}");
        if let Some(directory) = &theirs {
            let file = match text(row, "kind") {
                "VsphereAgentPool" => manifest::POOL_FILE,
                _ => manifest::AGENT_FILE,
            };
            let theirs = files::yaml(&directory.join(file));
            let found = structural::problems(files::schema(&theirs, "v1alpha1"), &object);
            assert_eq!(
                found,
                Vec::<String>::new(),
                "{name}: in the predecessor's schema"
            );
        }
    }
}
