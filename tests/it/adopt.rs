//! A VM that was made by hand and serves a Machine: shown, asked for, proven, adopted, kept, and given up to its pool at last.

use agent_forge_crds::{
    agent::VsphereAgent,
    conditions::Reason,
    names::{ADOPT_ANNOTATION, CREATED_FOR_ADOPTED, CREATED_FOR_LABEL},
    pool::SOURCE_DISCOVERED_AGENT,
};
use agent_forge_lab::parts::vcenter_trouble::VmAction;
use anyhow::{Context as _, Result, ensure};
use kube::{ResourceExt as _, api::DeleteParams};
use serde_json::json;

use crate::{
    cli::command,
    look::merge,
    world::{POOL, Setup, World},
};

/// Keys in the `extraConfig` of a VM.
const MARKER: &str = "agent-forge.owner";
const MAY_SERVE: &str = "agent-forge.may-serve";
const ADOPT: &str = "agent-forge.adopt";

/// The VM of the only machine becomes one that a person made: no record names it, and it has no mark of the operator.
async fn made_by_hand(world: &mut World) -> Result<String> {
    let (vm, child) = (world.only_vm().await?, world.only_child().await?);
    world.stop_operator().await?;
    let free = json!({"metadata": {"finalizers": null}});
    let name = child.name_any();
    merge(&world.children(), &name, free).await?;
    world
        .children()
        .delete(&name, &DeleteParams::default())
        .await?;
    for key in [MARKER, MAY_SERVE] {
        world
            .vcenter
            .act(&vm.moref, VmAction::SetOption(key, ""))
            .await?;
    }
    let notes = VmAction::SetNotes("ask Ann");
    world.vcenter.act(&vm.moref, notes).await?;
    Ok(vm.moref)
}

/// `agent-forge adopt`, for the pool.
async fn adopt(world: &World, more: &[&str]) -> Result<(i32, String)> {
    let mut args = vec!["adopt", POOL, "-n", world.namespace()];
    args.extend(more);
    let shown = command(world, &args).await?;
    Ok((shown.code, shown.said()))
}

/// What the status says of the VM of that record.
async fn record(world: &World) -> Result<(VsphereAgent, Option<i32>)> {
    let child = world.only_child().await?;
    let vm = child.status.as_ref().and_then(|s| s.vm.as_ref());
    let attempt = vm.and_then(|vm| vm.attempt);
    Ok((child, attempt))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_made_by_hand_is_adopted_on_proof_and_kept_until_a_person_says_otherwise() -> Result<()>
{
    let mut world = World::start(Setup::default()).await?;
    let nodes = world.up(1).await?;
    let moref = made_by_hand(&mut world).await?;
    world.start_operator().await?;

    // Nobody has allowed it in vCenter. Preview changes nothing, and says what is missing.
    let (code, said) = adopt(&world, &[]).await?;
    let lacks = "lacks the mark of an administrator of vCenter";
    ensure!(code == 1 && said.contains(lacks), "{code}: {said}");
    let (code, said) = adopt(&world, &["--apply"]).await?;
    ensure!(code == 1 && said.contains(lacks), "{code}: {said}");
    ensure!(world.all_children().await?.is_empty(), "nothing is written");

    // A tenant who writes the VsphereAgent itself gets no further.
    // What the command says to an administrator.
    let (_, told) = said.split_once("agent-forge.adopt=").context("a command")?;
    let ours = told.split_whitespace().next().context("a mark")?.to_owned();
    ensure!(
        ours.ends_with(&format!("/{}/{POOL}", world.namespace())),
        "{ours}"
    );
    let mark = |pool| VmAction::SetOption(ADOPT, pool);
    world.vcenter.act(&moref, mark("rival/w")).await?;
    let (code, _) = adopt(&world, &["--apply", "--offline"]).await?;
    ensure!(code == 0);
    let refused = "names pool \"rival/w\"";
    world
        .until_waits(Reason::AdoptionUnproven.as_str(), &[refused])
        .await?;
    let vm = world.only_vm().await?;
    ensure!(!vm.extra_config.contains_key(MARKER), "{vm:?}");

    // With the right mark the operator adopts it, and writes its own mark alone.
    world.vcenter.act(&moref, mark(ours.as_str())).await?;
    world
        .until("the adoption", async || {
            Ok(record(&world).await?.1 == Some(1))
        })
        .await?;
    let (child, _) = record(&world).await?;
    let status = child.status.clone().context("a status")?;
    let recorded = status.vm.context("a record")?;
    ensure!(
        recorded.source.as_deref() == Some(SOURCE_DISCOVERED_AGENT),
        "{recorded:?}"
    );
    ensure!(child.labels().get(CREATED_FOR_LABEL).map(String::as_str) == Some(CREATED_FOR_ADOPTED));
    let vm = world.only_vm().await?;
    ensure!(vm.extra_config.contains_key(MARKER) && vm.is_on(), "{vm:?}");
    ensure!(vm.annotation == "ask Ann", "{vm:?}");
    let (code, said) = adopt(&world, &[]).await?;
    ensure!(code == 0 && said.contains("adopted"), "{code}: {said}");
    world.settled(1).await?;

    // The pool shrinks: the VM and its record stay.
    nodes.scale(0);
    world.machines_left(&nodes, 0).await?;
    world.until_pool_waits("Retained", "").await?;
    let vm = world.only_vm().await?;
    ensure!(vm.is_on() && world.all_agents().await?.len() == 1);

    // A person says that it ends as any other.
    let own = json!({"metadata": {"annotations": {ADOPT_ANNOTATION: "own"}}});
    merge(&world.children(), &child.name_any(), own).await?;
    world.settled(0).await
}
