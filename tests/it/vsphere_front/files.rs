//! Files on datastores.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use agent_forge::vsphere::{Options, RequestObserver, RequestRecord};
use agent_forge_actors::{
    domain::names::DatastorePath,
    ports::{
        effect::{EffectKind, Settled},
        vcenter::{Connector as _, Fault, VcErrorKind},
    },
};
use agent_forge_crds::conditions::Reason;
use agent_forge_lab::{
    parts::{
        proxy::{FaultProxy, Network},
        vcenter::VCenterOptions,
    },
    patience::HANG,
};
use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _};

use super::support::*;

fn path(text: &str) -> DatastorePath {
    DatastorePath::parse(text).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_uploaded_moved_seen_and_deleted() {
    let (world, vc) = connected(quick()).await;
    let dc = vc.datacenter("dc1").await.unwrap();
    let directory = path("[iso-datastore] agent-forge/ns/pool 1");
    let part = directory.join("a.iso.partial-1").unwrap();
    let whole = directory.join("a.iso").unwrap();
    let (mkdir, upload) = (
        effect(EffectKind::MakeDirectory),
        effect(EffectKind::Upload),
    );
    let (publish, delete) = (effect(EffectKind::Publish), effect(EffectKind::DeleteFile));

    assert_eq!(
        vc.list(&dc, &directory).await.unwrap(),
        None,
        "no such directory yet"
    );
    assert_eq!(vc.stat(&dc, &whole).await.unwrap(), None);
    vc.make_directory(&mkdir, &dc, &directory).await.unwrap();
    vc.make_directory(&mkdir, &dc, &directory)
        .await
        .expect("there already is success");
    assert_eq!(vc.list(&dc, &directory).await.unwrap(), Some(vec![]));
    assert_eq!(vc.stat(&dc, &whole).await.unwrap(), None);

    let chunks = (0..1000_u32).map(|n| Ok(Bytes::from(vec![(n % 251) as u8; 1000])));
    let body = Box::pin(futures::stream::iter(chunks.collect::<Vec<_>>()));
    vc.upload(&upload, &dc, &part, 1_000_000, body)
        .await
        .unwrap();
    assert_eq!(vc.stat(&dc, &part).await.unwrap(), Some(1_000_000));
    put(&*vc, &dc, &part, b"overwritten").await.unwrap();
    assert_eq!(vc.stat(&dc, &part).await.unwrap(), Some(11));

    vc.move_file(&publish, &dc, &part, &whole).await.unwrap();
    assert_eq!(vc.stat(&dc, &part).await.unwrap(), None);
    assert_eq!(vc.stat(&dc, &whole).await.unwrap(), Some(11));
    put(&*vc, &dc, &part, b"another").await.unwrap();
    let e = vc
        .move_file(&publish, &dc, &part, &whole)
        .await
        .unwrap_err();
    assert!(
        matches!(e.fault(), Some(Fault::AlreadyExists(_))),
        "{e} {:?}",
        e.kind
    );
    assert_eq!(
        vc.stat(&dc, &whole).await.unwrap(),
        Some(11),
        "the loser overwrites nothing"
    );

    let mut names: Vec<_> = vc.list(&dc, &directory).await.unwrap().unwrap();
    names.sort_by(|a, b| a.path.cmp(&b.path));
    let names: Vec<_> = names.iter().map(|f| (f.path.file_name(), f.size)).collect();
    assert_eq!(names, [("a.iso", 11), ("a.iso.partial-1", 7)]);

    vc.delete_file(&delete, &dc, &whole).await.unwrap();
    vc.delete_file(&delete, &dc, &whole)
        .await
        .expect("gone already is success");
    assert_eq!(vc.stat(&dc, &whole).await.unwrap(), None);
    assert_eq!(world.gate.outcomes(EffectKind::Upload).len(), 3);
    assert_eq!(world.logins("vim").await, 1);
}

/// Records the tasks that the client awaits: whether each begins or ends, and its name.
#[derive(Default)]
struct Tasks(Mutex<Vec<(bool, &'static str)>>);

impl RequestObserver for Tasks {
    fn request(&self, _: &RequestRecord<'_>) {}

    fn awaits(&self, _: &str, task: &'static str) {
        self.0.lock().unwrap().push((true, task));
    }

    fn awaited(&self, _: &str, task: &'static str, _: Duration) {
        self.0.lock().unwrap().push((false, task));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_on_files_are_told_of_however_they_end() {
    let tasks = Arc::new(Tasks::default());
    let options = Options {
        observer: Some(tasks.clone()),
        ..Options::default()
    };
    let world = world_with(quick(), options).await;
    let vc = world.connect().await;
    let dc = vc.datacenter("dc1").await.unwrap();
    let file = path("[iso-datastore] x.iso");
    let other = path("[iso-datastore] y.iso");
    let (publish, delete) = (effect(EffectKind::Publish), effect(EffectKind::DeleteFile));
    assert_eq!(vc.stat(&dc, &file).await.unwrap(), None);
    vc.move_file(&publish, &dc, &file, &other)
        .await
        .expect_err("nothing to move");
    vc.delete_file(&delete, &dc, &file).await.unwrap();
    let told = std::mem::take(&mut *tasks.0.lock().unwrap());
    let each = ["search_datastore", "publish", "delete_file"];
    let expected: Vec<_> = each
        .iter()
        .flat_map(|t| [(true, *t), (false, *t)])
        .collect();
    assert_eq!(told, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_is_too_short_or_fails_leaves_no_success() {
    let (world, vc) = connected(quick()).await;
    let dc = vc.datacenter("dc1").await.unwrap();
    let file = path("[iso-datastore] x.iso");
    let upload = effect(EffectKind::Upload);
    let ok = || Ok(Bytes::from_static(b"0123456789"));
    let broken = || Err(std::io::Error::other("the disk is on fire"));
    // Why it failed is known to who feeds it.
    for parts in [vec![ok()], vec![ok(), broken()]] {
        let body = Box::pin(futures::stream::iter(parts));
        let e = vc.upload(&upload, &dc, &file, 20, body).await.unwrap_err();
        assert_eq!(e.kind, VcErrorKind::NoAnswer, "{e}");
    }
    assert_eq!(
        world.gate.outcomes(EffectKind::Upload),
        [Settled::Unknown; 2]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_session_is_noticed_before_the_bytes_flow() {
    let (world, vc) = connected(quick()).await;
    let dc = vc.datacenter("dc1").await.unwrap();
    let file = path("[iso-datastore] x.iso");
    put(&*vc, &dc, &file, b"first").await.unwrap();
    world.post("sessions/kill", serde_json::json!({})).await;
    put(&*vc, &dc, &file, b"second").await.unwrap();
    assert_eq!(vc.stat(&dc, &file).await.unwrap(), Some(6));
    assert_eq!(world.logins("vim").await, 2);
    assert_eq!(world.calls().await["PUT /folder"], 2);
}

fn basic_only() -> VCenterOptions {
    VCenterOptions {
        flags: vec!["--folder-basic-only".into()],
        ..quick()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_files_want_the_password_they_get_it() {
    let (world, vc) = connected(basic_only()).await;
    let dc = vc.datacenter("dc1").await.unwrap();
    let file = path("[iso-datastore] x.iso");
    put(&*vc, &dc, &file, b"first").await.unwrap();
    assert_eq!(vc.stat(&dc, &file).await.unwrap(), Some(5));
    // A session that is gone is another case than a session that `/folder` does not accept.
    world.post("sessions/kill", serde_json::json!({})).await;
    put(&*vc, &dc, &file, b"second").await.unwrap();
    assert_eq!(vc.stat(&dc, &file).await.unwrap(), Some(6));
    assert_eq!(world.logins("vim").await, 2);
    assert_eq!(world.logins("refused").await, 0);
    assert_eq!(world.calls().await["PUT /folder"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_that_files_refuse_is_told_and_tried_once() {
    let (world, vc) = connected(basic_only()).await;
    let dc = vc.datacenter("dc1").await.unwrap();
    let file = path("[iso-datastore] x.iso");
    // The password was changed, and the session is still valid.
    let changed = serde_json::json!({"password": "another"});
    world.post("password", changed).await;
    let server = world.vcenter.url().trim_start_matches("https://");
    for _ in 0..3 {
        let e = put(&*vc, &dc, &file, b"x").await.unwrap_err();
        assert_eq!(e.fault(), Some(&Fault::InvalidLogin), "{e}");
        assert_eq!(e.reason(), Reason::InvalidCredentials);
        for named in [server, world.vcenter.options().username.as_str()] {
            assert!(e.message.contains(named), "{named}: {e}");
        }
        let password = &world.vcenter.options().password;
        assert!(!format!("{e:?}").contains(password.as_str()));
    }
    assert_eq!(world.logins("refused").await, 1, "the others rest");
    assert!(world.gate.outcomes(EffectKind::Upload).is_empty());
    assert!(!vc.login_refused(), "the session serves on");
    vc.drives().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_privilege_names_itself() {
    let (world, vc) = connected(quick()).await;
    let dc = vc.datacenter("dc1").await.unwrap();
    let deny = serde_json::json!({"deny": [{"privilege": "Datastore.FileManagement"}]});
    world.post("permissions", deny).await;
    let file = path("[iso-datastore] x.iso");
    for e in [
        put(&*vc, &dc, &file, b"x").await.unwrap_err(),
        vc.make_directory(
            &effect(EffectKind::MakeDirectory),
            &dc,
            &path("[iso-datastore] d"),
        )
        .await
        .unwrap_err(),
    ] {
        match e.fault() {
            Some(Fault::NoPermission { privilege, .. }) => {
                assert_eq!(privilege, "Datastore.FileManagement");
            }
            other => panic!("{other:?}: {e}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_vm_mounts_is_unknown_where_it_may_not_be_read() {
    let (world, vc) = ready(quick()).await;
    for name in ["readable", "hidden"] {
        life(&*vc, name).await.unwrap();
    }
    assert_eq!(vc.drives().await.unwrap().isos.len(), 2);
    let deny = serde_json::json!({"deny": [{"privilege": "System.Read", "objectName": "hidden"}]});
    world.post("permissions", deny).await;
    let hidden = world.vms().await;
    let hidden = find(&hidden, "hidden")["moref"].as_str().unwrap();
    let drives = vc.drives().await.unwrap();
    let known: Vec<_> = drives.isos.iter().map(|m| m.vm.as_str()).collect();
    assert_eq!(known, ["readable"], "what is known is said");
    assert_eq!(drives.unknown.len(), 1);
    let unread = &drives.unknown[hidden];
    let e = &unread.error;
    assert!(
        matches!(e.fault(), Some(Fault::NoPermission { .. })),
        "{e:?}"
    );
    assert_eq!(unread.datastores, None, "nor where its files are");
}

/// Its datastores are known although its configuration is not. So it does not protect files on other datastores.
#[tokio::test(flavor = "multi_thread")]
async fn a_vm_without_configuration_holds_back_what_lies_on_its_datastores() {
    let (world, vc) = ready(quick()).await;
    let vm = life(&*vc, "away").await.unwrap();
    world
        .post(&format!("vms/{}/hide", vm.id), serde_json::json!({}))
        .await;
    let drives = vc.drives().await.unwrap();
    let stores = drives.unknown["away"].datastores.clone().unwrap();
    assert!(stores.contains("iso-datastore"), "{stores:?}");
    assert!(drives.keeps(&iso()).is_some_and(|why| why.contains("away")));
    let elsewhere = path("[another-datastore] a.iso");
    assert_eq!(drives.keeps(&elsewhere), None);
    let seen = now(&*vc, &vm).await;
    assert!(!seen.shows_config(), "{seen:?}");
    assert!(vc.find_by_uuid(uuid_of("away")).await.unwrap().is_empty());
    let survey = vc.survey().await.unwrap();
    assert_eq!((survey.marked.len(), survey.bare.len()), (0, 1));
    assert_eq!(survey.bare[0].connection_state, "inaccessible");
    assert!(
        survey.bare[0]
            .vm_path
            .as_ref()
            .is_some_and(|p| p.ends_with("/away.vmx"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_datastore_that_is_not_there_is_named_at_once() {
    let (_world, vc) = connected(quick()).await;
    let dc = vc.datacenter("dc1").await.unwrap();
    let directory = path("[no-store] agent-forge/ns");
    let mkdir = effect(EffectKind::MakeDirectory);
    let tries = async {
        let made = vc.make_directory(&mkdir, &dc, &directory).await;
        [
            made.unwrap_err(),
            vc.list(&dc, &directory).await.unwrap_err(),
        ]
    };
    // The time limit only catches a look-up that waits for itself.
    let within = tokio::time::timeout(HANG, tries).await;
    for e in within.expect("an answer") {
        let VcErrorKind::Unresolved { field, value } = &e.kind else {
            panic!("{e:?}")
        };
        assert_eq!((*field, value.as_str()), ("isoDatastore", "no-store"));
    }
}

/// The kernel closes a connection whose peer accepts nothing for the configured time. That is real time and cannot be
/// simulated.
#[tokio::test(flavor = "multi_thread")]
async fn a_datastore_that_takes_no_byte_for_half_a_minute_does_not_end_an_upload() {
    const STALL: Duration = Duration::from_secs(34);
    const CHUNK: usize = 1 << 20;
    /// More than the kernel buffers for a datastore that accepts nothing.
    const CHUNKS: usize = 64;
    let world = world(quick()).await;
    let proxy = FaultProxy::start(world.vcenter.url()).await.unwrap();
    let mut credentials = world.credentials();
    credentials.server = proxy.url(world.vcenter.url()).unwrap().parse().unwrap();
    let vc = world.connector.connect(&credentials).await.unwrap();
    let dc = vc.datacenter("dc1").await.unwrap();
    let file = path("[iso-datastore] large.iso");
    let taken = Arc::new(AtomicUsize::new(0));
    let silent = Arc::new(tokio::sync::Notify::new());
    let later = {
        let silent = silent.clone();
        async move {
            silent.notified().await;
            futures::stream::iter(1..CHUNKS)
        }
    };
    let counted = taken.clone();
    let body = futures::stream::iter(0..1).chain(later.flatten_stream());
    let body = body.map(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(Bytes::from_static(&[7; CHUNK]))
    });
    let length = (CHUNK * CHUNKS) as u64;
    let upload = effect(EffectKind::Upload);
    let mut uploading = Box::pin(vc.upload(&upload, &dc, &file, length, Box::pin(body)));
    // The server ends a connection whose request it has not begun to read.
    loop {
        let there = tokio::select! {
            sent = &mut uploading => panic!("too early: {sent:?}"),
            there = vc.stat(&dc, &file) => there.unwrap(),
        };
        if there.is_some() {
            break;
        }
    }
    proxy.set(Network::Silent);
    silent.notify_one();
    tokio::select! {
        sent = &mut uploading => panic!("given up: {sent:?}"),
        () = tokio::time::sleep(STALL) => {}
    }
    assert!(
        taken.load(Ordering::Relaxed) < CHUNKS,
        "the datastore took it all"
    );
    proxy.set(Network::Open);
    uploading.await.unwrap();
    assert_eq!(vc.stat(&dc, &file).await.unwrap(), Some(length));
}
