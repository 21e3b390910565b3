//! Where a VM runs, what it uses, and what its console shows.

use agent_forge_actors::{
    domain::names::MoRef,
    ports::vcenter::{Fault, VcErrorKind},
};
use agent_forge_lab::parts::vcenter::VCenterOptions;
use serde_json::json;

use super::support::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_look_shows_host_storage_and_snapshot_without_one_more_call() {
    let (world, vc) = ready(quick()).await;
    let vm = life(&*vc, "node-1").await.unwrap();
    world.forget_calls().await;
    let seen = now(&*vc, &vm).await.hardware.now;
    assert_eq!(world.called("RetrievePropertiesEx").await, 1);
    let host = seen.host.clone().expect("a host");
    assert_eq!(find(&world.vms().await, "node-1")["host"], json!(host));
    assert!(seen.used_bytes.is_some(), "{seen:?}");
    assert_eq!(seen.has_snapshot, Some(false));
    let act = async |action: &str| {
        let path = format!("vms/{}/{action}", vm.id);
        world.post(&path, json!({})).await;
        now(&*vc, &vm).await.hardware.now
    };
    assert_eq!(act("take-snapshot").await.has_snapshot, Some(true));
    assert_eq!(act("drop-snapshots").await.has_snapshot, Some(false));
    // Many at a time, too.
    let other = life(&*vc, "node-2").await.unwrap();
    let (one, two) = futures::join!(now(&*vc, &vm), now(&*vc, &other));
    assert_eq!(one.hardware.now.host.as_deref(), Some(host.as_str()));
    assert!(two.hardware.now.host.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_console_of_a_running_vm_is_a_picture_and_a_refusal_names_the_privilege() {
    for basic in [false, true] {
        let options = VCenterOptions {
            flags: match basic {
                true => vec!["--folder-basic-only".into()],
                false => Vec::new(),
            },
            ..quick()
        };
        let (world, vc) = ready(options).await;
        let vm = life(&*vc, "node-1").await.unwrap();
        let effects = world.gate.admitted.lock().unwrap().len();
        let look = async |vm: &MoRef| world.connector.screen(&world.credentials(), vm).await;
        let picture = look(&vm).await.unwrap();
        assert!(picture.starts_with(b"\x89PNG"), "{basic}");
        let deny = json!({"deny": [{"privilege": "VirtualMachine.Interact.ConsoleInteract", "objectName": "node-1"}]});
        world.post("permissions", deny).await;
        let refused = look(&vm).await.unwrap_err();
        let named = matches!(refused.fault(), Some(Fault::NoPermission { privilege, .. })
            if privilege == "VirtualMachine.Interact.ConsoleInteract");
        assert!(named, "{refused}");
        let none = look(&MoRef::new("VirtualMachine", "vm-999")).await;
        let none = none.unwrap_err();
        assert_eq!(none.kind, VcErrorKind::Status(404), "{none}");
        let after = world.gate.admitted.lock().unwrap().len();
        assert_eq!(after, effects, "it changes nothing");
    }
}
