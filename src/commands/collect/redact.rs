//! Takes out of objects what may be secret. Secrets themselves are never read.

use agent_forge_actors::ports::iso_source::IsoUrl;
use regex::Regex;
use serde_json::{Map, Value};

use crate::cluster::trim;

/// What stands for a secret.
const GONE: &str = "REDACTED";

/// Redacts texts.
pub struct Redactor {
    url: Regex,
    token: Regex,
    field: Regex,
}

impl Redactor {
    /// Redacts URLs, tokens, and fields whose names say that they hold a secret.
    ///
    /// # Errors
    /// Never: the patterns are constant.
    pub fn new() -> anyhow::Result<Self> {
        Ok(Self {
            url: Regex::new(r#"https?://[^\s"'<>]+"#)?,
            token: Regex::new(
                r"ey[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(\.[A-Za-z0-9_-]+)?|[Bb]earer\s+\S+|://[^/@\s:]+:[^/@\s]+@",
            )?,
            field: Regex::new(
                r"(?i)(password|passwd|token|secret|apikey|api_key|privatekey|private_key|ignition)$",
            )?,
        })
    }

    /// Redacts a text: URLs lose query, user and token; tokens go.
    #[must_use]
    pub fn text(&self, text: &str) -> String {
        let shown = self.url.replace_all(text, |found: &regex::Captures<'_>| {
            let url = &found[0];
            IsoUrl::parse(url).map_or_else(|_| GONE.to_owned(), |url| url.redacted())
        });
        self.token.replace_all(&shown, GONE).into_owned()
    }

    /// Redacts an object in place, and drops what is only noise.
    pub fn object(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.object(item)),
            Value::Object(fields) => {
                fields.remove("managedFields");
                fields.remove("kubectl.kubernetes.io/last-applied-configuration");
                for (name, value) in fields {
                    if let ("annotations", Value::Object(all)) = (name.as_str(), &mut *value) {
                        annotations(all);
                    }
                    // A name of a Secret is no secret.
                    if value.is_string() && self.field.is_match(name) {
                        *value = Value::String(GONE.to_owned());
                    } else {
                        self.object(value);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Takes the values of annotations that decisions do not read.
fn annotations(all: &mut Map<String, Value>) {
    for (name, value) in all {
        if !trim::is_read(name) {
            *value = Value::String(GONE.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_secret_stays_and_names_do() {
        let redactor = Redactor::new().expect("patterns");
        let mut object = json!({
            "metadata": {"name": "a", "managedFields": [1], "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": "S3CRET", "k": "S3CRET",
                "example.com/config": "{\"password\": \"S3CRET\"}", "evilcluster.x-k8s.io/x": "S3CRET",
                "agent-forge.containeroo.ch/vm-name": "w-1", "agentMachineRefNamespace": "demo-demo",
                "delete.check.agent-forge.containeroo.ch/backup": "see https://b.example/a/b?x=S3CRET",
            }},
            "spec": {
                "password": "S3CRET", "pullToken": "S3CRET", "credentialsSecretRef": {"name": "vc"},
                "url": "https://img.example/byapikey/S3CRET/x.iso?token=S3CRET",
                "other": ["see https://user:S3CRET@h.example/a/b?x=S3CRET now", "Bearer S3CRET"],
                "jwt": "eyJhbGciOiJI.eyJzdWIiOiIx.S3CRETsig",
            },
        });
        redactor.object(&mut object);
        let text = object.to_string();
        assert!(!text.contains("S3CRET"), "{text}");
        for kept in [
            "\"name\":\"vc\"",
            "\"k\":\"REDACTED\"",
            "img.example",
            "h.example",
            "\"agent-forge.containeroo.ch/vm-name\":\"w-1\"",
            "\"agentMachineRefNamespace\":\"demo-demo\"",
            "see https://b.example/",
        ] {
            assert!(text.contains(kept), "{kept}: {text}");
        }
        assert!(!text.contains("managedFields"), "{text}");
    }
}
