//! The commands that show things to people, on the real API server and the lab's vCenter.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::{
    cli::command,
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
async fn a_machine_is_explained_from_each_of_its_objects_and_nothing_changes() -> Result<()> {
    let mut world = World::start(Setup::default()).await?;
    let nodes = world.node_pool().await?;
    nodes.scale(1);
    world.running(&nodes, 1).await?;
    let [child] = &world.all_children().await?[..] else {
        anyhow::bail!("one VsphereAgent");
    };
    let [vm] = &world.all_vms().await?[..] else {
        anyhow::bail!("one VM");
    };
    let (name, agent) = (child.name_any(), world.agent_on(vm).await?.name_any());
    world
        .until("the end of all work", async || {
            let child = world.children().get(&name).await?;
            let status = child.status.unwrap_or_default();
            let vm = status.vm.unwrap_or_default();
            Ok(status.waiting_on.is_empty() && vm.phase.is_some_and(|p| p.as_str() == "Bound"))
        })
        .await?;
    world.stop_operator().await?;
    let before = world.versions().await?;
    for subject in [
        format!("AgentMachine/{name}"),
        format!("Machine/{name}"),
        format!("va/{name}"),
        format!("VM/{}", vm.moref),
        format!("Agent/{agent}"),
        format!("Node/{name}"),
    ] {
        let shown = command(&world, &["explain", &subject, "-o", "json"]).await?;
        let explained = shown.json()?;
        ensure!(shown.code == 0, "{subject}: {}{}", shown.text, shown.errors);
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
            p["fact"]
                .as_str()
                .is_some_and(|f| f.starts_with("marker of the VM in vCenter"))
        });
        ensure!(marker, "{subject}: {proofs:#?}");
        ensure!(
            explained["timeline"]
                .as_array()
                .is_some_and(|t| t.len() >= 8),
            "{explained}"
        );
    }
    let unknown = command(&world, &["explain", "VM/nowhere"]).await?;
    ensure!(
        unknown.code == 2 && unknown.errors.contains("agent-forge orphans"),
        "{}",
        unknown.errors
    );
    let usage = command(&world, &["explain", "nonsense"]).await?;
    ensure!(
        usage.code == 2 && usage.errors.contains("KIND/NAME"),
        "{}",
        usage.errors
    );
    ensure!(
        world.versions().await? == before,
        "a command changed something"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_is_explained_with_who_can_end_it() -> Result<()> {
    let world = World::start(Setup {
        pool_patch: json!({"vsphere": {"network": "nowhere"}}),
        ..Setup::default()
    })
    .await?;
    let nodes = world.node_pool().await?;
    nodes.scale(1);
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
            let shown = command(
                &world,
                &[
                    "explain",
                    &subject,
                    "-n",
                    &world.cluster.control_plane_namespace,
                ],
            )
            .await?;
            let said = [
                "VsphereObjectNotFound",
                "Who can end it: the owner of the pool",
                "reasons.md#specvsphere-and-resources",
            ];
            Ok(shown.code == 1 && said.iter().all(|s| shown.text.contains(s)))
        })
        .await?;
    let missing = command(
        &world,
        &["explain", &format!("va/{name}"), "-n", "elsewhere"],
    )
    .await?;
    ensure!(missing.code == 2, "{}", missing.text);
    ensure!(
        missing.errors.contains("in namespace elsewhere"),
        "{}",
        missing.errors
    );
    Ok(())
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
        "{}{}",
        quiet.text,
        quiet.errors
    );
    world.stop_operator().await?;
    let nodes = world.node_pool().await?;
    nodes.scale(2);
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
    ensure!(valid.code == 0, "{}{}", valid.text, valid.errors);
    let planned = planned.json()?;
    ensure!(planned["costs"]["made"]["cpus"] == json!(16), "{planned}");
    let fields: Vec<_> = planned["changes"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|c| c["field"].clone())
        .collect();
    ensure!(fields == [json!("spec.template.numCPUs")], "{fields:?}");
    ensure!(
        world.versions().await? == before,
        "a plan changed something"
    );
    let bad = file(&world, &json!({"/spec/template/numCPUs": 0})).await?;
    let bad = bad.path().to_str().context("a path")?;
    let refused = command(&world, &["validate", bad]).await?;
    ensure!(
        refused.code == 1
            && refused
                .text
                .contains("spec.template.numCPUs: 0 is too small"),
        "{}",
        refused.text
    );
    let refused = command(&world, &["plan", "-f", bad]).await?;
    ensure!(
        refused.code == 2 && refused.errors.contains("not valid"),
        "{}",
        refused.errors
    );
    // What was planned comes true.
    world.start_operator().await?;
    world.running(&nodes, 2).await
}

#[tokio::test(flavor = "multi_thread")]
async fn orphans_are_listed_as_the_operator_judges_them() -> Result<()> {
    let world = World::start(Setup::default()).await?;
    let nodes = world.node_pool().await?;
    nodes.scale(1);
    world.running(&nodes, 1).await?;
    let none = command(&world, &["orphans"]).await?;
    ensure!(
        none.code == 0 && none.text.starts_with("no orphan VM"),
        "{}{}",
        none.text,
        none.errors
    );
    let child = world
        .all_children()
        .await?
        .pop()
        .context("a VsphereAgent")?;
    let id = child.status.and_then(|s| s.cluster_id).context("an id")?;
    let lost = crate::orphans::marked(&world, "lost", &id, true).await?;
    let found = command(&world, &["orphans", "-o", "json"]).await?;
    let report = found.json()?;
    ensure!(found.code == 1, "{report}");
    let morefs: Vec<_> = report["orphans"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|o| o["moref"].clone())
        .collect();
    ensure!(morefs == [json!(lost)], "{report}");
    let role = command(&world, &["privileges", "--govc"]).await?;
    ensure!(
        role.code == 0 && role.text.starts_with("govc role.create agent-forge "),
        "{}",
        role.errors
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn top_prints_once_and_an_archive_has_everything_except_secrets() -> Result<()> {
    let world = World::start(Setup::default()).await?;
    let nodes = world.node_pool().await?;
    nodes.scale(1);
    world.running(&nodes, 1).await?;
    let top = command(&world, &["top", "-o", "json"]).await?;
    let shown = top.json()?;
    ensure!(
        top.code == 0 && shown["pools"].as_array().is_some_and(|p| p.len() == 1),
        "{shown}"
    );
    ensure!(shown["machines"][0]["machine"].is_string(), "{shown}");
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("a.tar.gz");
    let path = file.to_str().context("a path")?;
    let made = command(&world, &["collect", "--archive", path]).await?;
    ensure!(
        made.code == 0 && made.text.contains("a.tar.gz"),
        "{}{}",
        made.text,
        made.errors
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
    let child = world
        .all_children()
        .await?
        .pop()
        .context("a VsphereAgent")?
        .name_any();
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
    ensure!(
        !names.iter().any(|name| name.contains("/Secret/")),
        "{names:?}"
    );
    Ok(())
}

/// Who may list some kinds gets those, and reads what is missing.
#[tokio::test(flavor = "multi_thread")]
async fn an_archive_has_what_could_be_listed_and_says_what_could_not() -> Result<()> {
    let world = World::start(Setup::default()).await?;
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
    let made = command(&world, &made).await?;
    ensure!(
        made.code == 1 && made.text.contains("see errors.txt"),
        "{}{}",
        made.text,
        made.errors
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
    let refused = command(&world, &refused).await?;
    ensure!(refused.code == 2, "{}{}", refused.text, refused.errors);
    Ok(())
}
