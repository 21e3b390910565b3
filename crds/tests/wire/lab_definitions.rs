//! The lab's minimal definitions accept whatever the real definitions accept. They may have fewer fields and
//! requirements, but never more or different ones.

use crate::files;
use serde_json::Value;
use std::path::Path;

const UPSTREAM_FOLDER: &str = "upstream-crds";

#[test]
fn definitions_of_the_lab_accept_what_the_real_ones_accept() {
    let Some(real) = files::shared(
        UPSTREAM_FOLDER,
        "stand-ins of the lab against the real ones",
    ) else {
        return;
    };
    let lab = files::workspace().join("tests/lab/crds");
    let mut count = 0;
    for folder in ["", "variants", "byoh"] {
        for file in files::yaml_files(&lab.join(folder)) {
            let name = Path::new(folder).join(file.file_name().unwrap());
            compare(&files::yaml(&file), &files::yaml(&real.join(&name)), &name);
            count += 1;
        }
    }
    assert_eq!(count, 13, "stand-ins of the lab");
}

fn compare(stand_in: &Value, real: &Value, file: &Path) {
    for field in ["group", "scope"] {
        assert_eq!(
            stand_in["spec"][field],
            real["spec"][field],
            "{}",
            file.display()
        );
    }
    assert_eq!(
        stand_in["spec"]["names"],
        real["spec"]["names"],
        "{}",
        file.display()
    );
    let frame = |definition: &Value| -> Vec<_> {
        definition["spec"]["versions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|version| {
                ["name", "served", "storage", "subresources"].map(|field| version[field].clone())
            })
            .collect()
    };
    assert_eq!(frame(stand_in), frame(real), "{}", file.display());
    for (version, schema) in files::versions(stand_in) {
        let mut stricter = Vec::new();
        looser(schema, files::schema(real, version), version, &mut stricter);
        assert_eq!(stricter, Vec::<String>::new(), "{}", file.display());
    }
}

/// Collects where `stand_in` refuses or drops something that `real` keeps.
fn looser(stand_in: &Value, real: &Value, path: &str, stricter: &mut Vec<String>) {
    let mut wrong = |what: String| stricter.push(format!("{path}: {what}"));
    for field in [
        "type",
        "format",
        "pattern",
        "default",
        "x-kubernetes-map-type",
    ] {
        let (left, right) = (&stand_in[field], &real[field]);
        let may_be_absent = field != "type" && field != "default" && left.is_null();
        if left != right && !may_be_absent && !(field == "default" && left.is_null()) {
            wrong(format!("{field} {left} instead of {right}"));
        }
    }
    for (field, least) in [
        ("minLength", true),
        ("minItems", true),
        ("minProperties", true),
        ("minimum", true),
        ("maxLength", false),
        ("maxItems", false),
        ("maxProperties", false),
        ("maximum", false),
    ] {
        let Some(bound) = stand_in[field].as_f64() else {
            continue;
        };
        let holds = real[field].as_f64().is_some_and(|other| {
            if least {
                bound <= other
            } else {
                bound >= other
            }
        });
        if !holds {
            wrong(format!("{field} {bound} instead of {}", real[field]));
        }
    }
    subset(&stand_in["required"], &real["required"], |word| {
        wrong(format!("requires {word}"));
    });
    if stand_in["enum"].is_array() {
        subset(&real["enum"], &stand_in["enum"], |word| {
            wrong(format!("refuses {word}"))
        });
        if real["enum"].is_null() {
            wrong("has an enum".into());
        }
    }
    if stand_in["x-kubernetes-validations"].is_array() {
        wrong("has rules".into());
    }
    if stand_in["x-kubernetes-list-type"] == "map"
        && stand_in["x-kubernetes-list-map-keys"] != real["x-kubernetes-list-map-keys"]
    {
        wrong("has keys".into());
    }
    properties(stand_in, real, path, stricter);
    for below in ["items", "additionalProperties"] {
        if stand_in[below].is_object() {
            looser(
                &stand_in[below],
                &real[below],
                &format!("{path}[]"),
                stricter,
            );
        }
    }
}

fn properties(stand_in: &Value, real: &Value, path: &str, stricter: &mut Vec<String>) {
    let open = stand_in["x-kubernetes-preserve-unknown-fields"] == true;
    for (name, left) in stand_in["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        match &real["properties"][name] {
            Value::Null => stricter.push(format!("{path}: the real one has no such field")),
            right => looser(left, right, &path, stricter),
        }
    }
    for name in real["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, _)| name)
    {
        if !open && stand_in["properties"][name].is_null() {
            stricter.push(format!("{path}.{name}: would be pruned"));
        }
    }
    let holds_map = |schema: &Value| schema["additionalProperties"].is_object();
    if holds_map(real) && !holds_map(stand_in) && !open {
        stricter.push(format!("{path}: entries would be pruned"));
    }
}

fn subset(small: &Value, large: &Value, mut missing: impl FnMut(&Value)) {
    for word in small.as_array().into_iter().flatten() {
        if !large.as_array().is_some_and(|all| all.contains(word)) {
            missing(word);
        }
    }
}

/// The check itself finds the errors that it is for.
#[test]
fn a_stricter_stand_in_is_noticed() {
    let real: Value = serde_saphyr::from_str(
        "{type: object, required: [a], properties: {a: {type: string, maxLength: 5}, b: {type: object, additionalProperties: {type: string}}}}",
    )
    .unwrap();
    let noticed = |stand_in: &str| {
        let mut stricter = Vec::new();
        looser(
            &serde_saphyr::from_str(stand_in).unwrap(),
            &real,
            "v",
            &mut stricter,
        );
        stricter
    };
    let open = "x-kubernetes-preserve-unknown-fields: true";
    assert_eq!(
        noticed(&format!("{{type: object, {open}}}")),
        Vec::<String>::new()
    );
    assert_eq!(noticed("{type: object}").len(), 2);
    for worse in [
        "required: [b]",
        "properties: {a: {type: integer}}",
        "properties: {a: {type: string, maxLength: 4}}",
        "properties: {a: {type: string, minLength: 1}}",
        "properties: {a: {type: string, enum: [x]}}",
        "properties: {a: {type: string, pattern: x}}",
        "properties: {a: {type: string, default: x}}",
        "properties: {b: {type: object}}",
        "properties: {c: {type: string}}",
    ] {
        let stand_in = format!("{{type: object, {open}, {worse}}}");
        assert_eq!(
            noticed(&stand_in).len(),
            1,
            "{stand_in}: {:?}",
            noticed(&stand_in)
        );
    }
}
