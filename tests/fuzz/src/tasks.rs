//! What vCenter reports about a task.

use std::time::Duration;

use agent_forge_actors::ports::vcenter::TaskRef;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::vcenter;

/// The task of the examples.
const TASK: &str = "task-12";
/// Virtual time in which a wait ends after the last report, whatever that was. vCenter may be silent for a minute.
const PATIENCE: Duration = Duration::from_secs(600);
/// Virtual time for each report. After one that means nothing, the next question comes within five seconds.
const EACH: Duration = Duration::from_secs(6);

/// The input is the first reports. After them the task succeeds. The wait ends, with an end or an error that can be
/// shown.
pub(crate) fn check(data: &[u8]) {
    let lines = data.split(|byte| *byte == b'\n');
    let reports: Vec<Vec<u8>> = lines.map(<[u8]>::to_vec).collect();
    let patience = PATIENCE + EACH * u32::try_from(reports.len()).unwrap_or(u32::MAX);
    let waited = crate::in_virtual_time(async {
        let answers = Box::new(move |number: usize| match reports.get(number) {
            Some(report) => (200, report.clone()),
            None => (200, success(number).to_string().into_bytes()),
        });
        let vcenter = vcenter::session("WaitForUpdatesEx", answers).await?;
        let task = TaskRef(TASK.to_owned());
        let waited = timeout(patience, vcenter.wait(&task)).await;
        waited.unwrap_or_else(|_| panic!("the wait has no end"))
    });
    if let Err(error) = waited.flatten() {
        vcenter::presentable(&error, data);
    }
}

fn success(version: usize) -> Value {
    report("modify", version, &[("info.state", &json!("success"))])
}

fn report(kind: &str, version: usize, changes: &[(&str, &Value)]) -> Value {
    let change =
        |(name, value): &(&str, &Value)| json!({"name": name, "op": "assign", "val": value});
    let changes: Vec<Value> = changes.iter().map(change).collect();
    let object =
        json!({"kind": kind, "obj": {"type": "Task", "value": TASK}, "changeSet": changes});
    let filter =
        json!({"filter": {"type": "PropertyFilter", "value": "filter-1"}, "objectSet": [object]});
    json!({"_typeName": "UpdateSet", "version": version.to_string(), "filterSet": [filter]})
}

pub(crate) fn examples() -> Vec<Vec<u8>> {
    let state = |state: &str| json!({"_typeName": "TaskInfoState", "_value": state});
    let vm =
        json!({"_typeName": "ManagedObjectReference", "type": "VirtualMachine", "value": "vm-7"});
    let fault = json!({"_typeName": "DuplicateName", "name": "w-1", "faultMessage": []});
    let running = report("enter", 1, &[("info.state", &state("running"))]);
    let success = state("success");
    let made = report(
        "modify",
        2,
        &[("info.result", &vm), ("info.state", &success)],
    );
    let error = state("error");
    let failed = report(
        "modify",
        2,
        &[("info.error", &fault), ("info.state", &error)],
    );
    let missing = json!({"_typeName": "UpdateSet", "version": "3", "filterSet": [{"missingSet": [
        {"obj": {"type": "Task", "value": TASK}, "fault": {"_typeName": "ManagedObjectNotFound"}}]}]});
    let left = report("leave", 4, &[]);
    let lines = |all: &[&Value]| {
        let texts: Vec<String> = all.iter().map(ToString::to_string).collect();
        texts.join("\n").into_bytes()
    };
    vec![
        lines(&[&running, &made]),
        lines(&[&running, &failed]),
        lines(&[&running, &missing]),
        lines(&[&running, &left, &running]),
        lines(&[&json!({"_typeName": "RequestCanceled"}), &running]),
        b"null\n".to_vec(),
    ]
}
