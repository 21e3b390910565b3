//! Tests that the real parts do what the operator's tests need: admission, RBAC, audit, garbage collection, namespaces.

use std::{process::Command, time::Duration};

use agent_forge_lab::{
    CrdSource, Lab, LabOptions, MachineVersions, ProviderGeneration, apply_yaml,
    install_tls_provider, lab::crds::upstream_directory, parts::audit::count_writes,
    patience::HANG,
};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Client, Config,
    api::{DeleteParams, ListParams, Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::{DynamicObject, GroupVersionKind},
    discovery::pinned_kind,
    runtime::wait::{await_condition, conditions::is_deleted},
};
use serde_json::json;
use tokio::time::timeout;

use crate::lab;

/// A client for a kubeconfig file, created as the operator does it.
async fn client(path: &std::path::Path) -> Result<Client> {
    let config =
        Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, &KubeConfigOptions::default())
            .await?;
    Ok(Client::try_from(config)?)
}

/// Text of the API server's refusal.
fn refusal<T: std::fmt::Debug>(outcome: Result<T>) -> String {
    match outcome {
        Ok(accepted) => panic!("accepted: {accepted:?}"),
        Err(error) => format!("{error:#}"),
    }
}

#[tokio::test]
async fn a_write_of_a_service_account_shows_in_the_audit_counts() -> Result<()> {
    let lab = lab().await?;
    let namespace = lab.namespace("audit").await?;
    let rules =
        json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "patch"]}]);
    let access = lab.kubeconfig_with(&namespace, "writer", &rules).await?;
    let mark = lab.audited().await?.len();
    let maps: Api<ConfigMap> = Api::namespaced(client(&access.kubeconfig).await?, &namespace);
    maps.create(
        &Default::default(),
        &serde_json::from_value(json!({"metadata": {"name": "a"}}))?,
    )
    .await?;
    maps.patch(
        "a",
        &PatchParams::default(),
        &Patch::Merge(json!({"data": {"x": "y"}})),
    )
    .await?;
    // What the role does not name is refused, and the audit log has the refusal.
    let refused = maps.delete("a", &DeleteParams::default()).await;
    ensure!(
        matches!(&refused, Err(kube::Error::Api(status)) if status.code == 403),
        "{refused:?}"
    );

    let counts = count_writes(&lab.audited().await?[mark..], &access.user);
    assert_eq!(
        (
            counts.of("create", "configmaps", ""),
            counts.of("patch", "configmaps", "")
        ),
        (1, 1),
        "{counts}"
    );
    assert_eq!(counts.total(), 3, "{counts}");
    let forbidden = lab.audit().forbidden(&access.user)?;
    assert_eq!(
        forbidden
            .iter()
            .map(|entry| entry.verb.as_str())
            .collect::<Vec<_>>(),
        ["delete"]
    );
    Ok(())
}

#[tokio::test]
async fn a_namespace_goes_with_everything_in_it() -> Result<()> {
    let lab = lab().await?;
    let client = lab.admin();
    let name = lab.namespace("going").await?;
    apply_yaml(
        &client,
        &format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: a, namespace: {name}}}}}"),
    )
    .await?;
    let api: Api<Namespace> = Api::all(client);
    let namespace = api.get(&name).await?;
    api.delete(&name, &DeleteParams::default()).await?;
    timeout(
        HANG,
        await_condition(
            api,
            &name,
            is_deleted(&namespace.metadata.uid.context("a uid")?),
        ),
    )
    .await??;
    Ok(())
}

#[tokio::test]
async fn what_an_agent_machine_owns_goes_with_it() -> Result<()> {
    let lab = lab().await?;
    let (client, namespace) = (lab.admin(), lab.namespace("owner").await?);
    let owner = apply_yaml(
        &client,
        &format!(
            "{{apiVersion: capi-provider.agent-install.openshift.io/v1beta1, kind: AgentMachine, metadata: {{name: owner, namespace: {namespace}}}, spec: {{}}}}"
        ),
    )
    .await?
    .remove(0);
    let uid = owner.metadata.uid.context("a uid")?;
    let owned = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owned", "namespace": namespace, "ownerReferences": [
            {"apiVersion": "capi-provider.agent-install.openshift.io/v1beta1", "kind": "AgentMachine", "name": "owner", "uid": uid}
        ]}
    });
    let owned = apply_yaml(&client, &owned.to_string()).await?.remove(0);
    let kind = GroupVersionKind::gvk(
        "capi-provider.agent-install.openshift.io",
        "v1beta1",
        "AgentMachine",
    );
    let (resource, _) = pinned_kind(&client, &kind).await?;
    let owners: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &resource);
    owners.delete("owner", &DeleteParams::background()).await?;
    let maps: Api<ConfigMap> = Api::namespaced(client, &namespace);
    timeout(
        HANG,
        await_condition(
            maps,
            "owned",
            is_deleted(&owned.metadata.uid.context("a uid")?),
        ),
    )
    .await??;
    Ok(())
}

#[tokio::test]
async fn both_generations_are_served_side_by_side() -> Result<()> {
    let sources = if upstream_directory().is_some() {
        vec![CrdSource::Upstream, CrdSource::Minimal]
    } else {
        vec![CrdSource::Minimal]
    };
    for crds in sources {
        for (generation, severity_kept) in [
            (ProviderGeneration::Current, false),
            (ProviderGeneration::Legacy, true),
        ] {
            let options = LabOptions {
                generation,
                crds,
                controller_manager: false,
                ..LabOptions::default()
            };
            let lab = Lab::start(options)
                .await
                .with_context(|| format!("{crds:?} {generation:?}"))?;
            eprintln!("{crds:?} {generation:?}: {}", lab.times());
            // Only the legacy format has `severity`. The current CRD drops it.
            let client = lab.admin();
            let object = "{apiVersion: capi-provider.agent-install.openshift.io/v1beta1, kind: AgentMachine, metadata: {name: a}, spec: {}}";
            apply_yaml(&client, object).await?;
            let kind = GroupVersionKind::gvk(
                "capi-provider.agent-install.openshift.io",
                "v1beta1",
                "AgentMachine",
            );
            let (resource, _) = pinned_kind(&client, &kind).await?;
            let api: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &resource);
            let condition = json!({"type": "Ready", "status": "False", "severity": "Info", "reason": "NoSuitableAgents", "message": "x", "lastTransitionTime": "2026-01-02T03:04:05Z"});
            let patch = json!({"status": {"conditions": [condition]}});
            let patched = api
                .patch_status("a", &PatchParams::default(), &Patch::Merge(patch))
                .await?;
            assert_eq!(
                patched.data["status"]["conditions"][0]["severity"] == "Info",
                severity_kept,
                "{crds:?} {generation:?}"
            );

            let versions = served(&client, "cluster.x-k8s.io").await?;
            let expected = if generation == ProviderGeneration::Legacy {
                vec!["v1beta1"]
            } else {
                vec!["v1beta1", "v1beta2"]
            };
            assert_eq!(versions, expected, "{crds:?} {generation:?}");
        }
    }
    Ok(())
}

async fn served(client: &Client, group: &str) -> Result<Vec<String>> {
    let groups = client.list_api_groups().await?.groups;
    let found = groups
        .into_iter()
        .find(|found| found.name == group)
        .context("the group is served")?;
    let mut versions: Vec<String> = found
        .versions
        .into_iter()
        .map(|version| version.version)
        .collect();
    versions.sort();
    Ok(versions)
}

#[tokio::test]
async fn machines_can_be_served_in_the_new_version_only() -> Result<()> {
    let options = LabOptions {
        machine_versions: Some(MachineVersions::V1Beta2),
        controller_manager: false,
        ..LabOptions::default()
    };
    let lab = Lab::start(options).await?;
    assert_eq!(served(&lab.admin(), "cluster.x-k8s.io").await?, ["v1beta2"]);
    Ok(())
}

/// A lab whose process is killed leaves neither programs nor files behind.
#[tokio::test]
async fn nothing_outlives_a_killed_lab() -> Result<()> {
    const CHILD: &str = "AGENT_FORGE_LAB_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        let lab = Lab::start(LabOptions {
            controller_manager: false,
            ..LabOptions::default()
        })
        .await?;
        std::fs::write(
            std::env::var(CHILD)?,
            format!("{} {}", lab.api_server().process.pid(), lab.dir().display()),
        )?;
        std::future::pending::<()>().await;
    }
    install_tls_provider();
    let note = tempfile::tempdir()?;
    let path = note.path().join("started");
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--exact", "parts::nothing_outlives_a_killed_lab"])
        .env(CHILD, &path)
        .stdout(std::process::Stdio::null())
        .spawn()?;
    let started = poll(HANG, || {
        std::fs::read_to_string(&path)
            .ok()
            .filter(|text| text.contains(' '))
    })
    .await;
    child.kill()?;
    child.wait()?;
    let started = started.context("the lab of the child did not start")?;
    let (pid, dir) = started.split_once(' ').context("pid and directory")?;
    let gone = poll(HANG, || (!std::path::Path::new(dir).exists()).then_some(())).await;
    gone.context("the directory is still there")?;
    // The process is gone, or it is a zombie.
    let ended = || match std::fs::read_to_string(format!("/proc/{pid}/status")) {
        Ok(status) => status.contains("State:\tZ").then_some(()),
        Err(_) => Some(()),
    };
    poll(HANG, ended)
        .await
        .context("kube-apiserver still runs")?;
    Ok(())
}

/// Asks again and again until there is an answer. No event reports what another process did to files and processes.
async fn poll<T>(within: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    timeout(within, async {
        loop {
            match ask() {
                Some(answer) => break answer,
                None => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    })
    .await
    .ok()
}

#[tokio::test]
async fn apply_creates_then_merges_and_names_what_it_cannot_do() -> Result<()> {
    let lab = lab().await?;
    let (client, namespace) = (lab.admin(), lab.namespace("apply").await?);
    let map = |data: &str| {
        format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: a, namespace: {namespace}}}, data: {data}}}"
        )
    };
    apply_yaml(&client, &map("{x: '1'}")).await?;
    let merged = apply_yaml(&client, &map("{y: '2'}")).await?.remove(0);
    assert_eq!(merged.data["data"], json!({"x": "1", "y": "2"}));
    let refused = refusal(
        apply_yaml(
            &client,
            "{apiVersion: v1, kind: Nonsense, metadata: {name: a}}",
        )
        .await,
    );
    assert!(refused.contains("Nonsense"), "{refused}");
    let maps: Api<ConfigMap> = Api::namespaced(client, &namespace);
    assert_eq!(maps.list(&ListParams::default()).await?.items.len(), 1);
    Ok(())
}
