//! Repeated looks, pruning, and what a crash leaves.

use std::{sync::atomic::Ordering, time::Duration};

use agent_forge_crds::conditions::Reason;

use crate::{
    domain::names::DatastorePath,
    iso::{
        flight::SETTLE,
        msg::{IsoState, IsoWant},
        retention::PruneNews,
        testing::{
            bench::{Bench, SIZE, path, pool, want},
            image::{CHUNK, SourceFault},
            store::{StoreFault, Stored},
        },
    },
    ports::iso_source::Validators,
};

pub(super) fn old(n: u8) -> DatastorePath {
    path(&format!("{:064x}.iso", n))
}

#[tokio::test(start_paused = true)]
async fn a_file_is_looked_at_again_every_ten_minutes_and_not_more() {
    let mut bench = Bench::new().await;
    bench.arrived(&want("a")).await;
    let stats = bench.store.count("stat");
    for _ in 0..59 {
        tokio::time::advance(Duration::from_secs(10)).await;
        bench.arrived(&want("a")).await;
    }
    assert_eq!(bench.store.count("stat"), stats, "trusted for ten minutes");
    for _ in 0..60 {
        tokio::time::advance(Duration::from_secs(10)).await;
        bench.arrived(&want("a")).await;
    }
    // The look runs beside the mailbox. Its end shows in the calls of the store.
    bench
        .until("a second look", |b| b.store.count("stat") > stats)
        .await;
    assert_eq!(bench.store.count("stat"), stats + 1);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_vanished_is_noticed_and_fetched_again() {
    let mut bench = Bench::new().await;
    bench.arrived(&want("a")).await;
    bench.store.with(|c| c.files.clear());
    assert!(
        matches!(bench.ask(&want("a")).await, IsoState::Ready { .. }),
        "within ten minutes it is trusted"
    );
    while bench.wakes.try_recv().is_ok() {}
    tokio::time::advance(Duration::from_secs(601)).await;
    bench.ask(&want("a")).await;
    bench.woken(&pool("a")).await;
    bench.arrived(&want("a")).await;
    assert_eq!(bench.opened(), 2);
    assert_eq!(bench.store.files(), [bench.final_path().to_string()]);
}

#[tokio::test(start_paused = true)]
async fn a_look_that_fails_is_no_proof_of_absence() {
    let mut bench = Bench::new().await;
    bench.arrived(&want("a")).await;
    bench.store.with(|c| c.unreachable = true);
    for _ in 0..20 {
        tokio::time::advance(Duration::from_secs(301)).await;
        assert!(matches!(
            bench.ask(&want("a")).await,
            IsoState::Ready { .. }
        ));
    }
    bench.store.with(|c| c.unreachable = false);
    assert_eq!(bench.opened(), 1);
}

/// Makes the file ready, and lets the time pass in which other pools may name the files that they need.
pub(super) async fn settle(bench: &mut Bench) {
    bench.arrived(&want("a")).await;
    tokio::time::advance(SETTLE).await;
}

/// Asks until retention has something to report.
pub(super) async fn pruned(bench: &mut Bench, want: &IsoWant) -> PruneNews {
    loop {
        match bench.ask(want).await {
            IsoState::Ready {
                pruned,
                prune_failures,
                ..
            } if !pruned.is_empty() || !prune_failures.is_empty() => {
                return (pruned, prune_failures);
            }
            _ => bench.woken(&want.pool).await,
        };
    }
}

/// What retention reports for a pool whose ISO is ready.
async fn news(bench: &Bench, want: &IsoWant) -> PruneNews {
    match bench.ask(want).await {
        IsoState::Ready {
            pruned,
            prune_failures,
            ..
        } => (pruned, prune_failures),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn retention_removes_what_nobody_needs_and_says_why_the_rest_stays() {
    let mut bench = Bench::new().await;
    let foreign = path("rescue.iso");
    for file in [&old(1), &old(2), &old(3), &old(4), &old(5), &foreign] {
        bench
            .store
            .with(|c| c.files.insert(file.to_string(), Stored::of_size(1)));
    }
    // Mounted, in other spellings of the same path, and as something that is no datastore path.
    bench.store.with(|c| {
        c.mounted = vec![
            format!("[ds1] /isos/{}", old(2).file_name()),
            "garbage".to_owned(),
            format!("[] /vmfs/volumes/5f3e-17/isos/{}", old(4).file_name()),
            format!(
                "[ds1] 59427457-6c5a-a917-7997-0200103eedbc/{}",
                old(5).file_name()
            ),
        ]
    });
    // Another pool's status names one of them.
    let (file, _) = bench.arrived(&want("a")).await;
    bench
        .arrived(&IsoWant {
            known: Some(crate::iso::msg::IsoFile {
                path: old(3),
                ..file
            }),
            ..want("b")
        })
        .await;
    let wants = IsoWant {
        prunable: vec![old(1)],
        ..want("a")
    };
    tokio::time::advance(SETTLE - Duration::from_secs(1)).await;
    assert!(matches!(bench.ask(&wants).await, IsoState::Ready { .. }));
    tokio::time::advance(Duration::from_secs(1)).await;
    bench.ask(&want("a")).await;
    assert_eq!(
        bench.store.count("mounted_isos"),
        0,
        "not so soon, and only when there is something to prune"
    );

    let wants = IsoWant {
        prunable: vec![old(1), old(2), old(3), old(4), old(5), foreign.clone()],
        ..want("a")
    };
    let (mut gone, mut kept) = pruned(&mut bench, &wants).await;
    while gone.len() + kept.len() < 6 {
        let (more_gone, more_kept) = pruned(&mut bench, &wants).await;
        gone.extend(more_gone);
        kept.extend(more_kept);
    }
    kept.sort();
    assert_eq!(gone, [old(1)]);
    let reasons: Vec<_> = kept
        .iter()
        .map(|(p, why)| (p.clone(), why.as_str()))
        .collect();
    assert_eq!(
        reasons,
        [
            (old(2), "VM vm-0 has it in its CD-ROM drive"),
            (old(3), "pool ns/b uses it"),
            (old(4), "VM vm-2 has it in its CD-ROM drive"),
            (old(5), "VM vm-3 has it in its CD-ROM drive"),
            (
                foreign.clone(),
                "its name is not `<sha256>.iso`, so it is not ours to remove"
            ),
        ]
    );
    let left = [bench.final_path(), old(2), old(3), old(4), old(5), foreign];
    let mut left = left.map(|p| p.to_string());
    left.sort();
    assert_eq!(bench.store.files(), left);
    assert_eq!(bench.counted("prune", true), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_mounted_while_another_is_deleted_stays() {
    let mut bench = Bench::new().await;
    let files = [old(1), old(2), old(3)];
    for file in &files {
        bench
            .store
            .with(|c| c.files.insert(file.to_string(), Stored::of_size(1)));
    }
    bench
        .store
        .fail(StoreFault::DeleteWhileMounting(old(2).to_string()));
    settle(&mut bench).await;
    let wants = IsoWant {
        prunable: files.to_vec(),
        ..want("a")
    };
    let (gone, kept) = pruned(&mut bench, &wants).await;
    let why = "VM vm-0 has it in its CD-ROM drive".to_owned();
    assert_eq!((gone, kept), (vec![old(1), old(3)], vec![(old(2), why)]));
    assert_eq!(
        bench.store.count("mounted_isos"),
        2,
        "anew after a deletion, and not where nothing was deleted"
    );
}

#[tokio::test(start_paused = true)]
async fn what_has_just_come_is_neither_pruned_nor_a_prune_that_failed() {
    let mut bench = Bench::new().await;
    settle(&mut bench).await;
    // The record lists its name, and does not name it as the current one yet.
    let wants = IsoWant {
        prunable: vec![bench.final_path()],
        ..want("a")
    };
    for _ in 0..3 {
        assert_eq!(news(&bench, &wants).await, (vec![], vec![]));
    }
    assert_eq!(bench.store.count("mounted_isos"), 0);
    assert_eq!(bench.store.files(), [bench.final_path().to_string()]);
}

#[tokio::test(start_paused = true)]
async fn what_stays_is_tried_again_but_told_once() {
    let mut bench = Bench::new().await;
    bench
        .store
        .with(|c| c.files.insert(old(1).to_string(), Stored::of_size(1)));
    bench.store.with(|c| c.mounted = vec![old(1).to_string()]);
    settle(&mut bench).await;
    let wants = IsoWant {
        prunable: vec![old(1)],
        ..want("a")
    };
    assert_eq!(pruned(&mut bench, &wants).await.1.len(), 1);
    for _ in 0..30 {
        tokio::time::advance(Duration::from_secs(60)).await;
        let again = news(&bench, &wants).await;
        assert_eq!(again, (vec![], vec![]), "the same reason is no news");
    }
    let asked = bench.store.count("mounted_isos");
    assert!(
        (3..=4).contains(&asked),
        "every ten minutes in half an hour: {asked}"
    );
    bench.store.with(|c| c.mounted.clear());
    tokio::time::advance(Duration::from_secs(601)).await;
    assert_eq!(pruned(&mut bench, &wants).await, (vec![old(1)], vec![]));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_pruned_while_it_is_unknown_what_is_mounted() {
    let mut bench = Bench::new().await;
    bench
        .store
        .with(|c| c.files.insert(old(1).to_string(), Stored::of_size(1)));
    settle(&mut bench).await;
    bench.store.with(|c| c.unreachable = true);
    let (gone, kept) = pruned(
        &mut bench,
        &IsoWant {
            prunable: vec![old(1)],
            ..want("a")
        },
    )
    .await;
    assert_eq!((gone.len(), kept.len()), (0, 1));
    assert!(bench.store.files().contains(&old(1).to_string()));
}

#[tokio::test(start_paused = true)]
async fn a_failed_deletion_is_returned_and_not_fatal() {
    let mut bench = Bench::new().await;
    bench
        .store
        .with(|c| c.files.insert(old(1).to_string(), Stored::of_size(1)));
    bench.store.fail(StoreFault::DeleteRefused);
    settle(&mut bench).await;
    let wants = IsoWant {
        prunable: vec![old(1)],
        ..want("a")
    };
    let (gone, kept) = pruned(&mut bench, &wants).await;
    assert!(
        gone.is_empty() && kept[0].1.contains("DeleteDatastoreFile_Task"),
        "{kept:?}"
    );
    assert!(matches!(bench.ask(&wants).await, IsoState::Ready { .. }));
}

#[tokio::test(start_paused = true)]
async fn what_a_crash_leaves_goes_with_the_next_look_and_nothing_else_does() {
    for recorded in [false, true] {
        let mut bench = Bench::new().await;
        let (file, _) = bench.arrived(&want("a")).await;
        bench.image.fail(SourceFault::Stall(3 * CHUNK));
        let forced = IsoWant {
            force_token: Some("again".to_owned()),
            ..want("a")
        };
        bench.ask(&forced).await;
        bench
            .until("a part of it is there", |b| b.store.files().len() == 2)
            .await;
        bench.kill().await;
        let left: Vec<_> = bench.store.files();
        let [partial] = left
            .iter()
            .filter(|f| f.contains(".partial-"))
            .collect::<Vec<_>>()[..]
        else {
            panic!("{left:?}")
        };
        let (source, rest) = partial.rsplit_once(".partial-").expect("its form");
        let others = [
            format!("{source}.partial-mine"),
            format!("{source}.partial-00000000-{}", &rest[9..]),
            path("rescue.iso").to_string(),
        ];
        for other in &others {
            bench
                .store
                .with(|c| c.files.insert(other.clone(), Stored::of_size(1)));
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        bench.restart().await;
        // Found by a look at the recorded file, or by the next transfer.
        let again = IsoWant {
            known: recorded.then(|| file.clone()),
            ..want("a")
        };
        assert!(bench.arrived(&again).await.1, "the same bytes are there");
        bench
            .until("the abandoned file is deleted", |b| {
                !b.store.files().contains(partial)
            })
            .await;
        let mut rest = others.to_vec();
        rest.push(file.path.to_string());
        rest.sort();
        assert_eq!(bench.store.files(), rest);
    }
}

#[tokio::test(start_paused = true)]
async fn a_look_takes_away_what_could_not_be_deleted_and_leaves_what_is_being_written() {
    let mut bench = Bench::new().await;
    let (file, _) = bench.arrived(&want("a")).await;
    let forced = |name: &str, token: &str| IsoWant {
        force_token: Some(token.to_owned()),
        ..want(name)
    };
    bench.store.fail(StoreFault::UploadCut(CHUNK));
    bench.store.fail(StoreFault::DeleteRefused);
    let failed = bench.settled(&forced("a", "1")).await;
    assert!(matches!(failed, IsoState::Failed(_)), "{failed:?}");
    let left = bench.store.files();
    assert_eq!(left.len(), 2, "{left:?}");
    // No pool wants another transfer: only the look at the recorded file runs there.
    let recorded = IsoWant {
        known: Some(file.clone()),
        ..want("a")
    };
    assert_eq!(bench.arrived(&recorded).await.0, file);
    tokio::time::advance(Duration::from_secs(601)).await;
    bench.ask(&recorded).await;
    bench
        .until("it is deleted", |b| b.store.files().len() == 1)
        .await;
    assert_eq!(bench.store.files(), [file.path.to_string()]);
    assert_eq!(bench.opened(), 2);

    // A foreign transfer is under way in the same directory, and a file of an earlier one appears late.
    bench.image.fail(SourceFault::Stall(3 * CHUNK));
    let elsewhere = IsoWant {
        source_key: "another".to_owned(),
        ..want("b")
    };
    bench.ask(&elsewhere).await;
    bench
        .until("a part of it is there", |b| b.store.files().len() == 2)
        .await;
    let live = bench.store.files();
    let [late] = left
        .iter()
        .filter(|f| f.contains(".partial-"))
        .collect::<Vec<_>>()[..]
    else {
        panic!("{left:?}")
    };
    bench
        .store
        .with(|c| c.files.insert(late.clone(), Stored::of_size(1)));
    tokio::time::advance(Duration::from_secs(20)).await;
    let again = IsoWant {
        known: Some(file.clone()),
        source_key: "a third".to_owned(),
        ..want("c")
    };
    assert_eq!(bench.arrived(&again).await.0, file);
    assert_eq!(bench.store.files(), live, "what is written to stays");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_has_other_bytes_is_fetched_again_at_its_interval() {
    let mut bench = Bench::new().await;
    let tagged = |tag: &str| Validators {
        etag: Some(format!("\"{tag}\"")),
        last_modified: None,
    };
    let compared = IsoWant {
        check_every: Some(Duration::from_secs(30)),
        ..want("a")
    };
    *bench.image.validators.lock().expect("lock") = tagged("1");
    let (first, _) = bench.arrived(&compared).await;
    assert_eq!(first.validators, tagged("1"));
    let asked = |b: &Bench| b.image.questions.load(Ordering::SeqCst);
    let before = asked(&bench);
    tokio::time::advance(Duration::from_secs(29)).await;
    bench.arrived(&compared).await;
    assert_eq!(asked(&bench), before, "not before its time");
    tokio::time::advance(Duration::from_secs(1)).await;
    bench.ask(&compared).await;
    bench.until("a question", |b| asked(b) > before).await;
    assert_eq!(bench.opened(), 1, "the same tag: no download");
    // Other bytes.
    bench.image.version.store(2, Ordering::SeqCst);
    *bench.image.validators.lock().expect("lock") = tagged("2");
    while bench.wakes.try_recv().is_ok() {}
    tokio::time::advance(Duration::from_secs(30)).await;
    bench.ask(&compared).await;
    bench.woken(&pool("a")).await;
    let (second, reused) = bench.arrived(&compared).await;
    assert_ne!(first.sha256, second.sha256);
    assert!(!reused && !second.volatile);
    assert_eq!(bench.opened(), 2);
    // After a restart the recorded validators are compared.
    bench.kill().await;
    bench.restart().await;
    bench.image.version.store(3, Ordering::SeqCst);
    *bench.image.validators.lock().expect("lock") = tagged("3");
    let recorded = IsoWant {
        known: Some(second),
        ..compared
    };
    bench.arrived(&recorded).await;
    assert_eq!(bench.opened(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_word_does_not_hold_is_said_to_be_volatile() {
    let mut bench = Bench::new().await;
    bench.image.validators_move.store(true, Ordering::SeqCst);
    let compared = IsoWant {
        check_every: Some(Duration::from_secs(30)),
        ..want("a")
    };
    assert!(bench.arrived(&compared).await.0.volatile);
}

#[tokio::test(start_paused = true)]
async fn what_retention_lets_go_makes_room_on_a_full_datastore() {
    let mut bench = Bench::new().await;
    let current = path(&format!("{:064x}.iso", 9));
    for file in [&old(1), &old(2), &current] {
        bench
            .store
            .with(|c| c.files.insert(file.to_string(), Stored::of_size(SIZE)));
    }
    bench.store.with(|c| {
        c.capacity = Some(3 * SIZE);
        // The older of the two is mounted, so it cannot be removed.
        c.mounted = vec![old(1).to_string()];
    });
    let wants = IsoWant {
        prunable: vec![old(1), old(2)],
        ..want("a")
    };
    let IsoState::Failed(trouble) = bench.settled(&wants).await else {
        panic!("it does not fit")
    };
    assert_eq!(trouble.reason, Reason::NoDiskSpace);
    let (file, reused) = bench.arrived(&wants).await;
    assert!(!reused);
    let mut left = [old(1), current, file.path].map(|p| p.to_string());
    left.sort();
    assert_eq!(bench.store.files(), left);
    assert_eq!(
        pruned(&mut bench, &wants).await.0,
        [old(2)],
        "and it is told"
    );
}

/// Asks at the interval until the source was asked and the work that follows is done. Returns the answer then.
async fn compared_again(bench: &mut Bench, want: &IsoWant) -> crate::iso::msg::IsoFile {
    let asked = |b: &Bench| b.image.questions.load(Ordering::SeqCst);
    let before = asked(bench);
    while bench.wakes.try_recv().is_ok() {}
    tokio::time::advance(Duration::from_secs(30)).await;
    bench.ask(want).await;
    bench.until("a question", |b| asked(b) > before).await;
    bench.woken(&want.pool).await;
    bench.arrived(want).await.0
}

#[tokio::test(start_paused = true)]
async fn a_source_that_says_so_each_time_is_volatile() {
    let tagged = |tag: u64| Validators {
        etag: Some(format!("\"{tag}\"")),
        last_modified: None,
    };
    let compared = IsoWant {
        check_every: Some(Duration::from_secs(30)),
        ..want("a")
    };
    for other_bytes in [false, true] {
        let mut bench = Bench::new().await;
        *bench.image.validators.lock().expect("lock") = tagged(1);
        assert!(!bench.arrived(&compared).await.0.volatile);
        let mut seen = Vec::new();
        for version in 2..=3 {
            if other_bytes {
                bench.image.version.store(version, Ordering::SeqCst);
            }
            *bench.image.validators.lock().expect("lock") = tagged(version);
            seen.push(compared_again(&mut bench, &compared).await.volatile);
        }
        assert_eq!(seen, [false, true], "other bytes: {other_bytes}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_life_looks_in_the_directories_of_the_history_and_looks_go_on() {
    let mut bench = Bench::new().await;
    bench.image.fail(SourceFault::Stall(3 * CHUNK));
    bench.ask(&want("a")).await;
    bench
        .until("a part of it is there", |b| b.store.files().len() == 1)
        .await;
    bench.kill().await;
    // The pool's prefix was another one then.
    let before = DatastorePath::new("ds1", "before").expect("path");
    let late = bench.store.files().remove(0);
    let name = DatastorePath::parse(&late).expect("path");
    let left = before.join(name.file_name()).expect("path").to_string();
    bench.store.with(|c| {
        let file = c.files.pop_first().expect("a file").1;
        c.files.insert(left.clone(), file);
    });
    tokio::time::advance(Duration::from_secs(1)).await;
    bench.restart().await;
    let wants = IsoWant {
        directories: [before, want("a").directory].into(),
        ..want("a")
    };
    let (file, _) = bench.arrived(&wants).await;
    assert_eq!(bench.store.files(), [file.path.to_string()]);
    // What was on its way when the process died arrives after all. The next look at the file removes it.
    bench
        .store
        .with(|c| c.files.insert(late.clone(), Stored::of_size(CHUNK)));
    let lists = bench.store.count("list");
    tokio::time::advance(Duration::from_secs(601)).await;
    bench.ask(&wants).await;
    bench
        .until("it is deleted", |b| !b.store.files().contains(&late))
        .await;
    assert_eq!(bench.store.files(), [file.path.to_string()]);
    // The look at the file lists both directories. Where a file was found, there is one look more.
    bench
        .until("each is listed", |b| b.store.count("list") == lists + 3)
        .await;
}

#[tokio::test(start_paused = true)]
async fn directories_that_are_slow_to_list_are_no_stall() {
    let mut bench = Bench::new().await;
    bench.store.with(|c| c.list_hangs = true);
    let directory = |name: &str| DatastorePath::new("ds1", name).expect("path");
    let wants = IsoWant {
        directories: ["before", "older"].map(directory).into(),
        ..want("a")
    };
    let came = bench.settled(&wants).await;
    assert!(matches!(came, IsoState::Ready { .. }), "{came:?}");
    assert_eq!(bench.store.count("list"), 3, "each was tried");
    assert_eq!(bench.opened(), 1);
}
