//! VMs with our mark but without their VsphereAgent. A VM that never ran is destroyed. A VM that ran stays and is
//! reported.

use std::collections::{BTreeMap, BTreeSet};

use agent_forge_actors::domain::identity::BiosUuid;
use agent_forge_lab::parts::vcenter_trouble::{ForeignVm, VmAction};
use anyhow::{Result, ensure};

use crate::world::{Setup, World};

/// Key of the mark in a VM's `extraConfig`.
const MARKER: &str = "agent-forge.owner";
const CLUSTER: &str = "orphans-lab";

/// Creates a VM with the mark of `cluster`, for a VsphereAgent that does not exist.
pub async fn marked(world: &World, name: &str, cluster: &str, power_on: bool) -> Result<String> {
    let uid = format!("00000000-0000-4000-8000-{:012}", name.len());
    let mark = format!("v1/{cluster}/{}/{name}/{uid}/1", world.namespace());
    let vm = ForeignVm {
        uuid: BiosUuid::derive(cluster, &uid, 1).to_string(),
        name: name.to_owned(),
        folder: "demo".to_owned(),
        extra_config: BTreeMap::from([(MARKER.to_owned(), mark)]),
        power_on,
        ..ForeignVm::default()
    };
    world.vcenter.create_vm(&vm).await
}

impl World {
    async fn events(&self, reason: &str) -> Result<Vec<String>> {
        let told = self.told(reason).await?;
        Ok(told.into_iter().map(|t| t.note).collect())
    }

    /// The ids of all VMs.
    pub async fn morefs(&self) -> Result<BTreeSet<String>> {
        let all = self.all_vms().await?;
        Ok(all.into_iter().map(|vm| vm.moref).collect())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_never_ran_goes_and_what_ran_is_reported_with_the_runbook() -> Result<()> {
    let interval = "--orphan-scan-interval=10s".to_owned();
    let world = World::start(Setup::args([interval, format!("--cluster-id={CLUSTER}")])).await?;
    let never_ran = marked(&world, "never-ran", CLUSTER, false).await?;
    let runs = marked(&world, "runs", CLUSTER, true).await?;
    // It is powered off now, but its boot order shows that it was on before.
    let ran = marked(&world, "ran-once", CLUSTER, false).await?;
    world.vcenter.act(&ran, VmAction::BootFromDisk).await?;
    let another_hubs = marked(&world, "another-hubs", "another-hub", false).await?;

    world
        .until("the end of what never ran", async || {
            Ok(!world.morefs().await?.contains(&never_ran))
        })
        .await?;
    world
        .until("words on both that ran", async || {
            Ok(world.events("OrphanVM").await?.len() == 2)
        })
        .await?;
    for moref in [&runs, &ran] {
        let said = world.events("OrphanVM").await?;
        ensure!(
            said.iter().any(|note| note.contains(&format!("{moref:?}"))
                && note.contains("docs/runbooks/AgentForgeOrphanVMs.md")),
            "{moref} is not told: {said:?}"
        );
        ensure!(!said.iter().any(|note| note.contains("govc")), "{said:?}");
    }
    // Events are sent in the background.
    world
        .until("words on what was destroyed", async || {
            Ok(!world.events("OrphanVMDestroyed").await?.is_empty())
        })
        .await?;
    let told = world.events("OrphanVMDestroyed").await?;
    ensure!(
        told.len() == 1 && told[0].contains(&never_ran),
        "what was destroyed is said: {told:?}"
    );
    let server = &world.vcenter;
    ensure!(
        server.calls().await?.of("Destroy_Task") == 1,
        "one VM was destroyed, no other one was tried"
    );
    let operator = world.operator()?;
    world
        .until("two orphans in the metrics", async || {
            let scrape = operator.metrics().await?;
            let mut lines = scrape.lines();
            Ok(lines.any(|l| l.starts_with("agent_forge_orphan_vms{") && l.ends_with(" 2")))
        })
        .await?;

    // A person deletes the reported VMs, and the metric follows.
    world.vcenter.act(&runs, VmAction::PowerOff).await?;
    for moref in [&runs, &ran] {
        world.vcenter.act(moref, VmAction::Destroy).await?;
    }
    world
        .until("no orphan in the metrics", async || {
            let scrape = operator.metrics().await?;
            let mut lines = scrape.lines();
            Ok(lines.any(|l| l.starts_with("agent_forge_orphan_vms{") && l.ends_with(" 0")))
        })
        .await?;
    ensure!(
        world.morefs().await?.contains(&another_hubs),
        "another hub's VM was touched"
    );
    Ok(())
}
