//! The installer for hosts of BYOH, by its contract: with the real definitions of BYOH where this machine has them, and with BYOH
//! and its hosts played.

use std::collections::BTreeSet;

use agent_forge_actors::byoh::secret;
use agent_forge_crds::{
    AgentForgeInstallerConfig,
    external::{
        ByoHost, ByoMachine, ForeignCondition,
        byoh::{CLUSTER_NAME_LABEL, K8S_VERSION_ANNOTATION},
        find,
    },
    names::{INSTALLER_FINALIZER, LOST_HOST_ANNOTATION},
};
use agent_forge_lab::lab::{apply::apply, crds, manifest};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
    core::v1::Secret,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
        PostParams,
    },
};
use serde_json::{Value, json};

use crate::{
    look::merge,
    shared::PROMPT,
    world::{Setup, World},
};

const OURS: &str = "agent-forge.containeroo.ch";
const BYOH: &str = "infrastructure.cluster.x-k8s.io";
/// Namespace of Cluster, ByoMachines and configs.
const HOME: &str = "hosts";
/// Namespace of ByoHosts.
const RACKS: &str = "racks";
const OVERLAY: &str = "overlays/byoh-installer";
/// The policy for the operator's Secrets, and whom it means.
const POLICY: &str = "agent-forge-byoh-secrets";
const SHIPPED_USER: &str = "system:serviceaccount:agent-forge-system:agent-forge";
/// A condition's reason that says that a host waits for its scripts.
const ASKS: &str = "InstallationSecretNotAvailable";

fn digest() -> String {
    format!("sha256:{}", "5".repeat(64))
}

fn bundle() -> Value {
    json!({"bundle": {"repository": "registry.example.com/byoh/bundle", "digest": digest()}})
}

fn host_info(image: &str) -> Value {
    json!({"osname": "linux", "osimage": image, "architecture": "amd64"})
}

const UBUNTU: &str = "Ubuntu 22.04.4 LTS";

impl World {
    fn configs(&self) -> Api<AgentForgeInstallerConfig> {
        Api::namespaced(self.client.clone(), HOME)
    }

    fn machines_of_byoh(&self) -> Api<ByoMachine> {
        Api::namespaced(self.client.clone(), HOME)
    }

    fn byo_hosts(&self) -> Api<ByoHost> {
        Api::namespaced(self.client.clone(), RACKS)
    }

    fn home_secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), HOME)
    }

    /// An operator with the installer, the kinds of both sides, and the rights of BYOH's manager. The operator started before its
    /// kinds were there.
    async fn with_installer() -> Result<Self> {
        let world = Self::without_pool(Setup {
            rules: Some(OVERLAY),
            ..Setup::args(["--byoh-installer"])
        })
        .await?;
        let objects = manifest::rendered(OVERLAY).await?;
        let kinds = objects
            .iter()
            .filter(|o| o["kind"] == "CustomResourceDefinition");
        let ours = kinds.filter(|o| o["metadata"]["name"].to_string().contains("installer"));
        let mut kinds: Vec<Value> = ours.cloned().collect();
        ensure!(kinds.len() == 2, "{} kinds in the overlay", kinds.len());
        kinds.extend(crds::byoh()?);
        crds::establish(&world.client, &kinds).await?;
        let of_manager = |o: &&Value| o["metadata"]["name"] == "agent-forge-byoh-manager";
        for object in objects.iter().filter(of_manager) {
            apply(&world.client, object).await?;
        }
        for namespace in [HOME, RACKS] {
            apply(&world.client, &manifest::namespace(namespace)).await?;
        }
        for object in objects.iter().filter(|o| {
            let kind = o["kind"].as_str().unwrap_or_default();
            kind.starts_with("ValidatingAdmissionPolicy") && o["metadata"]["name"] == POLICY
        }) {
            // The lab has a user of its own for each operator.
            let text = object.to_string().replace(SHIPPED_USER, &world.access.user);
            let own = format!("{POLICY}.{}", world.namespace());
            let object = serde_json::from_str(&text.replace(POLICY, &own))?;
            apply(&world.client, &object).await?;
        }
        Ok(world)
    }

    /// Makes a template.
    async fn template(&self, name: &str, spec: &Value) -> Result<DynamicObject> {
        let object = json!({
            "apiVersion": format!("{OURS}/v1alpha1"), "kind": "AgentForgeInstallerConfigTemplate",
            "metadata": {"name": name, "namespace": HOME},
            "spec": {"template": {"spec": spec}},
        });
        let api = templates(&self.client);
        let object = serde_json::from_value(object)?;
        Ok(api.create(&PostParams::default(), &object).await?)
    }

    /// Makes a ByoMachine, and the config that BYOH makes for it of that spec of a template.
    async fn byo_machine(&self, name: &str, spec: &Value, annotations: Value) -> Result<()> {
        let machine = json!({
            "apiVersion": format!("{BYOH}/v1beta1"), "kind": "ByoMachine",
            "metadata": {"name": name, "namespace": HOME, "labels": {CLUSTER_NAME_LABEL: "one"}},
            "spec": {},
        });
        let machine = apply(&self.client, &machine).await?;
        let mut all = json!({K8S_VERSION_ANNOTATION: "v1.30.2"});
        manifest::merge(&mut all, &annotations);
        let config = json!({
            "apiVersion": format!("{OURS}/v1alpha1"), "kind": "AgentForgeInstallerConfig",
            "metadata": {
                "name": name, "namespace": HOME, "annotations": all, "labels": {CLUSTER_NAME_LABEL: "one"},
                "ownerReferences": [{
                    "apiVersion": format!("{BYOH}/v1beta1"), "kind": "ByoMachine", "name": name,
                    "uid": machine.uid(), "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "spec": spec,
        });
        apply(&self.client, &config).await?;
        Ok(())
    }

    /// BYOH writes the status of a ByoMachine.
    async fn byoh_says(&self, name: &str, reason: &str, info: Option<Value>) -> Result<()> {
        let condition = json!({
            "type": "BYOHostReady", "status": "False", "severity": "Info", "reason": reason,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let status = json!({"status": {"conditions": [condition], "hostinfo": info}});
        let patch = Patch::Merge(&status);
        let machines = self.machines_of_byoh();
        machines
            .patch_status(name, &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }

    /// BYOH copies the reference in the status of a config into a ByoHost.
    async fn byoh_copies(&self, config: &str, host: &str) -> Result<()> {
        let status = self.configs().get(config).await?.status.unwrap_or_default();
        ensure!(status.ready, "{config} is not ready");
        let host = json!({
            "apiVersion": format!("{BYOH}/v1beta1"), "kind": "ByoHost",
            "metadata": {"name": host, "namespace": RACKS},
            "spec": {"installationSecret": status.installation_secret.context("no reference")?},
        });
        apply(&self.client, &host).await?;
        Ok(())
    }

    /// Waits until the actor has judged that config, and waits for this.
    async fn installer_waits(&self, config: &str, reason: &str, word: &str) -> Result<()> {
        let what = format!("{reason} of {config}: {word}");
        let about = format!("{HOME}/{config}: ");
        self.until(&what, async || {
            let all = self.actors(PROMPT).await?;
            let actor = all
                .iter()
                .find(|a| a["name"] == "byoh")
                .context("no actor")?;
            let rows = actor["state"]["waitingOn"].as_array().into_iter().flatten();
            let mut rows = rows.filter_map(|row| Some((row[0].as_str()?, row[1].as_str()?)));
            Ok(rows.any(|(r, why)| r == reason && why.starts_with(&about) && why.contains(word)))
        })
        .await
    }

    async fn until_config_ready(&self, name: &str) -> Result<Secret> {
        let ready = async || {
            let config = self.configs().get(name).await?;
            Ok(config.status.is_some_and(|s| s.ready))
        };
        self.until(&format!("a ready config {name}"), ready).await?;
        let config = self.configs().get(name).await?;
        Ok(self.home_secrets().get(&secret::name(&config)).await?)
    }

    /// Waits until a condition of a config is false for this reason. Returns it.
    async fn until_config_says(
        &self,
        name: &str,
        type_: &str,
        reason: &str,
    ) -> Result<ForeignCondition> {
        let mut found = None;
        self.until(&format!("{reason} in {type_} of {name}"), async || {
            let status = self.configs().get(name).await?.status.unwrap_or_default();
            let said = find(&status.conditions, type_).filter(|c| c.is_false_because(reason));
            found = said.cloned();
            Ok(found.is_some())
        })
        .await?;
        found.context("a condition")
    }

    async fn version(&self, config: &str) -> Result<Option<String>> {
        Ok(self.configs().get(config).await?.resource_version())
    }

    /// Whether the config and its Secret are gone.
    async fn until_config_is_gone(&self, name: &str, its: &Secret) -> Result<()> {
        self.until(
            &format!("the end of config {name} and its Secret"),
            async || {
                let secret = self.home_secrets().get_opt(&its.name_any()).await?;
                Ok(self.configs().get_opt(name).await?.is_none() && secret.is_none())
            },
        )
        .await
    }

    async fn may(&self, user: &str, verb: &str, group: &str, resource: &str) -> Result<bool> {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(user.to_owned()),
                resource_attributes: Some(ResourceAttributes {
                    verb: Some(verb.to_owned()),
                    group: Some(group.to_owned()),
                    resource: Some(resource.to_owned()),
                    namespace: Some(HOME.to_owned()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let answer = reviews.create(&PostParams::default(), &review).await?;
        Ok(answer.status.is_some_and(|s| s.allowed))
    }
}

fn templates(client: &Client) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk(OURS, "v1alpha1", "AgentForgeInstallerConfigTemplate");
    Api::namespaced_with(client.clone(), HOME, &ApiResource::from_gvk(&gvk))
}

fn cluster(paused: bool) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {"name": "one", "namespace": HOME}, "spec": {"paused": paused},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_get_their_scripts_by_the_contract_and_keep_them_until_they_leave() -> Result<()> {
    let mut world = World::with_installer().await?;
    specs_are_judged(&world).await?;
    let first = gates_open_one_after_the_other(&world).await?;
    let second = a_crash_before_the_status_makes_no_second_secret(&mut world).await?;
    ensure!(first.name_any() != second.name_any(), "they share a Secret");
    what_cannot_be_served_gets_no_secret(&world).await?;
    the_secret_of_somebody_else_stays(&world).await?;
    // A config whose host leaves.
    world.byoh_copies("a", "host-a").await?;
    let machines = world.machines_of_byoh();
    machines.delete("a", &DeleteParams::default()).await?;
    let said = world
        .until_config_says("a", "HostReleased", "HostNamesSecret")
        .await?;
    ensure!(
        said.message
            .is_some_and(|m| m.contains("ByoHost racks/host-a ")),
        "no name"
    );
    let kept = world.home_secrets().get(&first.name_any()).await?;
    ensure!(
        kept.data == first.data && kept.metadata.deletion_timestamp.is_none(),
        "{kept:?}"
    );
    let left = json!({"spec": {"installationSecret": null}});
    merge(&world.byo_hosts(), "host-a", left).await?;
    world.until_config_is_gone("a", &first).await?;
    // One whose host is lost.
    world.byoh_copies("b", "host-b").await?;
    machines.delete("b", &DeleteParams::default()).await?;
    world
        .until_config_says("b", "HostReleased", "HostNamesSecret")
        .await?;
    let lost = json!({"metadata": {"annotations": {LOST_HOST_ANNOTATION: "racks/host-b"}}});
    merge(&world.configs(), "b", lost).await?;
    world.until_config_is_gone("b", &second).await?;
    each_side_has_the_rights_that_it_needs(&world).await?;
    the_operator_creates_no_other_secret(&world, &second).await
}

/// By the policy: its role cannot say it. `made` is a Secret that it created.
async fn the_operator_creates_no_other_secret(world: &World, made: &Secret) -> Result<()> {
    type Change = fn(&mut Secret);
    let theirs: Api<Secret> = Api::namespaced(world.access.client().await?, HOME);
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let tried = async |change: Change| {
        let mut secret = made.clone();
        secret.metadata.name = Some("tried".to_owned());
        (secret.metadata.resource_version, secret.metadata.uid) = (None, None);
        change(&mut secret);
        let made = theirs.create(&dry, &secret).await;
        made.err().map(|e| e.to_string()).unwrap_or_default()
    };
    let refused: [Change; 4] = [
        |s| {
            let whose = ("kubernetes.io/service-account.name", "default");
            s.annotations_mut()
                .insert(whose.0.to_owned(), whose.1.to_owned());
            s.type_ = Some("kubernetes.io/service-account-token".to_owned());
        },
        |s| s.type_ = None,
        |s| s.metadata.owner_references = None,
        |s| s.owner_references_mut()[0].kind = "ConfigMap".to_owned(),
    ];
    for (number, change) in refused.into_iter().enumerate() {
        let said = tried(change).await;
        ensure!(said.contains("and no other"), "{number}: {said:?}");
    }
    let said = tried(|_| ()).await;
    ensure!(said.is_empty(), "{said}");
    // Its finalizer on a Secret with credentials, and nothing else.
    let data = json!({"install": "theirs"});
    let secret = manifest::secret(HOME, "credentials", &data);
    apply(&world.client, &secret).await?;
    let own = json!({"metadata": {"finalizers": ["agent-forge.containeroo.ch/tried"]}});
    merge(&theirs, "credentials", own).await?;
    for other in [
        json!({"data": {"install": "eA=="}}),
        json!({"metadata": {"annotations": {"kubernetes.io/service-account.name": "default"}}}),
    ] {
        let refused = merge(&theirs, "credentials", other).await.err();
        let why = format!("{:#}", refused.context("it was changed")?);
        ensure!(why.contains("neither data nor annotations"), "{why}");
    }
    let none = json!({"metadata": {"finalizers": null}});
    merge(&theirs, "credentials", none).await?;
    Ok(())
}

/// The API server refuses other specs, and a change.
async fn specs_are_judged(world: &World) -> Result<()> {
    let tag = json!({"bundle": {"repository": "registry.example.com/b", "digest": "latest"}});
    let mut both = bundle();
    both["scriptsFrom"] = json!({"configMapRef": {"name": "mine"}});
    for (name, spec) in [("none", json!({})), ("both", both), ("tag", tag)] {
        let made = world.template(name, &spec).await;
        ensure!(made.is_err(), "{name} was accepted");
    }
    let template = world.template("built-in", &bundle()).await?;
    let other =
        json!({"spec": {"template": {"spec": {"bundle": {"repository": "other.example.com/b"}}}}});
    let refused = merge(&templates(&world.client), &template.name_any(), other).await;
    let why = format!("{:#}", refused.err().context("it was changed")?);
    ensure!(why.contains("do not change"), "{why}");
    Ok(())
}

/// While a gate is closed, the config stays as it is.
async fn gates_open_one_after_the_other(world: &World) -> Result<Secret> {
    let paused = "cluster.x-k8s.io/paused";
    world
        .byo_machine("a", &bundle(), json!({paused: ""}))
        .await?;
    let mut version = world.version("a").await?;
    world
        .installer_waits("a", "Paused", "annotation cluster.x-k8s.io/paused")
        .await?;
    ensure!(world.version("a").await? == version, "written while paused");
    merge(
        &world.configs(),
        "a",
        json!({"metadata": {"annotations": {paused: null}}}),
    )
    .await?;
    version = world.version("a").await?;
    let awaited = "ScriptsNotAwaited";
    world
        .installer_waits("a", awaited, "no Cluster one")
        .await?;
    apply(&world.client, &cluster(true)).await?;
    world
        .installer_waits("a", "Paused", "spec.paused of Cluster hosts/one")
        .await?;
    apply(&world.client, &cluster(false)).await?;
    world
        .installer_waits("a", awaited, "has no host yet")
        .await?;
    // A host that says all of itself, but is not asked for.
    world
        .byoh_says(
            "a",
            "WaitingForBootstrapDataSecret",
            Some(host_info(UBUNTU)),
        )
        .await?;
    world
        .byoh_says(
            "a",
            ASKS,
            Some(json!({"osname": "linux", "osimage": null, "architecture": null})),
        )
        .await?;
    world
        .installer_waits("a", awaited, "status.hostinfo")
        .await?;
    ensure!(
        world.version("a").await? == version,
        "written before it was asked for"
    );
    world.byoh_says("a", ASKS, Some(host_info(UBUNTU))).await?;
    let secret = world.until_config_ready("a").await?;
    let config = world.configs().get("a").await?;
    ensure!(
        config.finalizers() == [INSTALLER_FINALIZER],
        "{:?}",
        config.finalizers()
    );
    ensure!(
        secret.type_.as_deref() == Some("cluster.x-k8s.io/secret"),
        "{:?}",
        secret.type_
    );
    ensure!(
        secret
            .labels()
            .get(CLUSTER_NAME_LABEL)
            .is_some_and(|c| c == "one"),
        "no label"
    );
    ensure!(
        secret.owner_references()[0].uid == config.uid().unwrap_or_default(),
        "no owner"
    );
    let data = secret.data.clone().unwrap_or_default();
    ensure!(
        data.keys().collect::<Vec<_>>() == ["install", "uninstall"],
        "{:?}",
        data.keys()
    );
    let named = config
        .status
        .unwrap_or_default()
        .installation_secret
        .unwrap_or_default();
    ensure!(
        named.name.as_deref() == Some(&secret.name_any()),
        "{named:?}"
    );
    ensure!(named.namespace.as_deref() == Some(HOME), "{named:?}");
    Ok(secret)
}

/// The operator is killed when the Secret is there and the status is not.
async fn a_crash_before_the_status_makes_no_second_secret(world: &mut World) -> Result<Secret> {
    world.byo_machine("b", &bundle(), json!({})).await?;
    world
        .forbid(
            "the-status",
            OURS,
            "agentforgeinstallerconfigs/status",
            "UPDATE",
        )
        .await?;
    let config = world.configs().get("b").await?;
    let name = secret::name(&config);
    let theirs = world.access.client().await?;
    let theirs: Api<AgentForgeInstallerConfig> = Api::namespaced(theirs, HOME);
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    world
        .until("a prohibition that counts", async || {
            let tried = theirs.replace_status("b", &dry, &config).await;
            Ok(tried.is_err_and(|e| e.to_string().contains("is not wanted now")))
        })
        .await?;
    world.byoh_says("b", ASKS, Some(host_info(UBUNTU))).await?;
    let mut made = None;
    world
        .until("the Secret of b", async || {
            made = world.home_secrets().get_opt(&name).await?;
            Ok(made.is_some())
        })
        .await?;
    let made = made.context("a Secret")?;
    world.crash().await?;
    ensure!(
        !world
            .configs()
            .get("b")
            .await?
            .status
            .is_some_and(|s| s.ready),
        "too early"
    );
    world.allow("the-status").await?;
    let now = world.until_config_ready("b").await?;
    ensure!(
        now.metadata.uid == made.metadata.uid && now.data == made.data,
        "another Secret"
    );
    ensure!(
        now.resource_version() == made.resource_version(),
        "it was written again"
    );
    let all = world
        .home_secrets()
        .list(&ListParams::default().labels(CLUSTER_NAME_LABEL))
        .await?;
    ensure!(
        all.items.len() == 2,
        "{} Secrets for two configs",
        all.items.len()
    );
    Ok(now)
}

/// An unsupported system, and scripts that a host could not carry out.
async fn what_cannot_be_served_gets_no_secret(world: &World) -> Result<()> {
    world.byo_machine("c", &bundle(), json!({})).await?;
    world
        .byoh_says("c", ASKS, Some(host_info("Windows Server 2022")))
        .await?;
    let said = world
        .until_config_says("c", "Ready", "HostUnsupported")
        .await?;
    ensure!(said.severity.as_deref() == Some("Error"), "{said:?}");
    let script = |install: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine", "namespace": HOME},
            "data": {"install": install, "uninstall": "true\n"},
        })
    };
    let mine = json!({"scriptsFrom": {"configMapRef": {"name": "mine"}}});
    world.byo_machine("d", &mine, json!({})).await?;
    world
        .byoh_says("d", ASKS, Some(host_info("Windows Server 2022")))
        .await?;
    world
        .until_config_says("d", "Ready", "ScriptsMissing")
        .await?;
    apply(&world.client, &script("true\necho {{.Other}}\n")).await?;
    // A ConfigMap wakes nobody; a host does.
    let touched = |n: u8| {
        json!({
            "apiVersion": format!("{BYOH}/v1beta1"), "kind": "ByoHost",
            "metadata": {"name": "idle", "namespace": RACKS, "labels": {"touched": n.to_string()}}, "spec": {},
        })
    };
    apply(&world.client, &touched(1)).await?;
    let said = world
        .until_config_says("d", "Ready", "ScriptRefused")
        .await?;
    ensure!(
        said.message.is_some_and(|m| m.contains("install, line 2")),
        "no line"
    );
    let status = world.configs().get("d").await?.status.unwrap_or_default();
    ensure!(
        status.failure_reason.as_deref() == Some("ScriptRefused"),
        "{status:?}"
    );
    for name in ["c", "d"] {
        let config = world.configs().get(name).await?;
        let secret = world.home_secrets().get_opt(&secret::name(&config)).await?;
        ensure!(
            secret.is_none() && config.finalizers().is_empty(),
            "{name} has a Secret"
        );
        ensure!(!config.status.is_some_and(|s| s.ready), "{name} is ready");
    }
    let good = "cp {{.BundleDownloadPath}}/kubelet /usr/bin\n";
    apply(&world.client, &script(good)).await?;
    apply(&world.client, &touched(2)).await?;
    let secret = world.until_config_ready("d").await?;
    let data = secret.data.unwrap_or_default();
    ensure!(
        data.get("install")
            .is_some_and(|text| text.0 == good.as_bytes()),
        "other bytes"
    );
    let status = world.configs().get("d").await?.status.unwrap_or_default();
    ensure!(status.failure_reason.is_none(), "{status:?}");
    Ok(())
}

async fn the_secret_of_somebody_else_stays(world: &World) -> Result<()> {
    world.byo_machine("e", &bundle(), json!({})).await?;
    let name = secret::name(&world.configs().get("e").await?);
    let theirs = manifest::secret(
        HOME,
        &name,
        &json!({"install": "theirs", "uninstall": "theirs"}),
    );
    let theirs = apply(&world.client, &theirs).await?;
    world.byoh_says("e", ASKS, Some(host_info(UBUNTU))).await?;
    world.until_config_says("e", "Ready", "SecretTaken").await?;
    let now = world.home_secrets().get(&name).await?;
    ensure!(
        now.resource_version() == theirs.resource_version(),
        "it was touched"
    );
    world
        .home_secrets()
        .delete(&name, &DeleteParams::default())
        .await?;
    merge(
        &world.byo_hosts(),
        "idle",
        json!({"metadata": {"labels": {"touched": "3"}}}),
    )
    .await?;
    let own = world.until_config_ready("e").await?;
    ensure!(own.uid() != now.uid(), "it is theirs");
    Ok(())
}

async fn each_side_has_the_rights_that_it_needs(world: &World) -> Result<()> {
    let manager = "system:serviceaccount:byoh-system:byoh-controller-manager";
    let (templates, configs) = (
        "agentforgeinstallerconfigtemplates",
        "agentforgeinstallerconfigs",
    );
    for (user, verb, group, resource, may) in [
        (manager, "get", OURS, templates, true),
        (manager, "create", OURS, templates, false),
        (manager, "get", OURS, configs, true),
        (manager, "create", OURS, configs, true),
        (manager, "delete", OURS, configs, false),
        (&world.access.user, "create", "", "secrets", true),
        (&world.access.user, "list", "", "secrets", false),
        (&world.access.user, "delete", "", "secrets", false),
        (&world.access.user, "patch", BYOH, "byohosts", false),
    ] {
        let answer = world.may(user, verb, group, resource).await?;
        ensure!(answer == may, "{user} {verb} {resource}: {answer}");
    }
    let audited = world.audited().await?.into_iter();
    let ours = audited
        .filter(|e| e.user.username == world.access.user && e.uri.contains("/hosts/secrets"));
    let verbs: BTreeSet<String> = ours.map(|e| e.verb).collect();
    ensure!(
        verbs.iter().all(|verb| verb == "get" || verb == "create"),
        "{verbs:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_flag_nothing_of_it_is_asked_for_or_installed() -> Result<()> {
    let world = World::without_pool(Setup::default()).await?;
    let actors = world.actors(PROMPT).await?;
    ensure!(actors.iter().all(|a| a["name"] != "byoh"), "{actors:?}");
    let audited = world.audited().await?;
    let ours = audited
        .iter()
        .filter(|e| e.user.username == world.access.user);
    let uris: Vec<&str> = ours.map(|e| e.uri.as_str()).collect();
    ensure!(
        uris.iter().any(|uri| uri.contains("/vsphereagentpools")),
        "it asked for nothing"
    );
    for word in ["byomachine", "byohost", "installer"] {
        let asked = uris.iter().find(|uri| uri.contains(word));
        ensure!(asked.is_none(), "{asked:?}");
        let default = serde_json::to_string(&manifest::rendered("default").await?)?;
        ensure!(!default.contains(word), "config/default has {word:?}");
    }
    Ok(())
}
