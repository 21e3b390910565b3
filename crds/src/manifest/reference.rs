//! The field reference, a page of tables.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use std::fmt::Write;

/// One page with a chapter per definition. `optional`: those that only an overlay installs.
pub(super) fn page(
    definitions: &[CustomResourceDefinition],
    optional: &[CustomResourceDefinition],
) -> String {
    let mut page = String::from(
        "<!-- Written by `cargo crdgen --docs` from crds/src; edit the types, not this file. -->\n\
         # Field reference\n\n\
         Every field of each kind. A field marked * is required in the object that holds it; \
         `[]` stands for each element of a list. Fields of `status` are written by the operator.\n\n\
         The API server offers VsphereAgentPools and VsphereAgents as `v1alpha1` and as `v1beta1`. Schema and objects are the same in both. \
         `v1alpha1` is stored, and the operator uses it.\n\n\
         The kinds for BYOH are only there if `config/overlays/byoh-installer` or the charts' value `byohInstaller.enabled` installed them.\n",
    );
    for definition in definitions.iter().chain(optional) {
        chapter(&mut page, definition);
    }
    page
}

fn chapter(page: &mut String, definition: &CustomResourceDefinition) {
    let spec = &definition.spec;
    let names = &spec.names;
    // The others have the same schema.
    for version in spec.versions.iter().filter(|version| version.storage) {
        let Some(schema) = version
            .schema
            .as_ref()
            .and_then(|schema| schema.open_api_v3_schema.as_ref())
        else {
            continue;
        };
        let short = names.short_names.as_deref().unwrap_or_default().join(", ");
        let categories = names.categories.as_deref().unwrap_or_default().join(", ");
        let fields = version.selectable_fields.iter().flatten();
        let fields = fields.map(|field| format!("`{}`", field.json_path.trim_start_matches('.')));
        let selectable = fields.collect::<Vec<_>>().join(", ");
        let selectable = match selectable.as_str() {
            "" => "none",
            some => some,
        };
        // Writing to a String cannot fail.
        let _ = write!(
            page,
            "\n## {}\n\n{}\n\n`{}/{}`, {}, short name `{short}`, category `{categories}`. \
             Field selectors: {selectable}.\n\n\
             | Field | Type | Default | Bounds | Meaning |\n|---|---|---|---|---|\n",
            names.kind,
            schema.description.as_deref().unwrap_or_default(),
            spec.group,
            version.name,
            spec.scope.to_lowercase(),
        );
        for part in ["spec", "status"] {
            if let Some(schema) = schema.properties.as_ref().and_then(|all| all.get(part)) {
                rows(page, part, schema, false);
            }
        }
        let _ = writeln!(
            page,
            "\nColumns of `kubectl get`:\n\n| Column | Path | Shown |\n|---|---|---|"
        );
        for column in version.additional_printer_columns.iter().flatten() {
            let shown = match column.priority {
                None | Some(0) => "always",
                Some(_) => "`-o wide`",
            };
            let _ = writeln!(
                page,
                "| {} | `{}` | {shown} |",
                column.name, column.json_path
            );
        }
    }
}

fn rows(page: &mut String, path: &str, schema: &JSONSchemaProps, required: bool) {
    let mark = if required { " *" } else { "" };
    let default = schema
        .default
        .as_ref()
        .map(|value| format!("`{}`", value.0))
        .unwrap_or_default();
    let _ = writeln!(
        page,
        "| `{path}`{mark} | {} | {} | {} | {} |",
        kind(schema),
        cell(&default),
        cell(&bounds(schema)),
        cell(schema.description.as_deref().unwrap_or_default()),
    );
    children(page, path, schema);
}

fn children(page: &mut String, path: &str, schema: &JSONSchemaProps) {
    for (name, property) in schema.properties.iter().flatten() {
        let required = schema.required.iter().flatten().any(|other| other == name);
        rows(page, &format!("{path}.{name}"), property, required);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
        children(page, &format!("{path}[]"), items);
    }
}

fn kind(schema: &JSONSchemaProps) -> String {
    let own = schema.type_.as_deref().unwrap_or("any");
    match (&schema.items, &schema.additional_properties) {
        (Some(JSONSchemaPropsOrArray::Schema(items)), _) => format!("list of {}", kind(items)),
        (_, Some(JSONSchemaPropsOrBool::Schema(values))) => format!("map to {}", kind(values)),
        _ => match schema.format.as_deref() {
            Some(format) => format!("{own} ({format})"),
            None => own.to_owned(),
        },
    }
}

fn bounds(schema: &JSONSchemaProps) -> String {
    let mut all = Vec::new();
    let mut range = |what: &str, least: Option<String>, most: Option<String>| {
        match (least, most) {
            (Some(least), Some(most)) => all.push(format!("{what}{least} to {most}")),
            (Some(least), None) => all.push(format!("{what}at least {least}")),
            (None, Some(most)) => all.push(format!("{what}at most {most}")),
            (None, None) => {}
        };
    };
    let text = |bound: Option<i64>| bound.map(|value| value.to_string());
    range(
        "",
        schema.minimum.map(|value| value.to_string()),
        schema.maximum.map(|value| value.to_string()),
    );
    range("length ", text(schema.min_length), text(schema.max_length));
    range("elements ", text(schema.min_items), text(schema.max_items));
    range(
        "entries ",
        text(schema.min_properties),
        text(schema.max_properties),
    );
    if let Some(values) = &schema.enum_ {
        let words: Vec<_> = values
            .iter()
            .map(|value| format!("`{}`", value.0))
            .collect();
        all.push(words.join(" or "));
    }
    if let Some(pattern) = &schema.pattern {
        all.push(format!("matches `{pattern}`"));
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items
        && let Some(pattern) = &items.pattern
    {
        all.push(format!("each matches `{pattern}`"));
    }
    for rule in schema.x_kubernetes_validations.iter().flatten() {
        all.push(format!("rule `{}`", rule.rule));
    }
    all.join("; ")
}

/// Escapes text so that it stays in its table cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', "<br>")
}
