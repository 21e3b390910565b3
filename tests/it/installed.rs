//! Each way of installation, run: its objects are applied as they are, and the operator has the arguments and variables of
//! its Deployment and the rights of its ServiceAccount. It serves a machine and takes it away.

use std::fs;

use agent_forge_lab::lab::{
    apply::{api_of, apply},
    manifest::{chart, namespace, rendered},
};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    cli::as_a_person,
    world::{POOL, Setup, World},
};

/// The folders of `config/` with a Deployment. `overlays/namespaced` has a test of its own (`rules`).
const FOLDERS: [&str; 9] = [
    "default",
    "overlays/single-replica",
    "overlays/monitoring",
    "overlays/openshift",
    "overlays/proxy",
    "overlays/egress",
    "overlays/web",
    "overlays/byoh-installer",
    "overlays/predecessor",
];
/// Values of the chart that make the most of it.
const CHART_VALUES: [&[&str]; 2] = [
    &[],
    &[
        "openshift.trustedCa=true,openshift.monitoring=true",
        "metrics.serviceMonitor.enabled=true,metrics.prometheusRule.enabled=true",
    ],
];

/// Kinds of the Prometheus operator that take everything: an API server without that operator has none.
pub fn kinds_of_prometheus() -> impl Iterator<Item = Value> {
    ["ServiceMonitor", "PrometheusRule"].into_iter().map(|kind| {
        let plural = format!("{}s", kind.to_lowercase());
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.monitoring.coreos.com")},
            "spec": {
                "group": "monitoring.coreos.com", "scope": "Namespaced",
                "names": {"kind": kind, "plural": plural},
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                }],
            },
        })
    })
}

/// Names and values.
type Variables = Vec<(String, String)>;

/// Arguments and variables of the operator's container. Addresses are left to the lab. A file of a ConfigMap is in `mounted`.
pub fn of_deployment(objects: &[Value], mounted: &str) -> Result<(Vec<String>, Variables)> {
    let deployment = objects.iter().find(|o| o["kind"] == "Deployment");
    let pod = &deployment.context("a Deployment")?["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let mut args: Vec<String> = serde_json::from_value(container["args"].clone())?;
    args.retain(|arg| !arg.contains("-bind-address="));
    let mut env = Vec::new();
    for variable in container["env"].as_array().into_iter().flatten() {
        let name = variable["name"].as_str().context("a name")?;
        let value = variable["value"].as_str().unwrap_or("of-the-pod");
        let mounts = container["volumeMounts"].as_array().into_iter().flatten();
        let mut paths = mounts.filter_map(|mount| mount["mountPath"].as_str());
        let is_mounted = paths.any(|path| value.starts_with(path));
        let value = if is_mounted { mounted } else { value };
        env.push((name.to_owned(), value.to_owned()));
    }
    Ok((args, env))
}

/// Applies the objects. A Pod of the Deployment is accepted where only restricted ones may run.
async fn install(world: &World, objects: &[Value]) -> Result<()> {
    for object in objects {
        let named = format!("{} {}", object["kind"], object["metadata"]["name"]);
        apply(&world.client, object).await.context(named)?;
    }
    let deployment = objects.iter().find(|o| o["kind"] == "Deployment");
    let deployment = deployment.context("a Deployment")?;
    let own = deployment["metadata"]["namespace"].as_str();
    let own = own.context("its namespace")?;
    let restricted = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": own, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    });
    apply(&world.client, &restricted).await?;
    let mut pod = deployment["spec"]["template"].clone();
    pod["metadata"]["name"] = "of-the-deployment".into();
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), own);
    let taken = pods.create(&dry, &serde_json::from_value(pod)?).await;
    taken.context("the Pod of the Deployment")?;
    Ok(())
}

/// Deletes what [`install`] applied, but for namespaces and kinds.
async fn uninstall(world: &World, objects: &[Value]) -> Result<()> {
    let stays = ["Namespace", "CustomResourceDefinition"];
    let removed = |object: &&Value| !stays.iter().any(|kind| object["kind"] == *kind);
    for object in objects.iter().rev().filter(removed) {
        let name = object["metadata"]["name"].as_str().context("a name")?;
        let api = api_of(&world.client, object).await?;
        let deleted = api.delete(name, &DeleteParams::default()).await;
        deleted.with_context(|| format!("delete {} {name}", object["kind"]))?;
    }
    Ok(())
}

/// Commands take the flags of the Deployment, and an archive has it with its Lease.
async fn asked(world: &World, objects: &[Value]) -> Result<()> {
    let deployment = objects.iter().find(|o| o["kind"] == "Deployment");
    let at = &deployment.context("a Deployment")?["metadata"];
    let (namespace, name) = (at["namespace"].as_str(), at["name"].as_str());
    let (namespace, name) = (namespace.context("a namespace")?, name.context("a name")?);
    let admin = world.lab.kubeconfig_admin_path();
    let admin = admin.to_str().context("a path")?;
    let named = format!("operator: {namespace}/{name}");
    let shown = as_a_person(&[
        "explain",
        &format!("vap/{POOL}"),
        "-A",
        "--kubeconfig",
        admin,
    ])
    .await?;
    ensure!(
        shown.errors.contains(&named) && shown.text.contains("Ready"),
        "{}",
        shown.said()
    );
    let folder = tempfile::tempdir()?;
    let path = folder.path().to_str().context("a path")?;
    let made = as_a_person(&["collect", "-A", "--directory", path, "--kubeconfig", admin]).await?;
    ensure!(made.code == 0, "{}", made.said());
    let file = |file: &str| fs::read_to_string(folder.path().join("operator").join(file));
    let deployed = file(&format!("{namespace}/Deployment-{name}.yaml"))?;
    ensure!(deployed.contains("--leader-elect"), "{deployed}");
    let kinds = file("kinds.yaml")?;
    ensure!(
        kinds.contains("vsphereagentpools") && kinds.contains("v1alpha1"),
        "{kinds}"
    );
    file(&format!("{namespace}/Leases.yaml"))?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_way_of_installation_serves_a_machine_with_its_own_rights() -> Result<()> {
    let mut ways = Vec::new();
    // The first one has the rights with which the world starts.
    for folder in FOLDERS {
        ways.push((folder.to_owned(), rendered(folder).await?));
    }
    for values in CHART_VALUES {
        let mut objects = chart("chart-crds", "agent-forge-crds", &[]).await?;
        objects.push(namespace("agent-forge-system"));
        objects.extend(chart("chart", "agent-forge-operator", values).await?);
        ways.push((format!("chart {values:?}"), objects));
    }
    let mut world = World::start(Setup {
        rules: Some("default"),
        ..Setup::default()
    })
    .await?;
    for kind in kinds_of_prometheus() {
        apply(&world.client, &kind).await?;
    }
    let nodes = world.up(0).await?;
    world.stop_operator().await?;
    let directory = tempfile::tempdir()?;
    let bundle = directory.path().join("ca-bundle.crt");
    fs::write(&bundle, world.process.ca_pem())?;
    let bundle = bundle.to_str().context("a path")?;
    for (name, objects) in ways {
        let tried = async {
            install(&world, &objects).await?;
            world.access = world.lab.kubeconfig_for_objects(&objects).await?;
            let (args, env) = of_deployment(&objects, bundle)?;
            ensure!(!args.is_empty(), "no arguments");
            world.setup.operator_args = args;
            world.setup.operator_env = env;
            world.start_operator().await?;
            nodes.scale(1);
            world.running(&nodes, 1).await?;
            asked(&world, &objects).await?;
            nodes.scale(0);
            world.settled(0).await?;
            world.stop_operator().await?;
            world.audited().await?;
            let forbidden = world.log.forbidden(&world.access.user)?;
            ensure!(forbidden.is_empty(), "forbidden: {forbidden:?}");
            uninstall(&world, &objects).await
        };
        tried.await.with_context(|| name.clone())?;
    }
    Ok(())
}
