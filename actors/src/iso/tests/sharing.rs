//! One transfer for many.

use std::{sync::atomic::Ordering, time::Duration};

use futures::future::join_all;

use crate::{
    domain::names::{DatastorePath, ObjectKey},
    iso::{
        msg::{IsoFile, IsoState, IsoWant},
        of_pool,
        testing::{
            bench::{Bench, SIZE, ask, pool, reached, want},
            image::{CHUNK, SourceFault},
            store::Stored,
        },
    },
    ports::{
        effect::{EffectKind, Subject},
        iso_source::IsoUrl,
    },
};

fn elsewhere(name: &str) -> IsoWant {
    IsoWant {
        directory: DatastorePath::new("ds1", "other").expect("path"),
        ..want(name)
    }
}

/// `file` as the pool's status names it from now on.
fn recorded(want: IsoWant, file: &IsoFile) -> IsoWant {
    IsoWant {
        known: Some(file.clone()),
        ..want
    }
}

#[tokio::test(start_paused = true)]
async fn fifty_asks_of_two_pools_are_one_transfer() {
    let mut bench = Bench::new().await;
    let asks: Vec<_> = (0..50)
        .map(|i| want(if i % 2 == 0 { "a" } else { "b" }))
        .collect();
    let answers = join_all(asks.iter().map(|w| bench.ask(w))).await;
    assert!(
        answers
            .iter()
            .all(|a| matches!(a, IsoState::Fetching { .. }))
    );
    let (a, b) = (
        bench.arrived(&want("a")).await,
        bench.arrived(&want("b")).await,
    );
    assert_eq!(a.0, b.0);
    assert!(b.1, "uploaded for the pool that asked first");
    assert_eq!(a.0.sha256, bench.image.sha256());
    assert_eq!(
        (a.0.size, a.0.path.clone(), a.1),
        (SIZE, bench.final_path(), false)
    );
    assert_eq!(
        (
            bench.opened(),
            bench.store.count("upload"),
            bench.store.count("move")
        ),
        (1, 1, 1)
    );
    assert_eq!(bench.store.files(), [bench.final_path().to_string()]);
    let effects = bench
        .store
        .with(|c| c.effects.iter().map(|e| e.kind).collect::<Vec<_>>());
    assert_eq!(
        effects,
        [
            EffectKind::MakeDirectory,
            EffectKind::Upload,
            EffectKind::Publish
        ]
    );
    assert!(bench.store.with(|c| {
        c.effects
            .iter()
            .all(|e| e.subject == Subject::Pool(pool("a")))
    }));
}

#[tokio::test(start_paused = true)]
async fn other_directories_wait_for_the_lane_one_at_a_time() {
    let mut bench = Bench::new().await;
    *bench.image.pace.lock().expect("lock") = Duration::from_secs(1);
    bench.ask(&want("a")).await;
    let waits = bench.ask(&elsewhere("b")).await;
    assert_eq!(waits, IsoState::Queued(pool("a")));
    let (mut ready_a, mut ready_b) = (None, None);
    while ready_a.is_none() || ready_b.is_none() {
        assert!(
            bench.image.bodies.load(Ordering::SeqCst) <= 1,
            "two downloads at a time"
        );
        let _ = tokio::time::timeout(Duration::from_secs(2), bench.wakes.recv()).await;
        let at = tokio::time::Instant::now();
        for (wants, ready) in [(want("a"), &mut ready_a), (elsewhere("b"), &mut ready_b)] {
            if matches!(bench.ask(&wants).await, IsoState::Ready { .. }) {
                ready.get_or_insert(at);
            }
        }
    }
    assert!(ready_b.expect("b") - ready_a.expect("a") >= Duration::from_secs(20));
    assert_eq!(bench.opened(), 2);
}

/// The most downloads at a time, and the time until both pools have their ISO: pool `a` on `[vc/ds1]`, and pool `b` on
/// that datastore.
async fn together(server: &str, datastore: &str) -> (usize, Duration) {
    let mut bench = Bench::new().await;
    *bench.image.pace.lock().expect("lock") = Duration::from_secs(1);
    let key = |server: &str, datastore: &str| {
        let mut pool = crate::testing::pool("b");
        pool.spec.vsphere.iso_datastore = datastore.to_owned();
        of_pool::cache_key(&pool, server)
    };
    let other = match key(server, datastore) {
        same if same == key("vc", "ds1") => bench.cache(),
        other => reached(&bench.another(other).await.0),
    };
    let (mine, theirs) = (
        want("a"),
        IsoWant {
            directory: DatastorePath::new(datastore, "other").expect("path"),
            ..want("b")
        },
    );
    let began = tokio::time::Instant::now();
    loop {
        let answers = [ask(&bench.cache(), &mine).await, ask(&other, &theirs).await];
        let there = |a: &IsoState| matches!(a, IsoState::Ready { reused: false, .. });
        if answers.iter().all(there) {
            break;
        }
        bench.woken(&pool("a")).await;
    }
    assert_eq!(bench.opened(), 2, "each has its own upload");
    let most = bench.image.most_bodies.load(Ordering::SeqCst);
    (most, began.elapsed())
}

#[tokio::test(start_paused = true)]
async fn other_datastores_and_other_vcenters_go_on_in_parallel() {
    let (most, one_after_the_other) = together("vc", "ds1").await;
    assert_eq!(most, 1, "one datastore takes one upload at a time");
    for (server, datastore) in [("vc", "ds2"), ("vc-2", "ds1")] {
        let (most, took) = together(server, datastore).await;
        assert_eq!(most, 2, "{server}/{datastore}: at the same time");
        assert!(
            took <= one_after_the_other / 2 + Duration::from_secs(1),
            "{server}/{datastore}: {took:?}, one after the other {one_after_the_other:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_recorded_file_is_found_without_a_transfer_even_during_another_upload() {
    let mut bench = Bench::new().await;
    let (file, _) = bench.arrived(&want("a")).await;
    bench.kill().await;
    bench.restart().await;
    // A foreign upload never ends.
    bench.image.fail(SourceFault::Stall(CHUNK));
    bench.ask(&elsewhere("b")).await;
    let started = tokio::time::Instant::now();
    let again = recorded(want("a"), &file);
    assert_eq!(bench.settled(&again).await, ready(&file, true));
    assert_eq!(started.elapsed(), Duration::ZERO, "waits for nobody");
    assert_eq!(bench.counted("reuse", true), 1);
}

fn ready(file: &IsoFile, reused: bool) -> IsoState {
    IsoState::Ready {
        file: file.clone(),
        reused,
        pruned: Vec::new(),
        prune_failures: Vec::new(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_recorded_file_that_is_gone_or_of_another_size_is_fetched() {
    for wrong in [None, Some(Stored::of_size(5))] {
        let mut bench = Bench::new().await;
        let (mut file, _) = bench.arrived(&want("a")).await;
        // The record is of an older image, whose file was removed or damaged since.
        file.path = DatastorePath::new("ds1", "isos/old.iso").expect("path");
        if let Some(stored) = wrong {
            bench
                .store
                .with(|c| c.files.insert(file.path.to_string(), stored));
        }
        bench.kill().await;
        bench.restart().await;
        let (found, reused) = bench.arrived(&recorded(want("a"), &file)).await;
        assert_eq!(
            (found.path, reused),
            (bench.final_path(), true),
            "fetched, and the same bytes were there"
        );
        assert_eq!(bench.opened(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_of_another_datastore_says_nothing() {
    let mut bench = Bench::new().await;
    let (mut file, _) = bench.arrived(&want("a")).await;
    bench.kill().await;
    bench.restart().await;
    file.path.datastore = "ds2".to_owned();
    bench.store.with(|c| {
        c.files
            .insert(file.path.to_string(), Stored::of_size(file.size))
    });
    assert_eq!(
        bench.arrived(&recorded(want("a"), &file)).await.0.path,
        bench.final_path()
    );
    assert_eq!(bench.opened(), 2);
}

#[tokio::test(start_paused = true)]
async fn each_new_force_token_fetches_once() {
    let mut bench = Bench::new().await;
    let (first, _) = bench.arrived(&want("a")).await;
    bench.image.version.store(2, Ordering::SeqCst);
    let forced = IsoWant {
        force_token: Some("1".to_owned()),
        ..want("a")
    };
    let (second, _) = bench.arrived(&forced).await;
    assert_ne!(first.sha256, second.sha256);
    for _ in 0..10 {
        bench.arrived(&recorded(forced.clone(), &second)).await;
    }
    assert_eq!(bench.opened(), 2);
    let forced = IsoWant {
        force_token: Some("2".to_owned()),
        ..want("a")
    };
    assert!(
        bench.arrived(&forced).await.1,
        "same bytes: transferred once more, and found there"
    );
    assert_eq!(bench.opened(), 3);
}

#[tokio::test(start_paused = true)]
async fn what_one_pool_forced_all_get() {
    let mut bench = Bench::new().await;
    let (before, _) = bench.arrived(&default_place("b")).await;
    bench.image.version.store(2, Ordering::SeqCst);
    tokio::time::advance(Duration::from_secs(1)).await;
    let forced = IsoWant {
        force_token: Some("1".to_owned()),
        ..default_place("a")
    };
    let (after, reused) = bench.arrived(&forced).await;
    assert_ne!(before, after);
    assert!(!reused);
    let other = recorded(default_place("b"), &before);
    assert_eq!(bench.arrived(&other).await.0, after);
    // After a restart of the cache the latest record wins, whichever pool asks first.
    let both = [other, recorded(default_place("a"), &after)];
    for order in [[0, 1], [1, 0]] {
        bench.kill().await;
        bench.restart().await;
        for n in order {
            bench.arrived(&both[n]).await;
        }
        bench.woken(&pool("b")).await;
        for n in order {
            assert_eq!(bench.arrived(&both[n]).await.0.sha256, after.sha256);
        }
    }
    assert_eq!(bench.opened(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_volatile_source_is_fetched_once_per_source_key() {
    let mut bench = Bench::new().await;
    for version in 2..20 {
        bench.arrived(&want("a")).await;
        bench.image.version.store(version, Ordering::SeqCst);
        tokio::time::advance(Duration::from_secs(301)).await;
    }
    assert_eq!(bench.opened(), 1);
    bench
        .arrived(&IsoWant {
            source_key: "another".to_owned(),
            ..want("a")
        })
        .await;
    assert_eq!(bench.opened(), 2);
}

#[tokio::test(start_paused = true)]
async fn one_pools_bad_secret_does_not_keep_the_other_from_it() {
    let mut bench = Bench::new().await;
    let bad = IsoWant {
        secret: ObjectKey::new("ns", "wrong"),
        ..want("a")
    };
    // The pool with the bad Secret always asks first.
    for _ in 0..50 {
        bench.ask(&bad).await;
        if let IsoState::Ready { .. } = bench.settled(&want("b")).await {
            assert!(matches!(bench.ask(&bad).await, IsoState::Ready { .. }));
            return;
        }
        bench.woken(&pool("b")).await;
    }
    panic!("the pool with the good Secret starves");
}

#[tokio::test(start_paused = true)]
async fn memory_is_bounded_whatever_the_size() {
    let mut bench = Bench::new().await;
    bench.image.length.store(1500 * CHUNK, Ordering::SeqCst);
    bench.arrived(&want("a")).await;
    let most = bench.image.alive.most();
    assert!(
        (CHUNK..=4 * CHUNK).contains(&most),
        "{most} bytes were held at once"
    );
    assert_eq!(bench.image.alive.now(), 0);
}

/// The pool's default directory.
fn default_place(name: &str) -> IsoWant {
    IsoWant {
        directory: DatastorePath::new("ds1", &format!("agent-forge/ns/{name}")).expect("path"),
        shares: true,
        ..want(name)
    }
}

#[tokio::test(start_paused = true)]
async fn pools_with_default_directories_share_one_upload() {
    let mut bench = Bench::new().await;
    *bench.image.pace.lock().expect("lock") = Duration::from_millis(10);
    bench.ask(&default_place("a")).await;
    // While the transfer runs, and when the file is there.
    bench.ask(&default_place("b")).await;
    let (a, b) = (
        bench.arrived(&default_place("a")).await.0,
        bench.arrived(&default_place("b")).await.0,
    );
    let c = bench.arrived(&default_place("c")).await.0;
    assert_eq!(a.path.parent(), Some(default_place("a").directory));
    assert_eq!((&a, &a), (&b, &c));
    assert_eq!((bench.opened(), bench.store.files().len()), (1, 1));
    for (name, reused) in [("a", false), ("b", true), ("c", true), ("a", false)] {
        let told = bench.arrived(&default_place(name)).await.1;
        assert_eq!(told, reused, "{name}: uploaded for the first one alone");
    }
    // A directory that a user chose is kept.
    let (d, _) = bench.arrived(&want("d")).await;
    assert_eq!(d.path.parent(), Some(want("d").directory));
    assert_eq!(bench.opened(), 2);
    // After a restart each pool stays where its record points, in whatever order they ask.
    bench.kill().await;
    bench.restart().await;
    for name in ["c", "b", "a"] {
        assert_eq!(
            bench
                .arrived(&recorded(default_place(name), &a))
                .await
                .0
                .path,
            a.path
        );
    }
    assert_eq!(bench.opened(), 2);
}

#[tokio::test(start_paused = true)]
async fn two_recorded_files_of_one_source_stay_both() {
    let mut bench = Bench::new().await;
    let (mut mine, _) = bench.arrived(&default_place("a")).await;
    let theirs = mine.clone();
    mine.path = default_place("b").directory.join("old.iso").expect("path");
    bench.store.with(|c| {
        c.files
            .insert(mine.path.to_string(), Stored::of_size(mine.size))
    });
    bench.kill().await;
    bench.restart().await;
    for (name, file) in [("a", &theirs), ("b", &mine)] {
        let found = bench.arrived(&recorded(default_place(name), file)).await;
        assert_eq!((&found.0.path, found.1), (&file.path, true));
    }
    assert_eq!(
        bench.opened(),
        1,
        "what the predecessor recorded stays valid"
    );
}

#[tokio::test(start_paused = true)]
async fn another_url_is_tried_at_once() {
    let mut bench = Bench::new().await;
    fails(&mut bench, 6).await;
    bench.image.fail(SourceFault::Refuse);
    while !matches!(bench.ask(&want("a")).await, IsoState::Failed(_)) {
        bench.woken(&pool("a")).await;
    }
    let opened = bench.opened();
    assert!(matches!(bench.ask(&want("a")).await, IsoState::Failed(_)));
    assert_eq!(bench.opened(), opened, "the same URL waits");
    let started = tokio::time::Instant::now();
    bench.arrived(&renewed("a")).await;
    assert_eq!(started.elapsed(), Duration::ZERO, "a new URL does not");
}

/// What pool `name` wants after its InfraEnv got another URL.
fn renewed(name: &str) -> IsoWant {
    IsoWant {
        source: IsoUrl::parse("https://img/byapikey/RENEWED/4.19/x86_64/full.iso").expect("url"),
        ..want(name)
    }
}

/// That many tries of pool `a` fail. The next one may begin.
async fn fails(bench: &mut Bench, times: usize) {
    for _ in 0..times {
        bench.image.fail(SourceFault::Refuse);
        while !matches!(bench.ask(&want("a")).await, IsoState::Failed(_)) {
            bench.woken(&pool("a")).await;
        }
        tokio::time::advance(Duration::from_secs(40)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn another_url_that_comes_while_the_old_one_fails_is_tried_at_once() {
    let mut bench = Bench::new().await;
    fails(&mut bench, 6).await;
    bench.image.fail(SourceFault::Stall(CHUNK));
    bench.ask(&want("a")).await;
    bench.until("the old URL's try", |b| b.opened() == 7).await;
    let began = tokio::time::Instant::now();
    bench.arrived(&renewed("a")).await;
    // A silent source is tolerated for 90 s. After seven failures a pause would be 30 s.
    assert!(
        began.elapsed() < Duration::from_secs(95),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn pools_that_name_different_certificates_do_not_take_turns_without_a_pause() {
    let bench = Bench::new().await;
    for _ in 0..1000 {
        bench.image.fail(SourceFault::Refuse);
    }
    let other = IsoWant {
        ca_pem: Ok(Some("certificates of its own".to_owned())),
        ..want("b")
    };
    // As pools do while it fails.
    for _ in 0..150 {
        bench.ask(&want("a")).await;
        bench.ask(&other).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    // 0.5 s, doubled up to 30 s. What had not been tried starts at once.
    let tries = bench.opened();
    assert!((5..=25).contains(&tries), "{tries} in five minutes");
}
