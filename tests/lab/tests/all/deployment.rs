//! Tests the content of `config/` in the real API server. The operator's user may do what its rules allow and no more.
//! Its Pod is accepted in a namespace that enforces PodSecurity `restricted`.

use agent_forge_lab::{
    apply_yaml,
    lab::{apply::apply, manifest::rendered},
    patience::HANG,
};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{
    core::v1::{Pod, Secret},
    rbac::v1::ClusterRole,
};
use kube::{
    Api,
    api::{ListParams, PostParams},
    core::{DynamicObject, GroupVersionKind},
    discovery::pinned_kind,
    runtime::wait::await_condition,
};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::lab;

fn is_forbidden<T>(outcome: &kube::Result<T>) -> bool {
    matches!(outcome, Err(kube::Error::Api(status)) if status.code == 403)
}

#[tokio::test]
async fn the_operators_user_may_do_what_its_rules_say_and_no_more() -> Result<()> {
    let lab = lab().await?;
    // Two operators side by side: the bindings of one must not replace those of the other.
    let (first, second) = (
        lab.namespace("operator").await?,
        lab.namespace("operator").await?,
    );
    let first = lab.kubeconfig_for_operator(&first).await?;
    let second = lab.kubeconfig_for_operator(&second).await?;
    for access in [&first, &second] {
        let client = access.client().await?;
        let kind =
            GroupVersionKind::gvk("agent-forge.containeroo.ch", "v1alpha1", "VsphereAgentPool");
        let (resource, _) = pinned_kind(&client, &kind).await?;
        let pools: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        pools
            .list(&ListParams::default())
            .await
            .context("pools of all namespaces")?;
        let secrets: Api<Secret> = Api::all(client);
        ensure!(
            is_forbidden(&secrets.list(&ListParams::default()).await),
            "Secrets are read by name only"
        );
    }
    // An entry may be written a little after its answer.
    lab.audited().await?;
    assert_eq!(lab.audit().forbidden(&first.user)?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn blocking_an_owners_deletion_needs_the_right_to_its_finalizers() -> Result<()> {
    let lab = lab().await?;
    let namespace = lab.namespace("owner").await?;
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}]);
    let access = lab.kubeconfig_with(&namespace, "narrow", &rules).await?;
    let owned = |blocking: bool| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": format!("blocking-{blocking}"), "namespace": namespace, "ownerReferences": [{
                "apiVersion": "capi-provider.agent-install.openshift.io/v1beta1", "kind": "AgentMachine", "name": "a",
                "uid": "88367111-b460-49f0-b6de-5139ea376f6b", "blockOwnerDeletion": blocking
            }]
        }})
        .to_string()
    };
    let narrow = access.client().await?;
    let refused = apply_yaml(&narrow, &owned(true))
        .await
        .expect_err("no right to the owner's finalizers");
    ensure!(
        format!("{refused:#}").contains("blockOwnerDeletion"),
        "{refused:#}"
    );
    apply_yaml(&narrow, &owned(false)).await?;
    Ok(())
}

#[tokio::test]
async fn who_may_edit_a_namespace_may_edit_pools_in_it_where_an_overlay_says_so() -> Result<()> {
    let lab = lab().await?;
    lab.kubeconfig_for_operator(&lab.namespace("operator").await?)
        .await?;
    let may = |verb: &'static str| {
        move |role: Option<&ClusterRole>| {
            let rules = role.and_then(|role| role.rules.as_ref());
            rules.into_iter().flatten().any(|rule| {
                let mut resources = rule.resources.iter().flatten();
                let pools = resources.any(|resource| resource == "vsphereagentpools");
                pools && rule.verbs.iter().any(|v| v == verb)
            })
        }
    };
    let roles: Api<ClusterRole> = Api::all(lab.admin());
    // The controller manager aggregates our rules: `edit` gets those for viewers through `view`.
    for name in ["view", "edit"] {
        timeout(HANG, await_condition(roles.clone(), name, may("list")))
            .await
            .with_context(|| format!("the role {name} did not get the rules for viewers"))??;
    }
    let edit = roles.get("edit").await?;
    ensure!(!may("create")(Some(&edit)), "nobody asked for that");
    let objects = rendered("overlays/aggregate-edit").await?;
    let wanted =
        |o: &&Value| o["kind"] == "ClusterRole" && o["metadata"]["name"] == "agent-forge-edit";
    let mut role = objects.iter().find(wanted).context("the role")?.clone();
    // With a name of its own, because other tests apply the original at the same time.
    role["metadata"]["name"] = "agent-forge-edit-opt-in".into();
    apply(&lab.admin(), &role).await?;
    // `admin` gets them through `edit`.
    for name in ["edit", "admin"] {
        timeout(HANG, await_condition(roles.clone(), name, may("create")))
            .await
            .with_context(|| format!("the role {name} did not get the rules for pools"))??;
    }
    Ok(())
}

/// The Pod of the Deployment or the Job in these objects.
fn pod_of(objects: &[Value]) -> Result<Value> {
    let mut all = objects.iter();
    let made = all.find(|o| o["kind"] == "Deployment" || o["kind"] == "Job");
    let mut pod = made.context("a Deployment or a Job")?["spec"]["template"].clone();
    pod["metadata"]["name"] = "shipped".into();
    Ok(pod)
}

#[tokio::test]
async fn what_readme_applies_is_taken_and_its_pod_runs_where_only_restricted_ones_may() -> Result<()>
{
    let lab = lab().await?;
    let objects = rendered("default").await?;
    for object in &objects {
        apply(&lab.admin(), object).await?;
    }
    let pods: Api<Pod> = Api::namespaced(lab.admin(), "agent-forge-system");
    for folder in [
        "default",
        "overlays/dev",
        "overlays/openshift",
        "overlays/aggregate-edit",
        "overlays/web",
        "overlays/monitoring",
        "overlays/proxy",
        "overlays/single-replica",
        "doctor",
    ] {
        let pod = serde_json::from_value(pod_of(&rendered(folder).await?)?)?;
        let dry = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let taken = pods.create(&dry, &pod).await;
        taken.with_context(|| format!("the Pod of config/{folder}"))?;
    }
    for job in rendered("doctor").await? {
        apply(&lab.admin(), &job).await?;
    }
    let namespace = lab.namespace("samples").await?;
    for mut sample in rendered("samples").await? {
        sample["metadata"]["namespace"] = namespace.clone().into();
        apply(&lab.admin(), &sample).await?;
    }
    for folder in ["prometheus", "grafana"] {
        ensure!(!rendered(folder).await?.is_empty(), "config/{folder}");
    }
    Ok(())
}

#[tokio::test]
async fn a_standby_is_kept_by_a_budget_and_one_replica_has_none() -> Result<()> {
    for (folder, replicas, strategy) in [
        ("default", 2, "RollingUpdate"),
        ("overlays/single-replica", 1, "Recreate"),
    ] {
        let objects = rendered(folder).await?;
        let of_kind = |kind: &str| objects.iter().find(|o| o["kind"] == kind);
        let spec = &of_kind("Deployment").context("a Deployment")?["spec"];
        ensure!(spec["replicas"] == replicas, "{folder}: {spec}");
        ensure!(spec["strategy"]["type"] == strategy, "{folder}: {spec}");
        let budget = of_kind("PodDisruptionBudget");
        ensure!(
            budget.is_some() == (replicas > 1),
            "{folder}: a budget for one Pod blocks each drain of its node"
        );
        if let Some(budget) = budget {
            ensure!(
                budget["spec"]["selector"] == spec["selector"],
                "{folder}: {budget}"
            );
        }
    }
    Ok(())
}

/// A Deployment's selector cannot be changed, and a binding's role neither.
#[tokio::test]
async fn the_overlay_in_the_predecessors_place_has_its_names_and_its_selector() -> Result<()> {
    let objects = rendered("overlays/predecessor").await?;
    let named = |kind: &str, name: &str| {
        let mut all = objects.iter();
        let found = all.find(|o| o["kind"] == kind && o["metadata"]["name"] == name);
        found.with_context(|| format!("{kind} {name}"))
    };
    let name = "agent-forge-operator";
    let deployment = named("Deployment", name)?;
    ensure!(deployment["metadata"]["namespace"] == "syn-agent-forge-operator");
    let selector = json!({"matchLabels": {
        "app.kubernetes.io/instance": name, "app.kubernetes.io/name": name,
    }});
    ensure!(
        deployment["spec"]["selector"] == selector,
        "{}",
        deployment["spec"]["selector"]
    );
    let pod = &deployment["spec"]["template"]["spec"];
    ensure!(pod["serviceAccountName"] == name, "{pod}");
    ensure!(pod["containers"][0]["name"] == name, "{pod}");
    named("ServiceAccount", name)?;
    named("Service", "agent-forge-operator-metrics")?;
    for (kind, role, name) in [
        ("ClusterRoleBinding", "ClusterRole", name),
        (
            "RoleBinding",
            "Role",
            "agent-forge-operator-leader-election",
        ),
        (
            "ClusterRoleBinding",
            "ClusterRole",
            "agent-forge-operator-metrics-auth",
        ),
    ] {
        named(role, name)?;
        let binding = named(kind, name)?;
        ensure!(
            binding["roleRef"]["name"] == name
                && binding["subjects"][0]["name"] == "agent-forge-operator",
            "{binding}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn the_shipped_pod_passes_pod_security_and_a_privileged_mutant_does_not() -> Result<()> {
    let lab = lab().await?;
    let restricted = [("pod-security.kubernetes.io/enforce", "restricted")];
    let namespace = lab.namespace_with_labels("restricted", &restricted).await?;
    lab.kubeconfig_for_operator(&namespace).await?;
    let pods: Api<Pod> = Api::namespaced(lab.admin(), &namespace);
    let shipped = pod_of(&rendered("default").await?)?;
    pods.create(
        &PostParams::default(),
        &serde_json::from_value(shipped.clone())?,
    )
    .await
    .context("the shipped Pod")?;

    type Change = fn(&mut Value);
    let mutants: [(&str, Change); 4] = [
        ("privileged", |pod| {
            pod["spec"]["containers"][0]["securityContext"]["privileged"] = true.into();
            pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] =
                true.into();
        }),
        ("runAsNonRoot", |pod| {
            pod["spec"]["securityContext"]["runAsNonRoot"] = false.into()
        }),
        ("hostNetwork", |pod| {
            pod["spec"]["hostNetwork"] = true.into()
        }),
        ("capabilities", |pod| {
            pod["spec"]["containers"][0]["securityContext"]["capabilities"]["drop"] = json!([])
        }),
    ];
    for (mentioned, change) in mutants {
        let mut mutant = shipped.clone();
        change(&mut mutant);
        mutant["metadata"]["name"] = "mutant".into();
        let outcome = pods
            .create(&PostParams::default(), &serde_json::from_value(mutant)?)
            .await;
        match outcome {
            Err(kube::Error::Api(status)) if status.code == 403 => {
                let message = &status.message;
                ensure!(
                    message.contains("PodSecurity") && message.contains(mentioned),
                    "{mentioned}: {message}"
                );
            }
            other => anyhow::bail!("{mentioned}: {other:?}"),
        }
    }
    Ok(())
}
