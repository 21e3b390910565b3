//! The Helm charts: they render what `kubectl apply -k` applies, and the API server takes it.

use std::collections::BTreeMap;

use agent_forge_lab::lab::{
    apply::apply,
    manifest::{OPERATOR_NAMESPACE, chart, rendered},
};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::PostParams};
use serde_json::{Value, json};

use crate::lab;

/// The release whose names equal those of the predecessor's chart.
const RELEASE: &str = "agent-forge-operator";
const OPENSHIFT: &[&str] = &[
    "openshift.trustedCa=true,openshift.monitoring=true",
    "metrics.serviceMonitor.enabled=true,metrics.prometheusRule.enabled=true",
];

/// Values that both charts have.
const BYOH: &[&str] = &["byohInstaller.enabled=true"];

async fn both(set: &'static [&'static str]) -> Result<Vec<Value>> {
    let mut all = chart("chart", RELEASE, set).await?;
    let of_kinds: &[&str] = if set == BYOH { BYOH } else { &[] };
    all.extend(chart("chart-crds", "agent-forge-crds", of_kinds).await?);
    Ok(all)
}

/// Takes off what Helm adds, and what only kustomize writes.
fn strip(value: &mut Value) {
    const HELMS: [&str; 3] = [
        "app.kubernetes.io/instance",
        "app.kubernetes.io/managed-by",
        "app.kubernetes.io/version",
    ];
    let of_helm = |key: &str| key.starts_with("helm.sh/") || HELMS.contains(&key);
    match value {
        Value::Object(map) => {
            for name in ["labels", "matchLabels", "annotations", "selector"] {
                if let Some(Value::Object(inner)) = map.get_mut(name) {
                    inner.retain(|key, _| !of_helm(key));
                    // The selector of the predecessor's Deployment has one label, and cannot change.
                    inner.remove("app.kubernetes.io/component");
                }
                if map.get(name) == Some(&json!({})) {
                    map.remove(name);
                }
            }
            map.values_mut().for_each(strip);
        }
        Value::Array(list) => list.iter_mut().for_each(strip),
        _ => {}
    }
}

/// The objects by kind and name, without what may differ. `is_chart`: names become those of `config/`.
fn comparable(objects: Vec<Value>, is_chart: bool) -> Result<BTreeMap<String, Value>> {
    let mut all = BTreeMap::new();
    for mut object in objects {
        // Those of selectors and Pods are compared.
        if let Some(labels) = object["metadata"].get_mut("labels") {
            let labels = labels.as_object_mut().context("labels")?;
            labels.retain(|key, _| !key.starts_with("app.kubernetes.io/"));
        }
        strip(&mut object);
        let kind = object["kind"].as_str().context("a kind")?.to_owned();
        if kind == "Namespace" {
            continue;
        }
        if kind.starts_with("ValidatingAdmissionPolicy") {
            // Kustomize writes one into objects that have none.
            let metadata = object["metadata"].as_object_mut();
            metadata.context("metadata")?.remove("namespace");
        }
        if kind == "Deployment" {
            let pod = &mut object["spec"]["template"];
            pod["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"] = json!("");
            let container = &mut pod["spec"]["containers"][0];
            (container["name"], container["image"]) = (json!(""), json!(""));
            // A patch of kustomize adds in front.
            let env = container["env"].as_array_mut().context("env")?;
            env.sort_by_key(|variable| variable["name"].to_string());
        }
        if is_chart {
            let mut text = object.to_string();
            // Name of a user.
            text = text.replace(&format!(":{RELEASE}'"), ":agent-forge'");
            for part in [
                "byoh-installer",
                "byoh-manager",
                "byoh-secrets",
                "credentials",
                "leader-election",
                "metrics",
                "metrics-auth",
                "metrics-reader",
                "metrics-tls",
                "metrics.agent-forge-system.svc",
                "trusted-ca",
            ] {
                let (theirs, ours) = (format!("{RELEASE}-{part}"), format!("agent-forge-{part}"));
                text = text.replace(&format!("\"{theirs}\""), &format!("\"{ours}\""));
            }
            let of_manager = kind.starts_with("ClusterRole");
            object = serde_json::from_str(&text.replace(
                &format!("\"name\":\"{RELEASE}\""),
                if of_manager {
                    "\"name\":\"agent-forge-manager\""
                } else {
                    "\"name\":\"agent-forge\""
                },
            ))?;
            // The binding's subject is the ServiceAccount.
            let subjects = object.get_mut("subjects").and_then(Value::as_array_mut);
            for subject in subjects.into_iter().flatten() {
                if subject["name"] == "agent-forge-manager" {
                    subject["name"] = json!("agent-forge");
                }
            }
            let text = object.to_string();
            object =
                serde_json::from_str(&text.replace(&format!("\"{RELEASE}\""), "\"agent-forge\""))?;
        }
        let name = object["metadata"]["name"].as_str().context("a name")?;
        all.insert(format!("{kind} {name}"), object);
    }
    Ok(all)
}

#[tokio::test]
async fn a_chart_renders_what_kustomize_applies() -> Result<()> {
    for (folder, set) in [
        ("default", &[] as &[&str]),
        ("overlays/openshift", OPENSHIFT),
        ("overlays/byoh-installer", BYOH),
    ] {
        let ours = comparable(rendered(folder).await?, false)?;
        let charts = comparable(both(set).await?, true)?;
        let names = |all: &BTreeMap<String, Value>| all.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&charts), names(&ours), "config/{folder}");
        for (name, object) in &ours {
            assert_eq!(charts[name], *object, "config/{folder}: {name}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn the_api_server_takes_what_a_chart_renders_and_its_pod_where_only_restricted_ones_may()
-> Result<()> {
    let lab = lab().await?;
    let namespace = rendered("default").await?.into_iter();
    let namespace = namespace.filter(|o| o["kind"] == "Namespace");
    let objects = both(&[]).await?;
    for object in namespace.chain(objects.clone()) {
        let named = format!("{} {}", object["kind"], object["metadata"]["name"]);
        apply(&lab.admin(), &object).await.context(named)?;
    }
    let deployment = objects.iter().find(|o| o["kind"] == "Deployment");
    let mut pod = deployment.context("a Deployment")?["spec"]["template"].clone();
    pod["metadata"]["name"] = "of-the-chart".into();
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let pods: Api<Pod> = Api::namespaced(lab.admin(), OPERATOR_NAMESPACE);
    pods.create(&dry, &serde_json::from_value(pod)?).await?;
    Ok(())
}

#[tokio::test]
async fn a_value_that_nobody_reads_and_a_second_replica_without_a_lease_are_refused() -> Result<()>
{
    for (set, says) in [
        (&["repicas=3"] as &'static [&'static str], "repicas"),
        (&["args={--metrics-bind-address=:8080}"], "--leader-elect"),
    ] {
        let refused = chart("chart", RELEASE, set).await;
        let refused = refused.expect_err(says).to_string();
        ensure!(refused.contains(says), "{refused}");
    }
    Ok(())
}
