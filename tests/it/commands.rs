//! The commands that show things to people, on the real API server and the lab's vCenter.

use std::collections::BTreeMap;

use agent_forge_lab::{
    lab::apply::{apply, documents},
    parts::vcenter_trouble::VmAction,
};
use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::{
    cli::{as_a_person, command},
    world::{POOL, Setup, World},
};

impl World {
    /// Everything that a command could have changed, by its version.
    async fn versions(&self) -> Result<BTreeMap<String, String>> {
        let pools = self.pools().list(&Default::default()).await?.items;
        let children = self.all_children().await?;
        let agent_machines = self.agent_machines().list(&Default::default()).await?;
        let mut all = BTreeMap::new();
        let mut note = |kind: &str, name: String, version: Option<String>| {
            all.insert(format!("{kind}/{name}"), version.unwrap_or_default());
        };
        for o in &pools {
            note("pool", o.name_any(), o.resource_version());
        }
        for o in &children {
            note("va", o.name_any(), o.resource_version());
        }
        for o in &agent_machines {
            note("am", o.name_any(), o.resource_version());
        }
        for vm in self.all_vms().await? {
            note("vm", vm.moref.clone(), Some(format!("{vm:?}")));
        }
        Ok(all)
    }
}

/// The kinds of the chain, and whether each has a name.
fn chain(explained: &Value) -> Vec<(String, bool)> {
    let members = explained["chain"].as_array().into_iter().flatten();
    let member = |m: &Value| {
        let kind = m["kind"].as_str().unwrap_or_default().to_owned();
        (kind, m["name"].is_string())
    };
    members.map(member).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_command_shows_a_serving_machine_and_nothing_changes() -> Result<()> {
    let mut world = World::start(Setup::default()).await?;
    world.up(1).await?;
    let name = world.only_child().await?.name_any();
    world
        .until("the end of all work", async || {
            let child = world.children().get(&name).await?;
            let status = child.status.unwrap_or_default();
            let vm = status.vm.unwrap_or_default();
            let rests = world.pool_status().await?.waiting_on.is_empty();
            let bound = vm.phase.is_some_and(|p| p.as_str() == "Bound");
            Ok(rests && status.waiting_on.is_empty() && bound)
        })
        .await?;
    top_prints_once(&world).await?;
    world.stop_operator().await?;
    let before = world.versions().await?;
    a_machine_is_explained_from_each_of_its_objects(&world, &name).await?;
    an_archive_has_everything_except_secrets(&world).await?;
    an_archive_has_what_could_be_listed_and_says_what_could_not(&world).await?;
    a_tenant_gets_answers_about_its_namespace(&world).await?;
    orphans_are_listed_as_the_operator_judges_them(&world).await?;
    let role = command(&world, &["privileges", "--govc"]).await?;
    ensure!(
        role.code == 0 && role.text.starts_with("govc role.create agent-forge "),
        "{}",
        role.errors
    );
    ensure!(
        world.versions().await? == before,
        "a command changed something"
    );
    Ok(())
}

async fn a_machine_is_explained_from_each_of_its_objects(world: &World, name: &str) -> Result<()> {
    let vm = world.only_vm().await?;
    let agent = world.agent_on(&vm).await?.name_any();
    for subject in [
        format!("AgentMachine/{name}"),
        format!("Machine/{name}"),
        format!("va/{name}"),
        format!("VM/{}", vm.moref),
        format!("Agent/{agent}"),
        format!("Node/{name}"),
    ] {
        let shown = command(world, &["explain", &subject, "-o", "json"]).await?;
        let explained = shown.json()?;
        ensure!(shown.code == 0, "{subject}: {}", shown.said());
        let members = chain(&explained);
        ensure!(
            members.len() == 6 && members.iter().all(|m| m.1),
            "{subject}: {members:?}"
        );
        let proofs = explained["proofs"].as_array().context("proofs")?;
        ensure!(
            proofs.len() >= 7 && proofs.iter().all(|p| p["holds"] == json!(true)),
            "{subject}: {proofs:#?}"
        );
        let marker = proofs.iter().any(|p| {
            let fact = p["fact"].as_str().unwrap_or_default();
            fact.starts_with("marker of the VM in vCenter")
        });
        ensure!(marker, "{subject}: {proofs:#?}");
        let steps = explained["timeline"].as_array().map(Vec::len);
        ensure!(steps >= Some(8), "{explained}");
    }
    refused(world, &["explain", "VM/nowhere"], "agent-forge orphans").await?;
    refused(world, &["explain", "nonsense"], "KIND/NAME").await
}

/// A command that cannot be carried out says so, with this word.
async fn refused(world: &World, args: &[&str], word: &str) -> Result<()> {
    let shown = command(world, args).await?;
    ensure!(
        shown.code == 2 && shown.errors.contains(word),
        "{}",
        shown.said()
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_is_explained_with_who_can_end_it() -> Result<()> {
    let world = World::start(Setup::pool(json!({"vsphere": {"network": "nowhere"}}))).await?;
    let nodes = world.wanted(1).await?;
    world
        .until_refused(POOL, "VsphereReady", "VsphereObjectNotFound")
        .await?;
    let [am] = &nodes.agent_machines()[..] else {
        anyhow::bail!("one AgentMachine");
    };
    let name = am.name_any();
    world
        .until("the reason at the machine", async || {
            let subject = format!("agentmachine/{name}");
            let plane = &world.cluster.control_plane_namespace;
            let shown = command(&world, &["explain", &subject, "-n", plane]).await?;
            let said = [
                "VsphereObjectNotFound",
                "Who can end it: the owner of the pool",
                "reasons.md#specvsphere-and-resources",
            ];
            Ok(shown.code == 1 && said.iter().all(|s| shown.text.contains(s)))
        })
        .await?;
    let missing = ["explain", &format!("va/{name}"), "-n", "elsewhere"];
    refused(&world, &missing, "in namespace elsewhere").await
}

/// The pool as a person would keep it in a file.
async fn file(world: &World, change: &Value) -> Result<tempfile::NamedTempFile> {
    let mut pool = serde_json::to_value(world.pool().await?)?;
    pool["metadata"] = json!({"name": POOL, "namespace": world.namespace()});
    pool["status"] = json!({});
    for (field, value) in change.as_object().into_iter().flatten() {
        *pool
            .pointer_mut(field)
            .with_context(|| format!("no {field}"))? = value.clone();
    }
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), pool.to_string())?;
    Ok(file)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_says_what_a_start_of_the_operator_then_does() -> Result<()> {
    let mut world = World::start(Setup::default()).await?;
    world.until_true(POOL, "Ready").await?;
    let quiet = command(&world, &["plan", POOL]).await?;
    ensure!(
        quiet.code == 0 && quiet.text.contains("do nothing"),
        "{}",
        quiet.said()
    );
    world.stop_operator().await?;
    let nodes = world.wanted(2).await?;
    world
        .until("a plan for two hosts", async || {
            let shown = command(&world, &["plan", POOL, "-o", "json"]).await?;
            let planned = shown.json()?;
            Ok(shown.code == 1 && planned["costs"]["made"]["vms"] == json!(2))
        })
        .await?;
    let path = file(&world, &json!({"/spec/template/numCPUs": 8})).await?;
    let path = path.path().to_str().context("a path")?;
    let before = world.versions().await?;
    let planned = command(&world, &["plan", "-f", path, "-o", "json"]).await?;
    let valid = command(&world, &["validate", path]).await?;
    ensure!(valid.code == 0, "{}", valid.said());
    let planned = planned.json()?;
    ensure!(planned["costs"]["made"]["cpus"] == json!(16), "{planned}");
    let changes = planned["changes"].as_array().into_iter().flatten();
    let fields: Vec<_> = changes.map(|c| c["field"].clone()).collect();
    ensure!(fields == [json!("spec.template.numCPUs")], "{fields:?}");
    ensure!(
        world.versions().await? == before,
        "a plan changed something"
    );
    let bad = file(&world, &json!({"/spec/template/numCPUs": 0})).await?;
    let bad = bad.path().to_str().context("a path")?;
    let small = command(&world, &["validate", bad]).await?;
    let said = "spec.template.numCPUs: 0 is too small";
    ensure!(
        small.code == 1 && small.text.contains(said),
        "{}",
        small.text
    );
    refused(&world, &["plan", "-f", bad], "not valid").await?;
    // What was planned comes true.
    world.start_operator().await?;
    world.running(&nodes, 2).await
}

/// A VM with our mark and without a VsphereAgent is listed, and nothing before that.
async fn orphans_are_listed_as_the_operator_judges_them(world: &World) -> Result<()> {
    let none = command(world, &["orphans"]).await?;
    ensure!(
        none.code == 0 && none.text.starts_with("no orphan VM"),
        "{}",
        none.said()
    );
    let child = world.only_child().await?;
    let id = child.status.and_then(|s| s.cluster_id).context("an id")?;
    let lost = crate::orphans::marked(world, "lost", &id, true).await?;
    let found = command(world, &["orphans", "-o", "json"]).await?;
    let report = found.json()?;
    ensure!(found.code == 1, "{report}");
    let orphans = report["orphans"].as_array().into_iter().flatten();
    let morefs: Vec<_> = orphans.map(|o| o["moref"].clone()).collect();
    ensure!(morefs == [json!(lost)], "{report}");
    world.vcenter.act(&lost, VmAction::PowerOff).await?;
    world.vcenter.act(&lost, VmAction::Destroy).await?;
    Ok(())
}

async fn top_prints_once(world: &World) -> Result<()> {
    let top = command(world, &["top", "-o", "json"]).await?;
    let shown = top.json()?;
    let pools = shown["pools"].as_array().map(Vec::len);
    ensure!(top.code == 0 && pools == Some(1), "{shown}");
    ensure!(shown["machines"][0]["machine"].is_string(), "{shown}");
    Ok(())
}

async fn an_archive_has_everything_except_secrets(world: &World) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("a.tar.gz");
    let path = file.to_str().context("a path")?;
    // The operator's own account may not read its Deployment.
    let admin = world.lab.kubeconfig_admin_path();
    let admin = admin.to_str().context("a path")?;
    let made = command(
        world,
        &["collect", "--archive", path, "--kubeconfig", admin],
    )
    .await?;
    ensure!(
        made.code == 0 && made.text.contains("a.tar.gz"),
        "{}",
        made.said()
    );
    let unzipped = flate2::read::GzDecoder::new(std::fs::File::open(&file)?);
    let mut names = Vec::new();
    let password = world.process.options().password.clone();
    let tokens = world.upstream.images.issued_tokens();
    for entry in tar::Archive::new(unzipped).entries()? {
        let mut entry = entry?;
        let name = entry.path()?.display().to_string();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut entry, &mut text)?;
        ensure!(!text.contains(&password), "the password is in {name}");
        let told = tokens.iter().find(|token| text.contains(token.as_str()));
        ensure!(told.is_none(), "a token is in {name}");
        names.push(name);
    }
    let child = world.only_child().await?.name_any();
    let namespace = world.namespace();
    for wanted in [
        format!("agent-forge/objects/VsphereAgent/{namespace}/{child}.yaml"),
        format!("agent-forge/objects/VsphereAgentPool/{namespace}/{POOL}.yaml"),
        format!("agent-forge/answers/explain/{namespace}/{child}.yaml"),
        format!("agent-forge/answers/plan/{namespace}/{POOL}.yaml"),
        format!("agent-forge/objects/InfraEnv/{namespace}/demo.yaml"),
        format!("agent-forge/events/{namespace}.yaml"),
        "agent-forge/README.txt".to_owned(),
    ] {
        ensure!(names.contains(&wanted), "{wanted} is not in {names:?}");
    }
    let secret = names.iter().find(|name| name.contains("/Secret/"));
    ensure!(secret.is_none(), "{names:?}");
    Ok(())
}

/// Who may view one namespace gets answers about it, and a line for each list that is refused.
async fn a_tenant_gets_answers_about_its_namespace(world: &World) -> Result<()> {
    let namespace = world.namespace();
    let rules = json!([{"apiGroups": ["agent-forge.containeroo.ch"],
        "resources": ["vsphereagentpools", "vsphereagents"], "verbs": ["get", "list"]}]);
    let tenant = world
        .lab
        .kubeconfig_with(namespace, "tenant", &rules)
        .await?;
    let kubeconfig = tenant.kubeconfig.to_str().context("a path")?;
    let child = world.only_child().await?.name_any();
    let subject = format!("va/{child}");
    for (asked, answer) in [
        (vec!["top", "-o", "table"], child.as_str()),
        (vec!["explain", &subject, "--offline"], child.as_str()),
        (vec!["plan", POOL], POOL),
        (vec!["iso", "--offline"], POOL),
    ] {
        // Without a flag, the namespace is that of the context.
        let mut all = asked.clone();
        all.extend(["--kubeconfig", kubeconfig]);
        let shown = as_a_person(&all).await?;
        ensure!(
            shown.code < 2 && shown.text.contains(answer),
            "{asked:?}: {}",
            shown.said()
        );
        let context = format!("namespace: {namespace} (of the context");
        ensure!(
            shown.errors.contains(&context),
            "{asked:?}: {}",
            shown.errors
        );
        if asked[0] != "iso" {
            let unseen = "not seen, and taken for empty: listing agentmachines";
            ensure!(shown.errors.contains(unseen), "{asked:?}: {}", shown.errors);
        }
    }
    // With the Role of the example, nothing is unseen.
    let role = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/config/samples/tenant/role.yaml"
    ))?;
    let role = documents(&role)?.remove(0);
    let whole = world
        .lab
        .kubeconfig_with(namespace, "whole", &role["rules"])
        .await?;
    let kubeconfig = whole.kubeconfig.to_str().context("a path")?;
    let mut role = role.clone();
    role["metadata"]["namespace"] = world.cluster.control_plane_namespace.as_str().into();
    apply(&world.client, &role).await?;
    let bound = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "whole", "namespace": role["metadata"]["namespace"]},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role["metadata"]["name"]},
        "subjects": [{"kind": "User", "name": whole.user, "apiGroup": "rbac.authorization.k8s.io"}]});
    apply(&world.client, &bound).await?;
    for asked in [
        &["top", "-o", "table"][..],
        &["explain", &subject, "--offline"],
        &["plan", POOL],
        &["iso", "--offline"],
    ] {
        let shown = as_a_person(&[asked, &["--kubeconfig", kubeconfig]].concat()).await?;
        let sees_all = shown.code < 2 && !shown.errors.contains("not seen");
        ensure!(sees_all, "{asked:?}: {}", shown.said());
    }
    let kubeconfig = tenant.kubeconfig.to_str().context("a path")?;
    let everywhere = as_a_person(&["top", "-A", "--kubeconfig", kubeconfig]).await?;
    ensure!(!everywhere.text.contains(&child), "{}", everywhere.said());
    Ok(())
}

/// Who may list some kinds gets those, and reads what is missing.
async fn an_archive_has_what_could_be_listed_and_says_what_could_not(world: &World) -> Result<()> {
    let namespace = world.namespace();
    let rules = json!([{"apiGroups": ["agent-forge.containeroo.ch"], "resources": ["vsphereagentpools"],
        "verbs": ["list"]}]);
    let narrow = world
        .lab
        .kubeconfig_with(namespace, "narrow", &rules)
        .await?;
    let kubeconfig = narrow.kubeconfig.to_str().context("a path")?;
    let directory = tempfile::tempdir()?;
    let path = directory.path().to_str().context("a path")?;
    let user = ["--kubeconfig", kubeconfig, "--namespaces", namespace];
    let made = [&["collect", "--directory", path][..], &user].concat();
    let made = command(world, &made).await?;
    ensure!(
        made.code == 1 && made.text.contains("see errors.txt"),
        "{}",
        made.said()
    );
    let file = |name: &str| std::fs::read_to_string(directory.path().join(name));
    file(&format!("objects/VsphereAgentPool/{namespace}/{POOL}.yaml"))?;
    let errors = file("errors.txt")?;
    for kind in ["vsphereagents", "agentmachines", "infraenvs", "NodePool"] {
        let said = format!("listing {kind}");
        ensure!(errors.contains(&said), "{said}: {errors}");
    }
    ensure!(!errors.contains("listing vsphereagentpools"), "{errors}");
    let refused = [&["explain", "va/none"][..], &user].concat();
    let refused = command(world, &refused).await?;
    ensure!(refused.code == 2, "{}", refused.said());
    Ok(())
}
