//! The definitions of pools and VsphereAgents that the API server has, compared with those of this release.
//!
//! Facts: the API server drops fields that a definition does not have, and says nothing. Each user may read the schemas at
//! `/openapi/v3` (ClusterRole `system:discovery`); definitions themselves need a right that the operator does not have.

use agent_forge_actors::ports::cluster::{ClusterError, ClusterErrorKind};
use agent_forge_crds::{manifest, names};
use http::Request;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use serde_json::Value;

/// Fields of a VsphereAgent's status that are the only memory of a limit, of which life of the VM it counts for, or of what a
/// claim waits for (`mayServe`). Where the API server drops one, what needs it is not done.
const LIMITS: [&str; 6] = [
    "/vm/switchedOnAgain",
    "/vm/bootRepair",
    "/vm/generation",
    "/vm/recycle",
    "/vm/disk",
    "/vm/mayServe",
];

/// Fields of `ours` that `theirs` lacks: the API server drops them. Both are the schemas of objects.
#[must_use]
pub fn missing(ours: &Value, theirs: &Value) -> Vec<String> {
    let fields = |schema: &Value| {
        let mut found = Vec::new();
        paths(schema, "", &mut found);
        found
    };
    let theirs = fields(theirs);
    let mut missing = fields(ours);
    missing.retain(|path| !theirs.contains(path));
    missing
}

/// The schema in a definition.
#[must_use]
pub fn schema(definition: &CustomResourceDefinition) -> Value {
    let mut text = serde_json::to_value(definition).unwrap_or_default();
    text["spec"]["versions"][0]["schema"]["openAPIV3Schema"].take()
}

fn paths(schema: &Value, path: &str, found: &mut Vec<String>) {
    for (name, below) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        paths(below, &path, found);
        paths(&below["items"], &format!("{path}[]"), found);
        found.push(path);
    }
}

/// The schemas that the API server publishes.
///
/// # Errors
/// It does not answer, or not with schemas.
#[expect(
    clippy::disallowed_methods,
    reason = "a GET: no typed call reads a published schema"
)]
async fn published(client: &Client) -> anyhow::Result<Value> {
    let path = format!("/openapi/v3/apis/{}", names::API_VERSION);
    let request = Request::get(path).body(Vec::new())?;
    Ok(client.request(request).await?)
}

/// By definition: its fields of this release that the API server drops.
///
/// # Errors
/// As [`published`].
pub async fn dropped(client: &Client) -> anyhow::Result<Vec<(String, Vec<String>)>> {
    let published = published(client).await?;
    let schemas = published["components"]["schemas"].as_object();
    let of = |kind: &str| {
        let mut all = schemas.into_iter().flatten();
        let found =
            all.find(|(_, schema)| schema["x-kubernetes-group-version-kind"][0]["kind"] == kind);
        found.map_or(&Value::Null, |(_, schema)| schema)
    };
    let all = [manifest::pool(), manifest::agent()];
    let all = all.iter().map(|ours| {
        let kind = ours.spec.names.kind.clone();
        let lacks = missing(&schema(ours), of(&kind));
        (kind, lacks)
    });
    Ok(all.collect())
}

/// Says at the start what the API server drops.
pub async fn announce(client: Client) {
    match dropped(&client).await {
        Ok(all) => {
            for (kind, lacks) in all.into_iter().filter(|(_, lacks)| !lacks.is_empty()) {
                tracing::warn!(
                    "the installed definition of {kind} is of another release and lacks {}: what only these fields remember is not \
                     done. Apply config/crd of this release",
                    lacks.join(", ")
                );
            }
        }
        Err(e) => tracing::info!("the definitions could not be compared with this release: {e}"),
    }
}

/// Says what to do if the API server has refused a patch because its definition lacks a field.
#[must_use]
pub fn explain(error: ClusterError) -> ClusterError {
    // Before that, the answer has the whole object.
    let why = error.message.rfind("strict decoding error");
    let Some(why) = why.filter(|_| error.kind == ClusterErrorKind::Invalid) else {
        return error;
    };
    let message = format!(
        "{}: the installed definition of VsphereAgent is older than this release, and nothing was changed. Apply config/crd of this \
         release",
        &error.message[why..]
    );
    ClusterError { message, ..error }
}

/// The first of [`LIMITS`] that was `sent` and is not in `kept`, what the API server made of it.
#[must_use]
pub fn forgotten(sent: &Value, kept: &Value) -> Option<String> {
    let is_empty = |value: &Value| {
        let list = value.as_array();
        value.is_null() || list.is_some_and(Vec::is_empty)
    };
    let has = |object: &Value, field: &str| object.pointer(field).is_some_and(|v| !is_empty(v));
    let mut lost = LIMITS
        .iter()
        .filter(|field| has(sent, field) && !has(kept, field));
    lost.next()
        .map(|field| format!("status{}", field.replace('/', ".")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_an_older_definition_lacks_is_named() {
        let ours = schema(&manifest::agent());
        assert!(missing(&ours, &ours).is_empty());
        let mut old = ours.clone();
        let vm = &mut old["properties"]["status"]["properties"]["vm"]["properties"];
        vm.as_object_mut().expect("fields").remove("bootRepair");
        let lacks = missing(&ours, &old);
        assert!(
            lacks.contains(&"status.vm.bootRepair".to_owned()),
            "{lacks:?}"
        );
        assert!(lacks.iter().all(|f| f.starts_with("status.vm.bootRepair")));
    }

    #[test]
    fn each_limit_is_a_field() {
        let ours = schema(&manifest::agent());
        let mut all = Vec::new();
        paths(&ours, "", &mut all);
        for field in LIMITS {
            let path = format!("status{}", field.replace('/', "."));
            assert!(all.contains(&path), "{path}");
        }
    }

    #[test]
    fn a_limit_that_was_dropped_is_found() {
        let sent =
            json!({"vm": {"name": "a", "bootRepair": {"state": "x"}, "switchedOnAgain": []}});
        assert_eq!(forgotten(&sent, &sent), None);
        let kept = json!({"vm": {"name": "a"}});
        let lost = forgotten(&sent, &kept);
        assert_eq!(lost.as_deref(), Some("status.vm.bootRepair"));
        assert_eq!(forgotten(&kept, &json!({})), None, "no limit");
    }
}
