//! Reads the objects of agent-forge from a file of manifests.

use std::{io::Read as _, path::Path};

use agent_forge_crds::manifest;
use anyhow::Context as _;
use serde_json::Value;

/// One object of a file.
#[derive(Clone, Debug)]
pub struct Document {
    /// `kind`.
    pub kind: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.namespace`, if the file has it.
    pub namespace: Option<String>,
    /// The object.
    pub object: Value,
}

/// The objects of a file with YAML or JSON; `-` is standard input. A `List` counts as its items.
///
/// # Errors
/// The file cannot be read, is no YAML, or has something without a kind.
pub fn read(path: &Path) -> anyhow::Result<Vec<Document>> {
    let about = || format!("reading {}", path.display());
    let text = if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .with_context(about)?;
        text
    } else {
        std::fs::read_to_string(path).with_context(about)?
    };
    parse(&text).with_context(about)
}

/// The objects in a text.
///
/// # Errors
/// It is no YAML, or has something without a kind.
pub fn parse(text: &str) -> anyhow::Result<Vec<Document>> {
    let mut all = Vec::new();
    for (at, value) in serde_saphyr::from_multiple::<Value>(text)?
        .into_iter()
        .enumerate()
    {
        let at = at + 1;
        let items = value["items"].as_array().cloned();
        let is_list = value["kind"].as_str().is_some_and(|k| k.ends_with("List"));
        for object in items.filter(|_| is_list).unwrap_or_else(|| vec![value]) {
            let kind = object["kind"].as_str();
            let kind = kind.with_context(|| format!("document {at} has no kind"))?;
            let text = |value: &Value| value.as_str().map(str::to_owned);
            all.push(Document {
                kind: kind.to_owned(),
                name: text(&object["metadata"]["name"]).unwrap_or_default(),
                namespace: text(&object["metadata"]["namespace"]),
                object,
            });
        }
    }
    Ok(all)
}

/// The schema of one of the operator's own kinds; `None` for any other kind.
#[must_use]
pub fn schema(kind: &str) -> Option<Value> {
    let definition = match kind {
        "VsphereAgentPool" => manifest::pool(),
        "VsphereAgent" => manifest::agent(),
        _ => return None,
    };
    let definition = serde_json::to_value(definition).ok()?;
    Some(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_lists_and_json_are_read() {
        let yaml = "---\n# nothing\n---\nkind: A\nmetadata: {name: a, namespace: north}\n---\nkind: List\nitems: [{kind: B}]\n";
        let all = parse(yaml).expect("documents");
        let shown: Vec<_> = all
            .iter()
            .map(|d| (d.kind.as_str(), d.name.as_str(), d.namespace.as_deref()))
            .collect();
        assert_eq!(shown, [("A", "a", Some("north")), ("B", "", None)]);
        assert_eq!(parse("{\"kind\": \"C\"}").expect("JSON").len(), 1);
        for (bad, said) in [
            ("a: [", "line 1"),
            ("kind: A\n---\nx: 1\n", "document 2 has no kind"),
        ] {
            let error = format!("{:#}", parse(bad).expect_err(bad));
            assert!(error.contains(said), "{error}");
        }
    }
}
