//! Applies YAML to the lab's API server.

use anyhow::{Context as _, Result};
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
    discovery::{Scope, pinned_kind},
};
use serde_json::Value;

/// The documents of a YAML text, without empty ones.
///
/// # Errors
/// A document is not YAML.
pub fn documents(yaml: &str) -> Result<Vec<Value>> {
    serde_saphyr::from_multiple(yaml).context("read YAML")
}

/// Creates each object of `yaml`, or merges it into the existing one, in the order of the text.
///
/// Namespaced objects without a namespace are created in `default`. Returns the objects as the API server stored them.
///
/// # Errors
/// The text is not YAML, a kind is not served, or the API server refuses an object. The error names the object.
pub async fn apply_yaml(client: &Client, yaml: &str) -> Result<Vec<DynamicObject>> {
    let mut applied = Vec::new();
    for document in documents(yaml)? {
        applied.push(apply(client, &document).await?);
    }
    Ok(applied)
}

/// Creates `object`, or merges it into the existing one.
///
/// # Errors
/// As [`apply_yaml`].
pub async fn apply(client: &Client, object: &Value) -> Result<DynamicObject> {
    let (api, wanted, subject) = target(client, object).await?;
    match api.create(&PostParams::default(), &wanted).await {
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {
            let name = wanted.metadata.name.as_deref().unwrap_or_default();
            let patched = api
                .patch(name, &PatchParams::default(), &Patch::Merge(object))
                .await;
            patched.with_context(|| format!("merge into {subject}"))
        }
        created => created.with_context(|| format!("create {subject}")),
    }
}

/// The client for the kind of `object`, in its namespace.
///
/// # Errors
/// It names no kind, or one that is not served.
pub async fn api_of(client: &Client, object: &Value) -> Result<Api<DynamicObject>> {
    Ok(target(client, object).await?.0)
}

async fn target(
    client: &Client,
    object: &Value,
) -> Result<(Api<DynamicObject>, DynamicObject, String)> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let (version, kind) = (text("/apiVersion"), text("/kind"));
    let (version, kind) = version
        .zip(kind)
        .with_context(|| format!("an object without apiVersion and kind: {object}"))?;
    let (group, version) = version.rsplit_once('/').unwrap_or(("", version));
    let name = text("/metadata/name")
        .or_else(|| text("/metadata/generateName"))
        .unwrap_or_default();
    let namespace = text("/metadata/namespace").unwrap_or("default");
    let kind = GroupVersionKind::gvk(group, version, kind);
    let (resource, capabilities) = pinned_kind(client, &kind).await.with_context(|| {
        format!(
            "the API server does not serve {} {}",
            kind.api_version(),
            kind.kind
        )
    })?;
    let (api, subject) = match capabilities.scope {
        Scope::Cluster => (
            Api::all_with(client.clone(), &resource),
            format!("{} {name}", kind.kind),
        ),
        Scope::Namespaced => (
            Api::namespaced_with(client.clone(), namespace, &resource),
            format!("{} {namespace}/{name}", kind.kind),
        ),
    };
    let wanted =
        serde_json::from_value(object.clone()).with_context(|| format!("read {subject}"))?;
    Ok((api, wanted, subject))
}
