//! The oracle `foreign_and_serving_untouched` sees every write to a VM that serves, and accepts the only write that is
//! allowed.

use std::time::Duration;

use agent_forge_sim::{
    oracles,
    plan::Plan,
    promise::{Failure, Oracle},
    run::run_workload,
    vcenter::{Course, tasks::Work},
    workloads::{Run, Workload},
};
use anyhow::{Context as _, Result};
use futures::future::BoxFuture;
use serde_json::{Value, json};

/// Brings a machine up, and lets somebody send this spec to its VM.
async fn somebody_edits(run: &mut Run, pool: &Value, spec: Value) -> Result<()> {
    run.world.pool("w", pool).await?;
    run.world.play("w")?.scale(1);
    run.rest_with("one up", &[("w", 1)]).await?;
    let vcenter = run.world.vcenter.clone();
    let ours = vcenter.read(|i| {
        let vm = i.vms.values().find(|v| oracles::marker(v).is_some());
        vm.map(|vm| vm.object.clone())
    });
    vcenter.start(
        Work::Reconfigure(ours.context("a VM")?, spec),
        Course::Usual,
    );
    tokio::time::sleep(Duration::from_secs(5)).await;
    Ok(())
}

fn an_empty_drive() -> Value {
    json!({"_typeName": "VirtualMachineConfigSpec", "deviceChange": [{
        "_typeName": "VirtualDeviceConfigSpec", "operation": "edit",
        "device": {
            "_typeName": "VirtualCdrom", "key": 16000,
            "backing": {"_typeName": "VirtualCdromRemotePassthroughBackingInfo"},
        },
    }]})
}

fn unwanted(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    Box::pin(async { somebody_edits(run, &json!({}), an_empty_drive()).await })
}

fn wanted(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    let pool = json!({"iso": {"ejectAfterInstall": true}});
    Box::pin(async move { somebody_edits(run, &pool, an_empty_drive()).await })
}

fn more_than_that(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    let pool = json!({"iso": {"ejectAfterInstall": true}});
    let mut spec = an_empty_drive();
    spec["numCPUs"] = json!(2);
    Box::pin(async move { somebody_edits(run, &pool, spec).await })
}

#[test]
fn only_a_drive_that_is_to_be_empty_may_be_written_to_while_its_vm_serves() {
    type Does = for<'a> fn(&'a mut Run) -> BoxFuture<'a, Result<()>>;
    for (run, says) in [
        (unwanted as Does, Some("drive: ")),
        (wanted, None),
        (more_than_that, Some("serving: ")),
    ] {
        let workload = Workload {
            name: "somebody_edits",
            text: "somebody edits a VM that serves",
            exact: true,
            instances: 1,
            run,
        };
        let plan = Plan {
            workload: workload.name.to_owned(),
            seed: 1,
            faults: Vec::new(),
        };
        let outcome = run_workload(&workload, &plan, None, Duration::from_secs(60));
        let about = |f: &&Failure| f.oracle == Oracle::ForeignAndServingUntouched;
        let found: Vec<_> = outcome.failures.iter().filter(about).collect();
        assert_eq!(found.len(), usize::from(says.is_some()), "{found:?}");
        let fits = |f: &&Failure| says.is_some_and(|says| f.what.starts_with(says));
        assert!(found.iter().all(fits), "{found:?}");
        assert_eq!(
            outcome.failures.len(),
            found.len(),
            "{:?}",
            outcome.failures
        );
    }
}
