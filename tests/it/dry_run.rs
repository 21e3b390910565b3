//! Dry runs on the real API server and the simulated vCenter: of one pool, and of the operator.

use agent_forge_crds::{
    conditions::{DRY_RUN, READY, find_condition},
    pool::PlannedAction,
};
use anyhow::{Result, ensure};
use kube::api::DeleteParams;
use serde_json::json;

use crate::{
    changes::Changes,
    world::{POOL, Setup, World},
};

/// The plan for a new pool and one machine.
const NEW: [&str; 4] = [
    "DemandDeficit",
    "ChangeFinalizer",
    "PinAgentMachine",
    "UploadISO",
];

impl World {
    async fn planned(&self) -> Result<Vec<PlannedAction>> {
        let status = self.pool_status().await?;
        Ok(status.planned_actions)
    }

    /// Waits until the pool lists exactly these kinds of actions.
    async fn until_plan_has_kinds(&self, kinds: &[&str]) -> Result<()> {
        self.until(&format!("the plan {kinds:?}"), async || {
            let rows = self.planned().await?;
            let found: Vec<&str> = rows.iter().map(|row| row.type_.as_str()).collect();
            Ok(found == kinds)
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_in_a_dry_run_changes_nothing_and_converges_afterwards() -> Result<()> {
    let world = World::without_pool(Setup::default()).await?;
    let nodes = world.wanted(1).await?;
    let changes = Changes::mark(&world).await?;
    let tags = world.vcenter.inventory().await?.tags;
    let [first, second, ..] = &tags[..] else {
        anyhow::bail!("two tags");
    };
    let tagged = |dry_run: bool, id: &str| json!({"dryRun": dry_run, "vsphere": {"vmTags": [id]}});
    world.create_pool(POOL, &tagged(true, &first.id)).await?;
    world.until_plan_has_kinds(&NEW).await?;
    let said = world.until_true(POOL, DRY_RUN).await?;
    ensure!(said.contains("spec.dryRun of VsphereAgentPool"), "{said}");
    world.until_refused(POOL, "ISOReady", "DryRun").await?;
    let logged = world.operator()?.log()?;
    ensure!(logged.contains("dry run: PinAgentMachine"), "{logged}");
    changes.none(&world).await?;

    world.patch_pool(POOL, &json!({"dryRun": false})).await?;
    world.running(&nodes, 1).await?;
    ensure!(world.condition(POOL, DRY_RUN).await?.is_none());

    // Another tag, the Machine goes, and so do VsphereAgent and pool: all of that waits.
    world.patch_pool(POOL, &tagged(true, &second.id)).await?;
    world.until_true(POOL, DRY_RUN).await?;
    let changes = Changes::mark(&world).await?;
    let children = world.all_children().await?;
    let name = children[0].metadata.name.clone().unwrap_or_default();
    nodes.scale(0);
    world.machines_left(&nodes, 0).await?;
    world
        .children()
        .delete(&name, &DeleteParams::default())
        .await?;
    world.pools().delete(POOL, &DeleteParams::default()).await?;
    world
        .until(
            "a VsphereAgent that waits for the end of the dry run",
            async || {
                let child = world.children().get(&name).await?;
                let status = child.status.unwrap_or_default();
                let ready = find_condition(&status.conditions, READY);
                Ok(ready.is_some_and(|c| c.status == "False" && c.reason == "DryRun"))
            },
        )
        .await?;
    world.until_refused(POOL, READY, "DryRun").await?;
    world
        .until("its next step in the pool's plan", async || {
            let rows = world.planned().await?;
            Ok(rows
                .iter()
                .any(|r| r.type_ == "ChangeVM" && r.name.as_ref() == Some(&name)))
        })
        .await?;
    changes.none(&world).await?;
    world.patch_pool(POOL, &json!({"dryRun": false})).await?;
    world.settled(0).await?;
    world.pool_ends().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_in_a_dry_run_changes_nothing() -> Result<()> {
    let mut world = World::without_pool(Setup::args(["--dry-run"])).await?;
    let nodes = world.wanted(1).await?;
    let changes = Changes::mark(&world).await?;
    world.create_pool(POOL, &json!({})).await?;
    world.until_plan_has_kinds(&NEW).await?;
    let said = world.until_true(POOL, DRY_RUN).await?;
    ensure!(said.contains("dry run by --dry-run"), "{said}");
    changes.none(&world).await?;
    world.stop_operator().await?;
    changes.none(&world).await?;
    world.setup.operator_args.clear();
    world.start_operator().await?;
    world.running(&nodes, 1).await?;
    ensure!(world.condition(POOL, DRY_RUN).await?.is_none());
    Ok(())
}
