//! The difference between the pool in a file and the pool in the cluster.

use std::collections::{BTreeMap, BTreeSet};

use agent_forge_actors::domain::names::ObjectKey;
use agent_forge_crds::{VsphereAgentPool, manifest::structural};
use anyhow::Context as _;
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    cluster::trim,
    commands::manifest_file::{self, Document},
};

/// One field that the file changes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Path below the object.
    pub field: String,
    /// In the cluster.
    pub before: Option<Value>,
    /// In the file.
    pub after: Option<Value>,
    /// What that means for VMs that exist.
    pub effect: &'static str,
}

/// The pool as it would be after the file is applied: the file's spec and annotations, and what the cluster has of the rest.
///
/// # Errors
/// The file's object cannot be read as a pool.
pub fn applied(
    key: &ObjectKey,
    file: &Document,
    present: Option<&VsphereAgentPool>,
) -> anyhow::Result<VsphereAgentPool> {
    let mut object = file.object.clone();
    if let Some(schema) = manifest_file::schema(&file.kind) {
        structural::fill_defaults(&schema, &mut object);
    }
    object["metadata"]["namespace"] = json!(key.namespace);
    object["status"] = Value::Null;
    if let Value::Object(fields) = &mut object {
        fields.remove("status");
    }
    let mut pool: VsphereAgentPool =
        serde_json::from_value(object).context("reading the pool in the file")?;
    if let Some(present) = present {
        let mut metadata = present.metadata.clone();
        let annotations = pool.metadata.annotations.unwrap_or_default();
        metadata
            .annotations
            .get_or_insert_default()
            .extend(annotations);
        let labels = pool.metadata.labels.unwrap_or_default();
        metadata.labels.get_or_insert_default().extend(labels);
        pool.metadata = metadata;
        pool.status = present.status.clone();
    }
    Ok(pool)
}

/// The fields that differ between two pools.
///
/// # Errors
/// A pool cannot be written as JSON.
pub fn changes(
    present: Option<&VsphereAgentPool>,
    new: &VsphereAgentPool,
) -> anyhow::Result<Vec<Change>> {
    let fields = |pool: &VsphereAgentPool| {
        let spec = serde_json::to_value(&pool.spec).context("reading a spec")?;
        let mut all = BTreeMap::new();
        flatten("spec", &spec, &mut all);
        let annotations = pool.metadata.annotations.iter().flatten();
        // The caches have no others.
        for (key, value) in annotations.filter(|(key, _)| trim::is_read(key)) {
            all.insert(format!("metadata.annotations[{key}]"), json!(value));
        }
        anyhow::Ok(all)
    };
    let before = present.map(fields).transpose()?.unwrap_or_default();
    let after = fields(new)?;
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let change = |field: &&String| {
        let (before, after) = (before.get(*field), after.get(*field));
        (before != after).then(|| Change {
            field: (*field).clone(),
            before: before.cloned(),
            after: after.cloned(),
            effect: effect(field, present.is_some()),
        })
    };
    Ok(names.iter().filter_map(change).collect())
}

fn flatten(path: &str, value: &Value, found: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                flatten(&format!("{path}.{name}"), value, found);
            }
        }
        Value::Object(_) => {}
        other => {
            found.insert(path.to_owned(), other.clone());
        }
    }
}

/// What a change of that field means for VMs that exist.
fn effect(field: &str, exists: bool) -> &'static str {
    const HARDWARE: &str = "new VMs; one whose Agent has not registered, or fails its validations, is replaced; delete a Machine \
                            to replace its VM";
    const NEW_ONLY: &str = "new VMs only; delete a Machine to replace its VM";
    if !exists {
        return "the pool is new";
    }
    match field {
        "spec.vsphere.vmTags" => "new VMs only",
        "spec.vsphere.credentialsSecretRef.name"
        | "spec.vsphere.credentialsSecretRef.namespace" => {
            "VMs that exist keep their recorded Secret"
        }
        "spec.nodePoolRef.name" => "VMs of the old NodePool are released when no Machine has them",
        "spec.cleanupPolicy" => "all VMs, when their Machine goes",
        "spec.vsphere.guestID"
        | "spec.vsphere.firmware"
        | "spec.vsphere.scsiType"
        | "spec.vsphere.networkAdapterType"
        | "spec.vsphere.diskEagerlyScrub" => HARDWARE,
        f if f.starts_with("spec.template.") || f.starts_with("spec.classes") => HARDWARE,
        f if f.starts_with("spec.vsphere.") => NEW_ONLY,
        f if f.starts_with("spec.iso.") => "the ISO",
        f if f.starts_with("spec.agent.") => "Agents that are not prepared yet",
        f if f.starts_with("spec.infraEnvRef.") => "the ISO and new VMs",
        f if f.starts_with("spec.hosts.") => "AgentMachines that wait",
        _ => "the pool",
    }
}
