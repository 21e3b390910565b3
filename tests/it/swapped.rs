//! The chart in the place of the predecessor's chart, back, and in its place again: docs/how-to/install-with-helm.md, step by
//! step, with the real API server. The predecessor does not run here. In its place a chart with the objects that its chart
//! renders is installed, and its objects lose what its definitions do not know.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use agent_forge_crds::names::POOL_FINALIZER;
use agent_forge_lab::{
    lab::{apply::apply, manifest::namespace},
    tools::{helm::helm_with, kubectl, repository, shared_or_skipped},
};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use crate::{
    installed::{kinds_of_prometheus, of_deployment},
    world::{POOL, Setup, World},
};

/// Release and namespace of the predecessor's users.
const RELEASE: &str = "agent-forge-operator";
const NAMESPACE: &str = "syn-agent-forge-operator";
const CRDS: &str = "agent-forge-crds";
const KINDS: [&str; 2] = ["VsphereAgentPool", "VsphereAgent"];

/// One user's helm and kubectl, and the predecessor's files.
struct Hub {
    world: World,
    home: tempfile::TempDir,
    theirs: PathBuf,
}

impl Hub {
    async fn helm(&self, args: &[&str]) -> Result<String> {
        let kubeconfig = self.world.lab.kubeconfig_admin_path().to_owned();
        let home = self.home.path().to_owned();
        let mut args: Vec<String> = args.iter().map(|&a| a.to_owned()).collect();
        args.extend(["--namespace".to_owned(), NAMESPACE.to_owned()]);
        spawn_blocking(move || {
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            helm_with(&kubeconfig, &home, &args)
        })
        .await?
    }

    /// A chart that installs what the predecessor's chart 1.1.0 rendered.
    fn their_chart(&self) -> Result<PathBuf> {
        let chart = self.home.path().join("theirs");
        fs::create_dir_all(chart.join("templates"))?;
        let about = "{apiVersion: v2, name: agent-forge-operator, version: 1.1.0}";
        fs::write(chart.join("Chart.yaml"), about)?;
        for file in fs::read_dir(self.theirs.join("chart-rendered"))? {
            let file = file?;
            // The texts of alerts have braces of their own.
            let text = fs::read_to_string(file.path())?.replace("{{", "{{ `{{` }}");
            fs::write(chart.join("templates").join(file.file_name()), text)?;
        }
        Ok(chart)
    }

    /// Puts the predecessor's definitions in the place of ours, and has each object written as it reads then.
    async fn written_by_the_predecessor(&self) -> Result<()> {
        let kubeconfig = self.world.lab.kubeconfig_admin_path().to_owned();
        let theirs = self.theirs.clone();
        spawn_blocking(move || replace(&kubeconfig, &theirs)).await??;
        let client = &self.world.client;
        let children = self.dynamic("VsphereAgent");
        let is_pruned = async || {
            let all = children.list(&Default::default()).await?.items;
            Ok(all.iter().all(|child| child.data["spec"]["goal"].is_null()))
        };
        self.world
            .until("the definitions of 1.1.0", is_pruned)
            .await?;
        for kind in KINDS {
            let api = self.dynamic(kind);
            for mut object in api.list(&Default::default()).await? {
                let name = object.name_any();
                let status = object.data["status"].clone();
                object.metadata = api
                    .replace(&name, &PostParams::default(), &object)
                    .await?
                    .metadata;
                object.data["status"] = status;
                api.replace_status(&name, &PostParams::default(), &object)
                    .await?;
            }
        }
        let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
        for crd in crds.list(&Default::default()).await?.items {
            let ours = crd.spec.group == "agent-forge.containeroo.ch";
            ensure!(!ours || crd.spec.versions.len() == 1, "{}", crd.name_any());
        }
        Ok(())
    }

    fn dynamic(&self, kind: &str) -> Api<DynamicObject> {
        self.in_version("v1alpha1", kind)
    }

    fn in_version(&self, version: &str, kind: &str) -> Api<DynamicObject> {
        let gvk = kube::core::GroupVersionKind::gvk("agent-forge.containeroo.ch", version, kind);
        let resource = kube::core::ApiResource::from_gvk(&gvk);
        Api::namespaced_with(self.world.client.clone(), self.world.namespace(), &resource)
    }

    /// Our operator, as the chart that is installed runs it.
    async fn ours_runs(&mut self) -> Result<()> {
        let text = self.helm(&["get", "manifest", RELEASE]).await?;
        let objects = agent_forge_lab::lab::apply::documents(&text)?;
        self.world.access = self.world.lab.kubeconfig_for_objects(&objects).await?;
        let (args, env) = of_deployment(&objects, "")?;
        (
            self.world.setup.operator_args,
            self.world.setup.operator_env,
        ) = (args, env);
        self.world.start_operator().await
    }

    /// Names of all conditions of the pool and its VsphereAgents.
    async fn conditions(&self) -> Result<BTreeSet<String>> {
        let mut all = BTreeSet::new();
        for kind in KINDS {
            for object in self.dynamic(kind).list(&Default::default()).await? {
                let conditions = object.data["status"]["conditions"].as_array().cloned();
                for condition in conditions.into_iter().flatten() {
                    let type_ = condition["type"].as_str().context("a type")?;
                    all.insert(format!("{kind} {} {type_}", object.name_any()));
                }
            }
        }
        Ok(all)
    }

    /// How often a VM was switched off or destroyed.
    async fn harm(&self) -> Result<u64> {
        let calls = self.world.vcenter.calls().await?;
        let harmful = [
            "PowerOffVM_Task",
            "ResetVM_Task",
            "ShutdownGuest",
            "Destroy_Task",
        ];
        Ok(harmful.iter().map(|method| calls.of(method)).sum())
    }
}

/// `kubectl replace` of the predecessor's definitions.
fn replace(kubeconfig: &Path, theirs: &Path) -> Result<()> {
    for plural in ["vsphereagentpools", "vsphereagents"] {
        let done = Command::new(kubectl()?)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["replace", "-f"])
            .arg(theirs.join(format!("agent-forge.containeroo.ch_{plural}.yaml")))
            .output()?;
        let said = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.success(), "{said}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chart_takes_the_place_of_the_predecessors_and_back_and_again() -> Result<()> {
    let Some(theirs) = shared_or_skipped("predecessor/v1.1.0") else {
        return Ok(());
    };
    let world = World::start(Setup {
        rules: Some("default"),
        ..Setup::default()
    })
    .await?;
    let mut hub = Hub {
        world,
        home: tempfile::tempdir()?,
        theirs,
    };
    for object in kinds_of_prometheus().chain([namespace(NAMESPACE)]) {
        apply(&hub.world.client, &object).await?;
    }
    // A hub of the predecessor, with one machine.
    let nodes = hub.world.up(1).await?;
    hub.world.stop_operator().await?;
    let chart = hub.their_chart()?;
    let chart = chart.to_str().context("a path")?;
    hub.helm(&["install", RELEASE, chart]).await?;
    hub.written_by_the_predecessor().await?;
    let (before, conditions) = (
        hub.world.vcenter.inventory().await?,
        hub.conditions().await?,
    );
    ensure!(!conditions.is_empty(), "no conditions");

    let config = repository().join("config");
    let path = |name: &str| config.join(name).to_string_lossy().into_owned();
    let (operator, crds) = (path("chart"), path("chart-crds"));
    hub.helm(&["install", CRDS, &crds, "--take-ownership"])
        .await?;
    hub.helm(&["upgrade", RELEASE, &operator]).await?;
    hub.ours_runs().await?;
    nodes.scale(2);
    hub.world.running(&nodes, 2).await?;
    hub.world.settled(2).await?;
    ensure!(hub.harm().await? == 0, "a VM was switched off");
    let now = hub.world.vcenter.inventory().await?;
    for vm in before.vms.iter().filter(|vm| vm.is_on()) {
        let same = now.vm(&vm.name).context("it is still there")?;
        ensure!(same.is_on() && same.moref == vm.moref, "{}", vm.name);
    }
    ensure!(
        hub.conditions().await?.is_superset(&conditions),
        "a condition was lost"
    );

    // A person writes in the other version. Both show the same, and it does not prevent the way back.
    let beta = hub.in_version("v1beta1", "VsphereAgentPool");
    let mark = json!({"metadata": {"annotations": {"example.com/written-as": "v1beta1"}}});
    beta.patch(POOL, &PatchParams::default(), &Patch::Merge(&mark))
        .await?;
    let (old, new) = (
        hub.dynamic("VsphereAgentPool").get(POOL).await?,
        beta.get(POOL).await?,
    );
    ensure!(old.data == new.data, "{} is not {}", old.data, new.data);
    ensure!(old.annotations() == new.annotations() && old.annotations().len() == 1);

    // Back: the definitions stay, as the page says. What the predecessor writes loses our fields.
    hub.world.stop_operator().await?;
    hub.helm(&["rollback", RELEASE, "1"]).await?;
    let conditions = hub.conditions().await?;
    hub.written_by_the_predecessor().await?;
    ensure!(
        hub.conditions().await? == conditions,
        "a condition was lost"
    );
    for child in hub.world.all_children().await? {
        let vm = child.status.clone().and_then(|s| s.vm).unwrap_or_default();
        let (uid, name) = (child.uid().context("a uid")?, child.name_any());
        ensure!(
            vm.owner_uid.as_deref() == Some(uid.as_str()),
            "{name}: {vm:?}"
        );
        let notes = hub.world.vcenter.inventory().await?;
        let notes = notes.vm(&name).context("its VM")?.annotation.clone();
        ensure!(
            notes == format!("agent-forge.containeroo.ch/vsphere-agent-uid={uid}"),
            "{notes}"
        );
    }

    // And again.
    hub.helm(&["upgrade", CRDS, &crds]).await?;
    hub.helm(&["upgrade", RELEASE, &operator]).await?;
    hub.ours_runs().await?;
    nodes.scale(3);
    hub.world.running(&nodes, 3).await?;
    ensure!(hub.harm().await? == 0, "a VM was switched off");
    ensure!(
        hub.conditions().await?.is_superset(&conditions),
        "a condition was lost"
    );

    // The end, in the order of the page. Nothing hangs.
    nodes.scale(0);
    hub.world.settled(0).await?;
    for pool in hub.world.pools().list(&Default::default()).await? {
        ensure!(pool.finalizers().iter().any(|f| f == POOL_FINALIZER));
        hub.world
            .pools()
            .delete(&pool.name_any(), &Default::default())
            .await?;
    }
    hub.world.pool_ends().await?;
    hub.world.stop_operator().await?;
    hub.helm(&["uninstall", RELEASE, "--wait"]).await?;
    hub.helm(&["uninstall", CRDS]).await?;
    let kinds: Api<CustomResourceDefinition> = Api::all(hub.world.client.clone());
    for kind in ["vsphereagentpools", "vsphereagents"] {
        let name = format!("{kind}.agent-forge.containeroo.ch");
        kinds
            .delete(&name, &Default::default())
            .await
            .context("helm kept it")?;
        let gone = async || Ok(kinds.get_opt(&name).await?.is_none());
        hub.world.until("the kind gone", gone).await?;
    }
    let left: Value = json!(hub.helm(&["list", "--short", "--all"]).await?);
    ensure!(left == "", "{left}");
    Ok(())
}
