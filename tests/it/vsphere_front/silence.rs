//! Calls that are accepted and never answered, each tested alone. They end in time, and work that does not need them
//! continues.
//!
//! Together with `trouble` and with tests/it/silence.rs, which uses the whole operator, this covers all calls in
//! docs/reference/vsphere.md.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use agent_forge::vsphere::{Options, Transport, TransportFailure};
use agent_forge_actors::ports::{
    effect::EffectKind,
    vcenter::{VCenter, VcErrorKind, VcResult},
};
use agent_forge_lab::{parts::vcenter::VCenterOptions, patience::HANG};
use async_trait::async_trait;
use serde_json::json;

use super::{support::*, trouble};

/// Time limit of one call. It is long enough for answered calls on a machine that pauses now and then.
const CALL: Duration = Duration::from_secs(5);

const ANSWER: &str = "AnswerVM";
const NEXT_PAGE: &str = "ContinueRetrievePropertiesEx";
const END_VIEW: &str = "DestroyView";
const END_COLLECTOR: &str = "DestroyPropertyCollector";
const SESSION: &str = "GET currentSession";
const REST_LOGIN: &str = "POST /api/session";
const REST_LOGOUT: &str = "DELETE /api/session";
const TAG_ALL: &str = "POST /api/cis/tagging/tag-association?action=attach-multiple-tags-to-object";
const LOGOUT: &str = "Logout";

const HUNG: [&str; 9] = [
    ANSWER,
    NEXT_PAGE,
    END_VIEW,
    END_COLLECTOR,
    SESSION,
    REST_LOGIN,
    REST_LOGOUT,
    TAG_ALL,
    LOGOUT,
];

/// Requests pages of one object.
struct ShortPages(reqwest::Client);

#[async_trait]
impl Transport for ShortPages {
    async fn send(
        &self,
        mut request: reqwest::Request,
    ) -> Result<reqwest::Response, TransportFailure> {
        shorten(&mut request);
        sent(&self.0, request).await
    }
}

/// A vCenter with which the client makes this call.
async fn world_for(call: &str) -> World {
    let client = Options {
        call_timeout: CALL,
        ..Options::default()
    };
    match call {
        REST_LOGIN | REST_LOGOUT => {
            let options = release("8.0.1.0");
            world_with(options, client).await
        }
        SESSION => {
            let options = VCenterOptions {
                flags: vec!["--folder-basic-only".into()],
                ..quick()
            };
            world_with(options, client).await
        }
        NEXT_PAGE => {
            let options = VCenterOptions {
                tls: false,
                ..quick()
            };
            let http = plain_http();
            let client = Options {
                allow_http: true,
                transport: Some(Arc::new(ShortPages(http))),
                ..client
            };
            world_with(options, client).await
        }
        _ => world_with(quick(), client).await,
    }
}

fn no_answer<T>(done: VcResult<T>) {
    let kind = done.err().map(|e| e.kind);
    assert_eq!(kind, Some(VcErrorKind::NoAnswer));
}

/// Makes the call hang from now on.
async fn hang(world: &World, call: &str) {
    world.forget_calls().await;
    world.fault(json!({"method": call, "at": "hang"})).await;
}

/// Lets the client make this call while it hangs.
async fn play(world: &World, vc: &Arc<dyn VCenter>, call: &str) {
    let tags = ["urn:one:GLOBAL".to_owned(), "urn:two:GLOBAL".to_owned()];
    let attach = effect(EffectKind::AttachTags);
    if call == SESSION {
        // It is only called if `/folder` does not accept the session.
        let dc = vc.datacenter("dc1").await.unwrap();
        hang(world, call).await;
        return no_answer(put(&**vc, &dc, &iso(), b"an iso").await);
    }
    upload_iso(&**vc).await;
    if call == END_COLLECTOR {
        // The long poll breaks off. So its objects are destroyed and created again.
        hang(world, call).await;
        let broken = fault("WaitForUpdatesEx", "call", "InvalidCollectorVersion", 1);
        world.fault(broken).await;
        life(&**vc, "node-1").await.unwrap();
        return;
    }
    let vm = life(&**vc, "node-1").await.unwrap();
    match call {
        ANSWER => {
            let lock = format!("vms/{}/lock-tray", vm.id);
            world.post(&lock, json!({})).await;
            hang(world, call).await;
            let ejecting = {
                let vc = vc.clone();
                tokio::spawn(async move { eject(&*vc, &vm, &[iso().to_string()]).await })
            };
            // The first call ended in time: there is another.
            while world.called(call).await < 2 {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            world.forget_faults().await;
            ejecting.await.unwrap().unwrap();
        }
        NEXT_PAGE => {
            life(&**vc, "node-2").await.unwrap();
            hang(world, call).await;
            no_answer(vc.drives().await);
        }
        END_VIEW => {
            hang(world, call).await;
            assert!(!vc.drives().await.unwrap().isos.is_empty());
            // The client removes the view in the background, so no caller waits for that.
            while world.called(call).await == 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        REST_LOGIN => {
            hang(world, call).await;
            no_answer(vc.attach_tags(&attach, &vm, &tags).await);
        }
        REST_LOGOUT => {
            // There are no such tags, but now the session exists.
            vc.attach_tags(&attach, &vm, &tags).await.unwrap_err();
            hang(world, call).await;
            vc.logout(&effect(EffectKind::Logout)).await;
        }
        TAG_ALL => {
            hang(world, call).await;
            no_answer(vc.attach_tags(&attach, &vm, &tags).await);
        }
        LOGOUT => {
            hang(world, call).await;
            vc.logout(&effect(EffectKind::Logout)).await;
        }
        other => panic!("{other} is not called here"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rarer_calls_end_in_time_as_well() {
    for call in HUNG {
        let world = world_for(call).await;
        let vc = world.connect().await;
        tokio::time::timeout(HANG, play(&world, &vc, call))
            .await
            .unwrap_or_else(|_| panic!("{call}: not over within {HANG:?}"));
        assert!(world.called(call).await > 0, "{call} was never called");
    }
}

/// The calls in the document's table, without the type that has the method.
fn told() -> BTreeSet<&'static str> {
    let document = include_str!("../../../docs/reference/vsphere.md");
    let section = document
        .split("\n## ")
        .find(|section| section.starts_with("Calls\n"))
        .expect("a section Calls in docs/reference/vsphere.md");
    let rows = section.lines().filter(|line| line.starts_with('|'));
    let calls = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    calls
        .map(|call| match call.split_once('.') {
            Some((owner, method)) if owner.chars().all(char::is_alphanumeric) => method,
            _ => call,
        })
        .collect()
}

#[test]
fn every_call_that_is_told_has_been_left_unanswered() {
    let operator = include_str!("../silence.rs");
    let here: BTreeSet<&str> = HUNG.into_iter().chain(trouble::HUNG).collect();
    let told = told();
    assert!(told.len() > 30, "{told:?}");
    let missing: Vec<&str> = told
        .iter()
        .filter(|call| !here.contains(**call) && !operator.contains(&format!("\"{call}\"")))
        .copied()
        .collect();
    assert!(missing.is_empty(), "no row for {missing:?}");
    let unknown: Vec<&&str> = here.difference(&told).collect();
    assert!(
        unknown.is_empty(),
        "docs/reference/vsphere.md lacks {unknown:?}"
    );
}
