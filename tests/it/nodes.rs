//! The Nodes of a hosted cluster, on an API server of its own, beside the VMs.

use agent_forge_lab::{
    Lab, LabOptions,
    lab::apply::{apply, apply_yaml},
    parts::vcenter_trouble::VmAction,
};
use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::world::{POOL, Setup, World};

/// The YAML that the page gives to people, up to the token.
fn of_the_page() -> Result<String> {
    let page = include_str!("../../docs/how-to/check-nodes.md");
    let block = page.split("```yaml\n").nth(1).context("a block")?;
    let block = block.split("```").next().context("its end")?;
    // No controller of the lab makes a token for a Secret.
    let end = block
        .find("---\napiVersion: v1\nkind: Secret")
        .context("the Secret")?;
    Ok(block[..end].to_owned())
}

fn node(name: &str, provider: Option<&str>, labels: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        "spec": {"providerID": provider},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_compared_with_vms_and_whoever_does_not_answer_is_unknown() -> Result<()> {
    let hosted = Lab::start(LabOptions::default()).await?;
    apply_yaml(&hosted.admin(), &of_the_page()?).await?;
    let access = hosted
        .kubeconfig_with("kube-system", "agent-forge-nodes", &json!([]))
        .await?;
    let world = World::start(Setup::default()).await?;
    let secret = |text: &str| {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "nodes", "namespace": world.namespace()},
            "stringData": {"kubeconfig": text}})
    };
    let kubeconfig = std::fs::read_to_string(&access.kubeconfig)?;
    let mut runs = serde_saphyr::from_str::<Value>(&kubeconfig)?;
    runs["users"][0]["user"] = json!({"exec": {"command": "/bin/true"}});
    apply(&world.client, &secret(&runs.to_string())).await?;
    let check = json!({"nodeCheck": {"kubeconfigSecretRef": {"name": "nodes"}}});
    world.patch_pool(POOL, &check).await?;
    world
        .until_pool_says(
            POOL,
            "NodesConsistent",
            "a refused field",
            |[status, reason, text]| {
                status == "Unknown" && reason == "KubeconfigRefused" && text.contains("exec")
            },
        )
        .await?;
    apply(&world.client, &secret(&kubeconfig)).await?;
    world.up(1).await?;
    let vm = world.only_vm().await?;
    let agent = world.agent_on(&vm).await?.name_any();
    let typed = json!({"node.kubernetes.io/instance-type": "vsphere-vm.cpu-8.mem-16gb.os-rhel"});
    for object in [
        node("ours", Some(&format!("agent://{agent}")), &json!({})),
        node(
            "of-others",
            Some("vsphere://4222f4c2-0000-0000-0000-000000000001"),
            &typed,
        ),
        node(
            "metal",
            Some("baremetalhost:///openshift-machine-api/metal/1"),
            &json!({}),
        ),
        node("new", None, &json!({})),
    ] {
        apply(&hosted.admin(), &object).await?;
    }
    let said = world
        .until_pool_says(
            POOL,
            "NodesConsistent",
            "four Nodes",
            |[status, _, text]| {
                status == "True" && text.contains("ours=1 foreign=1 ignored=2 unknown=0")
            },
        )
        .await?;
    ensure!(said.starts_with("ours=1"), "{said}");
    has_old_hardware(&world, &vm.moref).await?;
    // Somebody destroys the VM. Only the Node of that VM is named.
    world.vcenter.act(&vm.moref, VmAction::PowerOff).await?;
    world.vcenter.act(&vm.moref, VmAction::Destroy).await?;
    let said = world
        .until_pool_says(
            POOL,
            "NodesConsistent",
            "the lost VM",
            |[status, reason, _]| status == "False" && reason == "NodesMismatch",
        )
        .await?;
    ensure!(said.contains("Node ours runs on VM"), "{said}");
    // The operator only lists, and a hosted cluster that is away is no finding.
    let asked = hosted.audited().await?;
    let of_user = asked
        .iter()
        .filter(|entry| entry.user.username == access.user);
    let verbs: Vec<&str> = of_user.map(|entry| entry.verb.as_str()).collect();
    ensure!(
        !verbs.is_empty() && verbs.iter().all(|verb| *verb == "list"),
        "{verbs:?}"
    );
    drop(hosted);
    world
        .until_pool_says(POOL, "NodesConsistent", "nothing known", |[status, ..]| {
            status == "Unknown"
        })
        .await?;
    let nodes = world.pool_status().await?.nodes;
    ensure!(nodes.is_none(), "{nodes:?}");
    Ok(())
}

/// A hardware version below 15 is a finding until it is raised. All other Nodes stay as they are.
async fn has_old_hardware(world: &World, vm: &str) -> Result<()> {
    for (version, fits) in [("vmx-13", false), ("vmx-15", true)] {
        let changed = VmAction::SetHardwareVersion(version);
        world.vcenter.act(vm, changed).await?;
        let about = format!("hardware version {version}");
        world
            .until_pool_says(POOL, "NodesConsistent", &about, |[status, _, text]| {
                let named = text.contains("Node ours") && text.contains("hardware version 13");
                (status == "True") == fits && named != fits
            })
            .await?;
        let status = world.pool_status().await?.nodes.context("the Nodes")?;
        let kinds: Vec<&str> = status.findings.iter().map(|f| f.kind.as_str()).collect();
        let wanted: &[&str] = if fits { &[] } else { &["OldHardwareVersion"] };
        ensure!(kinds == wanted, "{kinds:?}");
    }
    Ok(())
}
