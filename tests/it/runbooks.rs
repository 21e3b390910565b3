//! Whoever is called at night copies the commands of a runbook. Each one is run here, against a cluster with one machine that serves.

use std::{collections::BTreeSet, fs, os::unix::fs::symlink, path::Path};

use agent_forge_lab::{
    lab::{apply::apply, manifest::rendered},
    tools::kubectl,
};
use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use tokio::process::Command;

use crate::{
    installed::kinds_of_prometheus,
    world::{POOL, Setup, World},
};

/// What no command can answer here, by a part of it: there are no Pods and no token controller, and the lab has neither the tools
/// of vCenter nor a MachineHealthCheck. A metric is a query for Prometheus.
const NOT_HERE: [&str; 7] = [
    "kubectl port-forward",
    "TOKEN=",
    "curl ",
    "govc ",
    "openssl ",
    "machinehealthchecks",
    "agent_forge_",
];

/// The commands of a page, one for each line of its blocks. Lines that end with `\` go on. Queries of Prometheus have functions, and
/// are no commands.
fn commands(page: &str) -> Vec<Vec<String>> {
    let blocks = page.split("```").skip(1).step_by(2);
    let of_block = |block: &str| {
        let body = block.split_once('\n').map_or("", |(_, body)| body);
        let joined = body.replace("\\\n", " ");
        let lines = joined
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty());
        let is_query =
            |line: &&str| line.starts_with("sum ") || line.starts_with("histogram_quantile");
        lines
            .filter(|line| !is_query(line))
            .map(str::to_owned)
            .collect()
    };
    blocks.map(of_block).collect()
}

/// The command as it is run here: the program beside the tests instead of that in a Pod, and no change is made.
fn here(line: &str, child: &str, namespace: &str) -> String {
    let in_pod = "kubectl exec -n agent-forge-system deploy/agent-forge -- /agent-forge";
    let mut line = line
        .replace(in_pod, "agent-forge")
        .replace("demo-worker-abc", child);
    for changes in [
        "kubectl delete ",
        "kubectl annotate ",
        "kubectl set ",
        "kubectl patch ",
    ] {
        line = line.replace(changes, &format!("{changes}--dry-run=server "));
    }
    line = line.replace("NS=demo", &format!("NS={namespace}"));
    line = line.replace("POOL=demo-worker", &format!("POOL={POOL}"));
    line.replace("-n demo ", &format!("-n {namespace} "))
}

#[tokio::test(flavor = "multi_thread")]
async fn each_command_of_each_runbook_works() -> Result<()> {
    let world = World::start(Setup {
        own_lab: true,
        ..Setup::default()
    })
    .await?;
    for kind in kinds_of_prometheus() {
        apply(&world.client, &kind).await?;
    }
    world.up(1).await?;
    let child = world.only_child().await?.name_any();
    for mut object in rendered("default").await? {
        if object["kind"] == "Deployment" {
            // The commands take these from here.
            let args = object["spec"]["template"]["spec"]["containers"][0]["args"].as_array_mut();
            let args = args.context("arguments")?;
            args.extend([
                "--vsphere-allow-local-server=true".into(),
                "--iso-allow-local-source=true".into(),
            ]);
        }
        apply(&world.client, &object).await?;
    }
    let tools = tempfile::tempdir()?;
    symlink(
        env!("CARGO_BIN_EXE_agent-forge"),
        tools.path().join("agent-forge"),
    )?;
    symlink(kubectl()?, tools.path().join("kubectl"))?;
    fs::write(tools.path().join("ca.pem"), world.process.ca_pem())?;
    // In the place of a hosted cluster.
    fs::copy(
        world.lab.kubeconfig_admin_path(),
        tools.path().join("hosted.kubeconfig"),
    )?;
    let has_jq = ["/usr/bin/jq", "/bin/jq"]
        .iter()
        .any(|jq| Path::new(jq).exists());
    if !has_jq {
        eprintln!("SKIPPED: the commands with jq, which is not in /usr/bin");
    }
    let (mut run, mut left_out, mut failed) = (0, BTreeSet::new(), Vec::new());
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/runbooks");
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let page = fs::read_to_string(&path)?;
        let mut set = String::new();
        for line in commands(&page).concat() {
            let line = here(&line, &child, world.namespace());
            // `NS=demo POOL=demo-worker` and `VA=...`, for the lines below.
            if line.split_whitespace().all(|word| {
                word.contains('=') && !word.starts_with(['-', '\'']) && !word.contains("$(")
            }) {
                set = format!("{set}{line}; ");
                continue;
            }
            if let Some(why) = NOT_HERE.iter().find(|part| line.contains(*part)) {
                left_out.insert(*why);
                continue;
            }
            if !has_jq && line.contains("jq ") {
                continue;
            }
            run += 1;
            let shown = Command::new("bash")
                .args(["-c", &format!("set -o pipefail; {set}{line}")])
                .env("PATH", format!("{}:/usr/bin:/bin", tools.path().display()))
                .env("KUBECONFIG", world.lab.kubeconfig_admin_path())
                // Named, so that the lab's own flags count as well.
                .env("AGENT_FORGE_OPERATOR", "agent-forge-system/agent-forge")
                .current_dir(tools.path())
                .output()
                .await?;
            // 1 says that something was found, or that `grep` found nothing.
            let said = String::from_utf8_lossy(&shown.stderr);
            let errors = ["error", "Error", "jq:", "agent-forge:", "bash:"];
            let is_error = |line: &str| errors.iter().any(|word| line.starts_with(word));
            if !matches!(shown.status.code(), Some(0 | 1)) || said.lines().any(is_error) {
                let name = path
                    .file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned();
                failed.push(format!("{name}: {line}: {}: {said}", shown.status));
            }
        }
    }
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    ensure!(run > 60, "{run} commands were run");
    let unused = NOT_HERE.iter().find(|part| !left_out.contains(*part));
    ensure!(unused.is_none(), "no runbook has {unused:?}");
    Ok(())
}
