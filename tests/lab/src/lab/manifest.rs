//! The objects that users apply: namespaces, credentials Secrets, and pools that fit the simulated inventory. Demo,
//! bench and tests get them here, so that a change of the inventory or of a type has one place.

use std::{collections::BTreeMap, process::Command};

use agent_forge_crds::VsphereAgentPool;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::apply::documents;
use crate::{
    parts::VCenterProcess,
    played::HostedCluster,
    tools::{helm::template, kubectl, repository},
};

/// Namespace of the operator.
pub const OPERATOR_NAMESPACE: &str = "agent-forge-system";
/// Name of the Secret that a pool names by default.
pub const CREDENTIALS: &str = "vsphere-credentials";

/// What `kubectl apply -k` would send for a folder of `config`.
///
/// # Errors
/// It cannot be rendered.
pub async fn rendered(folder: &'static str) -> Result<Vec<Value>> {
    let render = move || {
        let path = repository().join("config").join(folder);
        let done = Command::new(kubectl()?)
            .arg("kustomize")
            .arg(&path)
            .output()
            .context("run kubectl")?;
        let said = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.success(), "config/{folder}: {said}");
        documents(&String::from_utf8(done.stdout)?)
    };
    tokio::task::spawn_blocking(render).await?
}

/// What `helm template` makes of a chart below `config`.
///
/// # Errors
/// It cannot be rendered.
pub async fn chart(
    chart: &'static str,
    release: &'static str,
    set: &'static [&'static str],
) -> Result<Vec<Value>> {
    let render = move || documents(&template(chart, release, OPERATOR_NAMESPACE, set)?);
    tokio::task::spawn_blocking(render).await?
}

/// A namespace.
#[must_use]
pub fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// The strings of a Secret for this vCenter, with its certificate as trusted.
#[must_use]
pub fn credentials(vcenter: &VCenterProcess) -> Value {
    json!({
        "server": vcenter.url(),
        "username": vcenter.options().username,
        "password": vcenter.options().password,
        "caBundle": vcenter.ca_pem(),
    })
}

/// A Secret with these strings.
#[must_use]
pub fn secret(namespace: &str, name: &str, strings: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "stringData": strings,
    })
}

/// The labels that a pool puts on its Agents.
#[must_use]
pub fn agent_labels() -> BTreeMap<String, String> {
    [
        ("customer", "example"),
        ("hypershift.openshift.io/nodepool-role", "worker"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into()
}

/// The `agentLabelSelector` of a NodePool that takes such Agents.
#[must_use]
pub fn agent_selector() -> Value {
    json!({"matchLabels": {"customer": "example"}})
}

/// A pool for the NodePool with its own name, in the namespace of the NodePools. InfraEnv and VM folder have the name
/// of the hosted cluster. `patch` is merged over its spec.
///
/// # Errors
/// The patched spec is not valid for a pool.
pub fn pool(cluster: &HostedCluster, name: &str, patch: &Value) -> Result<VsphereAgentPool> {
    let mut spec = json!({
        "hostedClusterRef": {"name": cluster.name},
        "nodePoolRef": {"name": name},
        "infraEnvRef": {"name": cluster.name},
        "controlPlaneNamespace": cluster.control_plane_namespace,
        "vsphere": {
            "credentialsSecretRef": {"name": CREDENTIALS},
            "datacenter": "dc1",
            "datastoreCluster": "workload-datastore-cluster",
            "isoDatastore": "iso-datastore",
            "resourcePool": "cluster/Resources",
            "folder": cluster.name,
            "network": "VM Network",
        },
        "template": {},
        "agent": {"labels": agent_labels()},
    });
    merge(&mut spec, patch);
    let pool = json!({
        "apiVersion": "agent-forge.containeroo.ch/v1alpha1",
        "kind": "VsphereAgentPool",
        "metadata": {"name": name, "namespace": cluster.namespace},
        "spec": spec,
    });
    serde_json::from_value(pool).with_context(|| format!("make the pool {name}"))
}

/// A JSON merge patch (RFC 7396).
pub fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in fields {
        if !value.is_null() {
            merge(&mut target[key], value);
        } else if let Some(object) = target.as_object_mut() {
            object.remove(key);
        }
    }
}
