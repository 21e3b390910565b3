//! A VM that somebody destroys is named among the Nodes as soon as vCenter tells of it.

use std::time::Duration;

use agent_forge_sim::{
    kube::kind,
    plan::Plan,
    run::run_workload,
    workloads::{Run, Workload},
};
use anyhow::{Context as _, Result, ensure};
use serde_json::json;

/// From vCenter's news to the pool's status.
const LIMIT: Duration = Duration::from_secs(2);

async fn somebody_destroys_a_vm(run: &mut Run) -> Result<()> {
    let checks = run.world.hosted.grant()?;
    run.one_up(&json!({"nodeCheck": checks})).await?;
    let world = &run.world;
    let says = |reason: &str| world.condition("w", "NodesConsistent")["reason"] == reason;
    ensure!(says("NodesMatch"), "the Node fits");
    ensure!(world.of_pool("w", "/status/nodes/ours") == 1, "one Node");
    let vm = world.vm_of_ours()?.object.id;
    world.vcenter.write(|i| i.remove_vm(&vm));
    let gone = world.director.now();
    let limit = Duration::from_secs(600);
    world
        .until("it is named", limit, || says("NodesMismatch"))
        .await?;
    let named = world.api.read(|s| {
        let pools = s.log.iter().filter(|e| e.kind == kind("vsphereagentpools"));
        let named = pools.filter(|e| e.object.to_string().contains("\"NodeWithoutVM\""));
        named.map(|e| e.at).min()
    });
    let took = named.context("in the log")?.saturating_sub(gone);
    ensure!(took <= LIMIT, "it took {took:?}");
    Ok(())
}

#[test]
fn a_destroyed_vm_is_named_within_two_seconds_of_the_news() {
    let workload = Workload {
        name: "somebody_destroys_a_vm",
        text: "somebody destroys a VM that serves",
        exact: true,
        instances: 1,
        run: |run| Box::pin(somebody_destroys_a_vm(run)),
    };
    let plan = Plan::without_faults(workload.name, 1);
    let outcome = run_workload(&workload, &plan, None, Duration::from_secs(60));
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
}
