//! VMs of other owners have the names that our VMs need. They do not change, and our VMs are created when the names are
//! free.

use agent_forge_crds::conditions::{READY, find_condition};
use agent_forge_lab::parts::vcenter_trouble::{ForeignVm, VmAction};
use anyhow::{Context as _, Result, ensure};

use crate::{
    look::reserved_reason,
    witness::Witness,
    world::{LIMIT, POOL, Setup, World},
};

impl World {
    /// What vCenter shows of these VMs.
    async fn shown(&self, morefs: &[&str]) -> Result<Vec<String>> {
        let all = self.all_vms().await?;
        let these = all
            .iter()
            .filter(|vm| morefs.contains(&vm.moref.as_str()))
            .map(|vm| format!("{vm:?}"));
        Ok(these.collect())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_another_vm_has_is_left_alone_until_it_is_free() -> Result<()> {
    let world = World::without_pool(Setup::default()).await?;
    let witness = Witness::start(world.sight());
    let nodes = world.wanted(3).await?;
    let waiting = || {
        let all = nodes.agent_machines();
        all.len() == 3
            && all
                .iter()
                .all(|am| reserved_reason(am) == "NoSuitableAgents")
    };
    nodes
        .wait("three waiting AgentMachines", LIMIT, waiting)
        .await?;
    let mut names: Vec<String> = nodes
        .agent_machines()
        .iter()
        .filter_map(|am| am.metadata.name.clone())
        .collect();
    names.sort();
    // In the pool's folder two names are used: by a powered-on and by a powered-off VM. The third name is used in
    // another folder.
    let take = async |name: &str, folder: &str, power_on| {
        let vm = ForeignVm {
            name: name.to_owned(),
            folder: folder.to_owned(),
            power_on,
            ..ForeignVm::default()
        };
        world.vcenter.create_vm(&vm).await
    };
    let runs = take(&names[0], "demo", true).await?;
    let off = take(&names[1], "demo", false).await?;
    let elsewhere = take(&names[2], "others", true).await?;
    let theirs = [runs.as_str(), off.as_str(), elsewhere.as_str()];
    let before = world.shown(&theirs).await?;
    ensure!(before.len() == 3);

    world.create_pool(POOL, &serde_json::json!({})).await?;
    world
        .until("two NameConflicts and one VM of ours", async || {
            let waits = world.waiting_on().await?;
            let conflicts = waits.values().filter(|r| *r == "NameConflict").count();
            Ok(conflicts == 2 && nodes.running() == names[2..])
        })
        .await?;
    for (name, holder) in names.iter().zip([&runs, &off]) {
        let child = world.children().get(name).await?;
        let status = child.status.context("a status")?;
        let ready = find_condition(&status.conditions, READY).context("Ready")?;
        ensure!(
            ready.status == "False" && ready.reason == "NameConflict",
            "{ready:?}"
        );
        ensure!(
            ready.message.contains(name) && ready.message.contains(holder),
            "name and holder are told: {ready:?}"
        );
        ensure!(
            status.vm.is_some_and(|vm| vm.moref.is_none()),
            "a foreign VM is recorded as ours"
        );
    }
    ensure!(
        world.shown(&theirs).await? == before,
        "a foreign VM was touched"
    );

    // First one VM is removed, then the other. No restart is needed.
    world.vcenter.act(&off, VmAction::Destroy).await?;
    let served = || nodes.running() == names[1..];
    world
        .until_nodes(&nodes, "the second Machine", served)
        .await?;
    world.vcenter.act(&runs, VmAction::PowerOff).await?;
    world.vcenter.act(&runs, VmAction::Destroy).await?;
    world.running(&nodes, 3).await?;
    world.until_true(POOL, READY).await?;
    for child in world.all_children().await? {
        let moref = child.status.and_then(|s| s.vm?.moref).context("a VM")?;
        ensure!(!theirs.contains(&moref.as_str()), "{moref} is not ours");
    }

    nodes.scale(0);
    world.machines_left(&nodes, 0).await?;
    world
        .until("only what is theirs", async || {
            let left = world.all_vms().await?;
            Ok(left.iter().all(|vm| vm.moref == elsewhere)
                && world.all_children().await?.is_empty())
        })
        .await?;
    let kept = world.shown(&[&elsewhere]).await?;
    ensure!(
        kept.len() == 1 && before.contains(&kept[0]),
        "the VM elsewhere was touched"
    );
    let destroyed = world.vcenter.calls().await?.of("Destroy_Task");
    ensure!(
        destroyed == 3,
        "three of ours were destroyed, not {destroyed}"
    );
    witness.verdict()
}
