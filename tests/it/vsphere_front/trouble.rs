//! Lost replies, ended sessions, calls without an answer, outages.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use agent_forge::vsphere::{Options, Transport, TransportFailure, VsphereConnector};
use agent_forge_actors::ports::{
    effect::{EffectKind, Settled},
    vcenter::{Connector as _, Fault, TaskEnd, TaskRef, VcErrorKind, VmChange},
};
use agent_forge_lab::{parts::vcenter::VCenterOptions, patience::HANG};
use async_trait::async_trait;
use serde_json::json;

use super::support::*;

fn slow() -> VCenterOptions {
    VCenterOptions {
        create_delay: Duration::from_secs(4),
        ..quick()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_killed_while_a_vm_is_created_costs_one_login_and_no_double() {
    let (world, vc) = ready(slow()).await;
    let making = {
        let vc = vc.clone();
        tokio::spawn(async move { life(&*vc, "node-1").await })
    };
    // As soon as the task and its watcher run.
    while world.called("WaitForUpdatesEx").await < 2 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(world.calls().await.contains_key("CreateVM_Task"));
    world.post("sessions/kill", json!({})).await;
    making.await.unwrap().unwrap();
    assert_eq!(world.vms().await.len(), 1);
    assert_eq!(world.logins("vim").await, 2);
    assert_eq!(world.calls().await["CreateVM_Task"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_into_a_dead_session_is_replayed_once() {
    let (world, vc, place) = placed(quick()).await;
    let vm = create_vm("node-1", &place);
    // Looked up before, so that the create itself meets the ended session.
    let mut wrong = vm.clone();
    wrong.place.folder.id = "group-v9999".into();
    create(&*vc, &wrong).await.unwrap_err();
    world.forget_calls().await;
    vc.datacenter("dc1").await.unwrap();
    world.post("sessions/kill", json!({})).await;
    let task = create(&*vc, &vm).await.unwrap();
    assert!(matches!(
        vc.wait(&task).await.flatten().unwrap(),
        TaskEnd::Success(Some(_))
    ));
    assert_eq!(world.vms().await.len(), 1);
    assert_eq!(world.logins("vim").await, 1);

    // A server that always answers so gets two calls, and not many.
    world.forget_calls().await;
    world
        .fault(fault("PowerOnVM_Task", "call", "NotAuthenticated", 0))
        .await;
    let moref = vc.find_by_uuid(uuid_of("node-1")).await.unwrap()[0]
        .moref
        .clone();
    let e = vc
        .power_on(&permit(EffectKind::PowerOn, &moref))
        .await
        .unwrap_err();
    assert!(matches!(e.fault(), Some(Fault::NotAuthenticated)), "{e}");
    assert_eq!(world.calls().await["PowerOnVM_Task"], 2);
    assert_eq!(
        world.gate.outcomes(EffectKind::PowerOn),
        [Settled::Refused; 2]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_is_an_unknown_outcome() {
    let (world, vc, place) = placed(quick()).await;
    world
        .fault(json!({"method": "CreateVM_Task", "at": "lostReply", "count": 1}))
        .await;
    let e = create(&*vc, &create_vm("node-1", &place))
        .await
        .unwrap_err();
    assert_eq!(e.kind, VcErrorKind::NoAnswer, "{e}");
    assert!(e.outcome_unknown());
    assert_eq!(
        world.gate.outcomes(EffectKind::CreateVm),
        [Settled::Unknown]
    );
    // Only a look at the inventory shows the outcome.
    let until = Instant::now() + HANG;
    loop {
        let found = vc.find_by_uuid(uuid_of("node-1")).await.unwrap();
        if let [one] = found.as_slice() {
            assert_eq!(one.marker, Some(marker("node-1")));
            break;
        }
        assert!(Instant::now() < until, "the VM never came");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(
        world.calls().await["CreateVM_Task"],
        1,
        "nothing here repeats a create"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_of_the_long_poll_loses_no_task() {
    let world = world(VCenterOptions {
        create_delay: Duration::from_millis(600),
        ..quick()
    })
    .await;
    let vc = world.connect().await;
    upload_iso(&*vc).await;
    let rule = json!({"method": "WaitForUpdatesEx", "at": "lostReply", "skip": 1, "count": 3});
    world.fault(rule).await;
    let all = (0..6).map(|n| {
        let vc = vc.clone();
        tokio::spawn(async move { life(&*vc, &format!("node-{n}")).await })
    });
    for done in futures::future::join_all(all).await {
        done.unwrap().unwrap();
    }
    assert_eq!(world.vms().await.len(), 6);
    assert_eq!(world.calls().await["CreateVM_Task"], 6);
}

/// A proxy that cuts every connection on which nothing has arrived for this long.
struct Impatient(reqwest::Client, Duration);

#[async_trait]
impl Transport for Impatient {
    async fn send(&self, request: reqwest::Request) -> Result<reqwest::Response, TransportFailure> {
        let cut = TransportFailure {
            kind: VcErrorKind::NoAnswer,
            message: "the connection ended before the answer".to_owned(),
        };
        let answered = tokio::time::timeout(self.1, sent(&self.0, request));
        answered.await.unwrap_or(Err(cut))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_cuts_long_polls_leaves_nothing_behind_and_is_not_hammered() {
    let options = VCenterOptions {
        create_delay: Duration::from_secs(6),
        tls: false,
        ..quick()
    };
    let http = plain_http();
    let client = Options {
        allow_http: true,
        transport: Some(Arc::new(Impatient(http, Duration::from_millis(500)))),
        ..Options::default()
    };
    let world = world_with(options, client).await;
    let vc = world.connect().await;
    upload_iso(&*vc).await;
    let place = place(&*vc).await.unwrap();
    let vm = create_vm("node-1", &place);
    let task = create(&*vc, &vm).await;
    let waiting = vc.wait(&task.unwrap()).await.flatten();
    assert!(
        matches!(waiting, Ok(TaskEnd::Success(Some(_)))),
        "{waiting:?}"
    );
    let calls = world.calls().await;
    let called = |method: &str| calls.get(method).copied().unwrap_or(0);
    let made = called("CreateListView");
    // Without pauses it would be a dozen in these six seconds.
    assert!((3..=8).contains(&made), "{calls:?}");
    for method in ["CreatePropertyCollector", "CreateFilter"] {
        assert_eq!(called(method), made, "{method}: {calls:?}");
    }
    for method in ["DestroyPropertyCollector", "DestroyView"] {
        assert_eq!(called(method), made - 1, "{method}: {calls:?}");
    }
}

/// A task leaves the view and comes back between two polls. vCenter sees no change and reports nothing.
#[tokio::test(flavor = "multi_thread")]
async fn who_asks_late_for_a_task_that_ended_hears_of_its_end() {
    let (world, vc, place) = placed(quick()).await;
    let begin = async |name: &str| create(&*vc, &create_vm(name, &place)).await.unwrap();
    let wait = |task: &TaskRef| {
        let (vc, task) = (vc.clone(), task.clone());
        tokio::spawn(async move {
            tokio::time::timeout(HANG, async { vc.wait(&task).await.flatten() }).await
        })
    };
    let mut known = begin("node-0").await;
    let mut told = wait(&known).await.unwrap().unwrap().unwrap();
    assert!(matches!(told, TaskEnd::Success(Some(_))), "{told:?}");
    for n in 1..=5 {
        let next = begin(&format!("node-{n}")).await;
        let before = world.calls().await["ModifyListView"];
        let other = wait(&next);
        // The call that removes the last task from the view and adds the next one. A caller that asks now asks before
        // the next poll.
        while world.calls().await["ModifyListView"] == before {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let again = wait(&known);
        let end = other.await.unwrap().expect("it ended").unwrap();
        let heard = again.await.unwrap().expect("it ended long ago");
        assert_eq!(heard.unwrap(), told);
        (known, told) = (next, end);
    }
}

/// Calls that hang and return an error to their callers.
pub const HUNG: [&str; 13] = [
    "FindAllByUuid",
    "RetrievePropertiesEx",
    "CreateVM_Task",
    "PowerOnVM_Task",
    "PowerOffVM_Task",
    "ResetVM_Task",
    "ReconfigVM_Task",
    "Destroy_Task",
    "MakeDirectory",
    "SearchDatastore_Task",
    "MoveDatastoreFile_Task",
    "DeleteDatastoreFile_Task",
    "CreateContainerView",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_never_answers_ends_in_time_for_every_method() {
    // The preparation has a long time limit, the hanging calls have a short one.
    let world = world(quick()).await;
    let patient = world.connect().await;
    upload_iso(&*patient).await;
    let vm = life(&*patient, "node-1").await.unwrap();
    let place = place(&*patient).await.unwrap();
    let options = Options {
        call_timeout: Duration::from_secs(2),
        ..Options::default()
    };
    let connector = VsphereConnector::new(world.gate.clone(), options);
    let vc = connector.connect(&world.credentials()).await.unwrap();
    let dc = place.datacenter.clone();
    for method in HUNG {
        let known = world.called(method).await;
        world.fault(json!({"method": method, "at": "hang"})).await;
        let started = Instant::now();
        let (from, to) = (iso(), iso().parent().unwrap().join("b.iso").unwrap());
        let e = match method {
            "FindAllByUuid" => vc.find_by_uuid(uuid_of("node-1")).await.err(),
            "RetrievePropertiesEx" => vc.observe(&vm).await.err(),
            "CreateVM_Task" => create(&*vc, &create_vm("x", &place)).await.err(),
            "PowerOnVM_Task" => vc.power_on(&permit(EffectKind::PowerOn, &vm)).await.err(),
            "PowerOffVM_Task" => vc.power_off(&permit(EffectKind::PowerOff, &vm)).await.err(),
            "ResetVM_Task" => vc.reset(&permit(EffectKind::Reset, &vm)).await.err(),
            "ReconfigVM_Task" => vc
                .configure(&permit(EffectKind::Reconfigure, &vm), &VmChange::default())
                .await
                .err(),
            "Destroy_Task" => vc.destroy(&permit(EffectKind::Destroy, &vm)).await.err(),
            "MakeDirectory" => vc
                .make_directory(&effect(EffectKind::MakeDirectory), &dc, &from)
                .await
                .err(),
            "SearchDatastore_Task" => vc.stat(&dc, &from).await.err(),
            "MoveDatastoreFile_Task" => vc
                .move_file(&effect(EffectKind::Publish), &dc, &from, &to)
                .await
                .err(),
            "DeleteDatastoreFile_Task" => vc
                .delete_file(&effect(EffectKind::DeleteFile), &dc, &to)
                .await
                .err(),
            "CreateContainerView" => vc.drives().await.err(),
            other => panic!("{other} is not called here"),
        };
        let e = e.unwrap_or_else(|| panic!("{method} hung and yet succeeded"));
        assert_eq!(e.kind, VcErrorKind::NoAnswer, "{method}: {e}");
        // Without the option it would take half a minute.
        assert!(
            started.elapsed() < Options::default().call_timeout,
            "{method}: {:?}",
            started.elapsed()
        );
        assert!(
            world.calls().await[method] > known,
            "{method} was never called"
        );
        world.forget_faults().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_outlasts_an_outage_of_every_kind() {
    for mode in ["refuse", "unavailable", "hang"] {
        let (world, vc, place) = placed(slow()).await;
        let task = create(&*vc, &create_vm("node-1", &place)).await.unwrap();
        let waiting = {
            let (vc, task) = (vc.clone(), task.clone());
            tokio::spawn(async move { vc.wait(&task).await.flatten() })
        };
        tokio::time::sleep(Duration::from_millis(300)).await;
        world
            .post("outage", json!({"mode": mode, "seconds": 4}))
            .await;
        let end = tokio::time::timeout(HANG, waiting).await;
        let end = end
            .unwrap_or_else(|_| panic!("{mode}: still waiting"))
            .unwrap();
        let end = end.unwrap_or_else(|e| panic!("{mode}: {e}"));
        assert!(matches!(end, TaskEnd::Success(Some(_))), "{mode}: {end:?}");
        assert_eq!(
            world.logins("vim").await,
            1,
            "{mode}: an outage does not end a session"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_is_told_to_those_who_wait() {
    let delay = VCenterOptions {
        create_delay: 2 * HANG,
        ..quick()
    };
    let options = Options {
        wait_patience: Duration::from_secs(3),
        ..Options::default()
    };
    let world = world_with(delay, options).await;
    let vc = world.connect().await;
    upload_iso(&*vc).await;
    let place = place(&*vc).await.unwrap();
    let task = create(&*vc, &create_vm("node-1", &place)).await.unwrap();
    let waiting = {
        let vc = vc.clone();
        tokio::spawn(async move { vc.wait(&task).await.flatten() })
    };
    tokio::time::sleep(Duration::from_millis(300)).await;
    world
        .post(
            "outage",
            json!({"mode": "refuse", "seconds": 2 * HANG.as_secs()}),
        )
        .await;
    let end = tokio::time::timeout(HANG, waiting).await;
    let e = end.expect("nobody waits for ever").unwrap().unwrap_err();
    assert!(
        matches!(e.kind, VcErrorKind::NoAnswer | VcErrorKind::Unreachable),
        "{e}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_vcenter_forgot_is_vanished_not_failed() {
    let (world, vc, place) = placed(quick()).await;
    let task = create(&*vc, &create_vm("node-1", &place)).await.unwrap();
    vc.wait(&task).await.flatten().unwrap();
    // A second wait for the same finished task still gets its end.
    assert!(matches!(
        vc.wait(&task).await.flatten().unwrap(),
        TaskEnd::Success(Some(_))
    ));
    // No caller waited for this task before vCenter forgot it, as after a restart.
    let task = create(&*vc, &create_vm("node-2", &place)).await.unwrap();
    while world.vms().await.len() < 2 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let until = Instant::now() + HANG;
    while world.post("tasks/expire", json!({})).await["expired"] == 0 {
        assert!(Instant::now() < until, "the task does not end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(vc.wait(&task).await.flatten().unwrap(), TaskEnd::Vanished);
    assert_eq!(
        vc.wait(&TaskRef("task-99999".into()))
            .await
            .flatten()
            .unwrap(),
        TaskEnd::Vanished
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_of_tasks_and_calls_are_the_same_to_callers() {
    let (world, vc, place) = placed(quick()).await;
    for at in ["call", "task"] {
        world
            .fault(json!({"method": "CreateVM_Task", "at": at, "count": 1,
                "fault": {"_typeName": "NoDiskSpace", "file": "[ds-0] x", "datastore": "ds-0"}}))
            .await;
        let vm = create_vm("node-1", &place);
        let e = match create(&*vc, &vm).await {
            Ok(task) => vc.wait(&task).await.flatten().unwrap_err(),
            Err(e) => e,
        };
        assert_eq!(
            e.fault(),
            Some(&Fault::NoDiskSpace("ds-0".into())),
            "{at}: {e}"
        );
    }
    // Without the privilege, the error names it.
    let deny = json!({"deny": [{"privilege": "VirtualMachine.Inventory.Create"}]});
    world.post("permissions", deny).await;
    let e = create(&*vc, &create_vm("node-1", &place))
        .await
        .unwrap_err();
    match e.fault() {
        Some(Fault::NoPermission { privilege, object }) => {
            assert_eq!(privilege, "VirtualMachine.Inventory.Create");
            assert!(object.is_some());
        }
        other => panic!("{other:?}: {e}"),
    }
    assert!(world.vms().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_gate_holds_back_is_not_sent() {
    let (world, vc, place) = placed(quick()).await;
    *world.gate.held.lock().unwrap() = Some(EffectKind::CreateVm);
    let e = create(&*vc, &create_vm("node-1", &place))
        .await
        .unwrap_err();
    assert!(matches!(e.kind, VcErrorKind::Held(_)), "{e}");
    assert!(!world.calls().await.contains_key("CreateVM_Task"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_gives_up_leaves_nothing_behind_but_an_unknown_outcome() {
    let (world, vc, place) = placed(quick()).await;
    world
        .fault(json!({"method": "CreateVM_Task", "at": "hang", "count": 1}))
        .await;
    let vm = create_vm("node-1", &place);
    let create = effect(EffectKind::CreateVm);
    let taken = async {
        while !world.calls().await.contains_key("CreateVM_Task") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        made = vc.create_vm(&create, &vm) => panic!("answered: {made:?}"),
        // The call is under way then, and is given up.
        () = taken => {}
    }
    assert_eq!(
        world.gate.outcomes(EffectKind::CreateVm),
        [Settled::Unknown]
    );
}
