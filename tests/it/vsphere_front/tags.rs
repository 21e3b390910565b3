//! Tags, through the Automation API.

use agent_forge_actors::ports::{
    effect::EffectKind,
    vcenter::{Fault, VcErrorKind},
};
use agent_forge_lab::parts::vcenter::VCenterOptions;
use serde_json::json;

use super::support::*;

/// The ids of the two tags that the simulated vCenter has.
async fn tags(world: &World) -> [String; 2] {
    let inventory = world.inventory().await;
    [0, 1].map(|n| inventory["tags"][n]["id"].as_str().unwrap().to_owned())
}

async fn attached(world: &World) {
    let [one, two] = tags(world).await;
    let vc = world.connect().await;
    upload_iso(&*vc).await;
    let vm = life(&*vc, "node-1").await.unwrap();
    assert_eq!(
        world.logins("rest").await,
        0,
        "no session there before tags are used"
    );
    let attach = effect(EffectKind::AttachTags);
    vc.attach_tags(&attach, &vm, &[]).await.unwrap();
    vc.attach_tags(&attach, &vm, std::slice::from_ref(&one))
        .await
        .unwrap();
    vc.attach_tags(&attach, &vm, &[one.clone(), two.clone()])
        .await
        .expect("one is there already");
    let vms = world.vms().await;
    let mut seen: Vec<String> =
        serde_json::from_value(find(&vms, "node-1")["tags"].clone()).unwrap();
    seen.sort();
    let mut wanted = vec![one.clone(), two];
    wanted.sort();
    assert_eq!(seen, wanted);

    // The error for a wrong id names it.
    let wrong = "urn:vmomi:InventoryServiceTag:00000000-0000-0000-0000-000000000000:GLOBAL";
    for ids in [vec![wrong.to_owned()], vec![one.clone(), wrong.to_owned()]] {
        let e = vc.attach_tags(&attach, &vm, &ids).await.unwrap_err();
        let named = VcErrorKind::Unresolved {
            field: "vmTags",
            value: wrong.to_owned(),
        };
        assert_eq!(e.kind, named, "{e}");
    }

    // Both sessions are killed. Each is opened again once.
    world.post("sessions/kill", json!({})).await;
    vc.attach_tags(&attach, &vm, &[]).await.unwrap();
    vc.attach_tags(&attach, &vm, &[one]).await.unwrap();
    vc.logout(&effect(EffectKind::Logout)).await;
    assert_eq!(world.inventory().await["sessions"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_gets_its_tags_with_two_sessions() {
    let world = world(release("8.0.1.0")).await;
    attached(&world).await;
    assert_eq!(world.logins("refused").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_that_tags_refuse_is_tried_once() {
    let world = world(release("8.0.1.0")).await;
    let [one, _] = tags(&world).await;
    let vc = world.connect().await;
    upload_iso(&*vc).await;
    let vm = life(&*vc, "node-1").await.unwrap();
    world.post("password", json!({"password": "another"})).await;
    let attach = effect(EffectKind::AttachTags);
    let server = world.vcenter.url().trim_start_matches("https://");
    for _ in 0..3 {
        let ids = std::slice::from_ref(&one);
        let e = vc.attach_tags(&attach, &vm, ids).await.unwrap_err();
        assert_eq!(e.fault(), Some(&Fault::InvalidLogin), "{e}");
        for named in [server, world.vcenter.options().username.as_str()] {
            assert!(e.message.contains(named), "{named}: {e}");
        }
    }
    assert_eq!(world.logins("refused").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_gets_its_tags_with_one_shared_session() {
    let options = VCenterOptions {
        api_release: Some("8.0.3.0".into()),
        flags: vec!["--share-sessions".into()],
        ..quick()
    };
    let world = world(options).await;
    attached(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_gets_its_tags_although_the_session_cannot_be_shared() {
    let world = world(release("8.0.3.0")).await;
    attached(&world).await;
}
