//! The operator itself: its Deployment, Pods, logs and Leases, and the kinds that are installed.

use agent_forge_crds::names;
use k8s_openapi::{
    api::{apps::v1::Deployment, coordination::v1::Lease, core::v1::Pod},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ListParams, LogParams},
};
use serde_json::json;

use super::{Entry, file, redact::Redactor};
use crate::commands::running;

/// Lines of one log, from its end.
const LINES: i64 = 50_000;

/// What is known of the operator, and what could not be read.
pub(super) async fn entries(
    client: &Client,
    operator: Option<&str>,
) -> anyhow::Result<(Vec<Entry>, Vec<anyhow::Error>)> {
    let redactor = Redactor::new()?;
    let (mut all, mut failed) = (Vec::new(), Vec::new());
    match kinds(client).await {
        Ok(shown) => all.push(file(&redactor, "operator/kinds.yaml".to_owned(), &shown)?),
        Err(e) => failed.push(e.context("reading the CustomResourceDefinitions")),
    }
    let deployments = match running::deployments(client, operator).await {
        Ok(all) => all,
        Err(why) => {
            failed.push(anyhow::anyhow!(
                "the operator's Deployment, Leases and logs: {why}"
            ));
            Vec::new()
        }
    };
    for deployment in &deployments {
        let (namespace, name) = (
            deployment.namespace().unwrap_or_default(),
            deployment.name_any(),
        );
        let path = format!("operator/{namespace}/Deployment-{name}.yaml");
        all.push(file(&redactor, path, deployment)?);
        match leases(client, &namespace).await {
            Ok(shown) => all.push(file(
                &redactor,
                format!("operator/{namespace}/Leases.yaml"),
                &shown,
            )?),
            Err(e) => failed.push(e.context(format!("reading the Leases of {namespace}"))),
        }
        let pods = match pods(client, deployment, &namespace).await {
            Ok(pods) => pods,
            Err(e) => {
                failed.push(e.context(format!("listing the Pods of {namespace}/{name}")));
                continue;
            }
        };
        for pod in &pods {
            let path = format!("operator/{namespace}/Pod-{}.yaml", pod.name_any());
            all.push(file(&redactor, path, &pod.status)?);
            logs(client, pod, &redactor, (&mut all, &mut failed)).await;
        }
    }
    Ok((all, failed))
}

/// Which versions of our kinds are served and stored.
async fn kinds(client: &Client) -> anyhow::Result<serde_json::Value> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let all = api.list(&ListParams::default()).await?;
    let own = all.into_iter().filter(|crd| crd.spec.group == names::GROUP);
    let shown = own.map(|crd| {
        let versions = crd.spec.versions.iter();
        let versions = versions.map(|v| json!({"name": v.name, "served": v.served, "storage": v.storage}));
        let status = crd.status.as_ref();
        json!({
            "name": crd.name_any(), "generation": crd.metadata.generation, "versions": versions.collect::<Vec<_>>(),
            "storedVersions": status.map(|s| &s.stored_versions), "conditions": status.map(|s| &s.conditions),
        })
    });
    Ok(shown.collect())
}

/// The Leases of leader election.
async fn leases(client: &Client, namespace: &str) -> anyhow::Result<Vec<serde_json::Value>> {
    let api: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let all = api.list(&ListParams::default()).await?;
    let own = all
        .into_iter()
        .filter(|lease| lease.name_any().contains("agent-forge"));
    Ok(own
        .map(|lease| json!({"name": lease.name_any(), "spec": lease.spec}))
        .collect())
}

async fn pods(
    client: &Client,
    deployment: &Deployment,
    namespace: &str,
) -> anyhow::Result<Vec<Pod>> {
    let selector = deployment
        .spec
        .as_ref()
        .and_then(|spec| spec.selector.match_labels.as_ref());
    let labels: Vec<String> = selector
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    anyhow::ensure!(!labels.is_empty(), "it selects by no label");
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    Ok(api
        .list(&ListParams::default().labels(&labels.join(",")))
        .await?
        .items)
}

/// The log of each container, and that of its run before if it was started anew.
async fn logs(
    client: &Client,
    pod: &Pod,
    redactor: &Redactor,
    (all, failed): (&mut Vec<Entry>, &mut Vec<anyhow::Error>),
) {
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    let api: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let containers = pod
        .status
        .as_ref()
        .and_then(|status| status.container_statuses.as_ref());
    for container in containers.into_iter().flatten() {
        let runs: &[(bool, &str)] = match container.restart_count {
            0 => &[(false, "log")],
            _ => &[(false, "log"), (true, "previous.log")],
        };
        for (previous, end) in runs {
            let asked = LogParams {
                container: Some(container.name.clone()),
                previous: *previous,
                tail_lines: Some(LINES),
                ..LogParams::default()
            };
            let path = format!("operator/{namespace}/logs/{name}-{}.{end}", container.name);
            match api.logs(&name, &asked).await {
                Ok(text) => all.push((path, redactor.text(&text).into_bytes())),
                Err(e) => failed.push(anyhow::Error::new(e).context(path)),
            }
        }
    }
}
