//! The oracle `foreign_and_serving_untouched` sees every write to a VM that serves, and accepts the only write that is
//! allowed.

use std::time::Duration;

use agent_forge_sim::{
    plan::Plan,
    promise::{Failure, Oracle},
    run::run_workload,
    vcenter::{Course, tasks::Work},
    workloads::{Run, Workload},
};
use anyhow::Result;
use futures::future::BoxFuture;
use serde_json::{Value, json};

/// Brings a machine up, and lets somebody send this spec to its VM.
async fn somebody_edits(run: &mut Run, pool: &Value, spec: Value) -> Result<()> {
    run.one_up(pool).await?;
    let work = Work::Reconfigure(run.world.vm_of_ours()?.object, spec);
    run.world.vcenter.start(work, Course::Usual);
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

async fn unwanted(run: &mut Run) -> Result<()> {
    somebody_edits(run, &json!({}), an_empty_drive()).await
}

async fn wanted(run: &mut Run) -> Result<()> {
    let pool = json!({"iso": {"ejectAfterInstall": true}});
    somebody_edits(run, &pool, an_empty_drive()).await
}

async fn more_than_that(run: &mut Run) -> Result<()> {
    let pool = json!({"iso": {"ejectAfterInstall": true}});
    let mut spec = an_empty_drive();
    spec["numCPUs"] = json!(2);
    somebody_edits(run, &pool, spec).await
}

#[test]
fn only_a_drive_that_is_to_be_empty_may_be_written_to_while_its_vm_serves() {
    type Does = for<'a> fn(&'a mut Run) -> BoxFuture<'a, Result<()>>;
    let all: [(Does, Option<&str>); 3] = [
        (|run| Box::pin(unwanted(run)), Some("drive: ")),
        (|run| Box::pin(wanted(run)), None),
        (|run| Box::pin(more_than_that(run)), Some("serving: ")),
    ];
    for (run, says) in all {
        let workload = Workload {
            name: "somebody_edits",
            text: "somebody edits a VM that serves",
            exact: true,
            instances: 1,
            run,
        };
        let plan = Plan::without_faults(workload.name, 1);
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
