//! What happens when the source or vCenter fails: a named reason, no partial file, and then success.

use std::{sync::atomic::Ordering, time::Duration};

use agent_forge_crds::conditions::Reason;

use crate::{
    domain::failure::{Class, ErrorSource, ReconcileError},
    iso::{
        ensure,
        meter::STALL,
        msg::{IsoState, IsoWant},
        testing::{
            bench::{Bench, SIZE, TOKEN, path, pool, want},
            image::{CHUNK, SourceFault},
            store::{StoreFault, Stored},
        },
    },
};

async fn first_failure(bench: &mut Bench) -> ReconcileError {
    match bench.settled(&want("a")).await {
        IsoState::Failed(trouble) => trouble,
        other => panic!("expected a failure, got {other:?}"),
    }
}

fn no_secret(trouble: &ReconcileError) {
    assert!(
        !format!("{trouble} {trouble:?}").contains(TOKEN),
        "{trouble:?}"
    );
}

/// After the failure nothing is left on the datastore. After the backoff it works.
async fn recovers(bench: &mut Bench, case: &str) {
    assert_eq!(
        bench.store.files(),
        Vec::<String>::new(),
        "{case}: something stayed"
    );
    let (file, reused) = bench.arrived(&want("a")).await;
    assert_eq!((file.path, reused), (bench.final_path(), false), "{case}");
    assert_eq!(
        bench.store.files(),
        [bench.final_path().to_string()],
        "{case}"
    );
    assert_eq!(bench.image.alive.now(), 0, "{case}: bytes are still held");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_published_before_a_record_lists_it() {
    let mut bench = Bench::new().await;
    let mut wants = want("a");
    let ask = async |bench: &Bench, want: &IsoWant| {
        let answer = ensure(&bench.cache(), want.clone()).await;
        answer.expect("an answer")
    };
    let mut woken = ask(&bench, &wants).await;
    while !matches!(woken, IsoState::Publishing(_)) {
        bench.woken(&wants.pool).await;
        woken = ask(&bench, &wants).await;
    }
    let IsoState::Publishing(place) = woken else {
        panic!("{woken:?}")
    };
    assert_eq!(place.path, bench.final_path());
    tokio::time::sleep(4 * STALL).await;
    assert_eq!(bench.store.count("move"), 0, "however long that takes");
    wants.listed.insert(place.path.clone());
    ask(&bench, &wants).await;
    assert!(matches!(
        bench.settled(&wants).await,
        IsoState::Ready { .. }
    ));
    assert_eq!((bench.opened(), bench.store.count("move")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn what_nobody_lists_is_not_published_and_leaves_nothing() {
    let mut bench = Bench::new().await;
    let failed = loop {
        let answer = ensure(&bench.cache(), want("a")).await;
        match answer.expect("an answer") {
            IsoState::Failed(trouble) => break trouble,
            _ => bench.woken(&want("a").pool).await,
        };
    };
    assert_eq!(failed.reason, Reason::IsoUploadIncomplete);
    assert_eq!(bench.store.count("move"), 0);
    recovers(&mut bench, "listed at last").await;
}

#[tokio::test(start_paused = true)]
async fn a_bad_source_is_named_and_leaves_nothing() {
    let size = SIZE;
    let cases = [
        (SourceFault::Refuse, "ISONotFound".into()),
        (SourceFault::Break(0), Reason::IsoDownloadFailed),
        (SourceFault::Break(size - 1), Reason::IsoDownloadFailed),
        (SourceFault::EndAt(0), Reason::IsoLengthMismatch),
        (SourceFault::EndAt(40_000), Reason::IsoLengthMismatch),
        (SourceFault::EndAt(size - 1), Reason::IsoLengthMismatch),
        (SourceFault::Longer(1), Reason::IsoLengthMismatch),
        (SourceFault::Longer(3 * CHUNK), Reason::IsoLengthMismatch),
        (SourceFault::Declare(0), Reason::IsoWrongMagic),
        (SourceFault::Declare(32_773), Reason::IsoWrongMagic),
        (SourceFault::Declare(size - 2048), Reason::IsoLengthMismatch),
        (SourceFault::WrongMagic, Reason::IsoWrongMagic),
        (SourceFault::Stall(0), Reason::IsoDownloadStalled),
        (SourceFault::Stall(3 * CHUNK), Reason::IsoDownloadStalled),
        (SourceFault::Panic, Reason::InternalError),
    ];
    for (fault, reason) in cases {
        let mut bench = Bench::new().await;
        bench.image.fail(fault.clone());
        let case = format!("{fault:?}");
        let trouble = first_failure(&mut bench).await;
        assert_eq!(
            (trouble.reason.clone(), trouble.side),
            (reason, ErrorSource::Iso),
            "{case}"
        );
        no_secret(&trouble);
        recovers(&mut bench, &case).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_shortest_image_passes() {
    let mut bench = Bench::new().await;
    bench.image.length.store(32_774, Ordering::SeqCst);
    assert_eq!(bench.arrived(&want("a")).await.0.size, 32_774);
}

#[tokio::test(start_paused = true)]
async fn a_wrong_magic_is_seen_before_the_rest_is_sent() {
    let mut bench = Bench::new().await;
    bench.image.length.store(1 << 40, Ordering::SeqCst);
    *bench.image.pace.lock().expect("lock") = Duration::from_secs(1);
    bench.image.fail(SourceFault::WrongMagic);
    let before = tokio::time::Instant::now();
    assert_eq!(
        first_failure(&mut bench).await.reason,
        Reason::IsoWrongMagic
    );
    assert!(
        before.elapsed() <= Duration::from_secs(4),
        "{:?}",
        before.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_bad_upload_is_named_and_leaves_nothing() {
    let cases = [
        (
            StoreFault::UploadRefused,
            Reason::VcenterUnreachable,
            ErrorSource::Vsphere,
        ),
        (
            StoreFault::UploadCut(CHUNK),
            Reason::VcenterUnavailable,
            ErrorSource::Vsphere,
        ),
        (
            StoreFault::UploadEndsEarly(CHUNK),
            Reason::IsoUploadIncomplete,
            ErrorSource::Iso,
        ),
        (
            StoreFault::UploadEndsEarly(SIZE),
            Reason::default(),
            ErrorSource::Iso,
        ),
        (
            StoreFault::UploadLosesBytes,
            Reason::IsoUploadIncomplete,
            ErrorSource::Iso,
        ),
        (
            StoreFault::UploadHangs(CHUNK),
            Reason::IsoUploadStalled,
            ErrorSource::Vsphere,
        ),
        (
            StoreFault::UploadHangs(SIZE),
            Reason::IsoUploadStalled,
            ErrorSource::Vsphere,
        ),
        (
            StoreFault::MoveLost,
            Reason::VcenterNoAnswer,
            ErrorSource::Vsphere,
        ),
        (
            StoreFault::MoveRefused,
            Reason::NoPermission,
            ErrorSource::Vsphere,
        ),
    ];
    for (fault, reason, side) in cases {
        let mut bench = Bench::new().await;
        bench.store.fail(fault.clone());
        let case = format!("{fault:?}");
        if reason == Reason::default() {
            // Stopping at exactly the end is no fault.
            recovers(&mut bench, &case).await;
            continue;
        }
        let trouble = first_failure(&mut bench).await;
        assert_eq!(
            (trouble.reason.clone(), trouble.side),
            (reason, side),
            "{case}"
        );
        no_secret(&trouble);
        recovers(&mut bench, &case).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_claims_success_over_a_broken_source_is_not_believed() {
    let mut bench = Bench::new().await;
    // The store ends at the first chunk with success, and the source would have failed later. The transfer counts as
    // failed in both cases.
    bench.image.fail(SourceFault::Break(2 * CHUNK));
    bench.store.fail(StoreFault::UploadEndsEarly(CHUNK));
    assert_eq!(
        first_failure(&mut bench).await.reason,
        Reason::IsoUploadIncomplete
    );
    recovers(&mut bench, "both").await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_of_the_move_is_settled_by_looking() {
    for fault in [StoreFault::MoveAnswerLost, StoreFault::MoveRepeated] {
        let mut bench = Bench::new().await;
        bench.store.fail(fault.clone());
        let IsoState::Ready { file, reused, .. } = bench.settled(&want("a")).await else {
            panic!("{fault:?}")
        };
        assert_eq!(
            (file.path, reused),
            (bench.final_path(), false),
            "{fault:?}"
        );
        assert_eq!(bench.store.files(), [bench.final_path().to_string()]);
        assert_eq!((bench.opened(), bench.store.count("move")), (1, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn an_equal_file_that_came_first_is_used() {
    let mut bench = Bench::new().await;
    bench.store.fail(StoreFault::MoveRace(SIZE));
    let IsoState::Ready { file, reused, .. } = bench.settled(&want("a")).await else {
        panic!("not ready")
    };
    assert_eq!((file.path, reused), (bench.final_path(), true));
    assert_eq!(
        bench.store.files(),
        [bench.final_path().to_string()],
        "the partial file is gone"
    );
}

#[tokio::test(start_paused = true)]
async fn a_file_of_another_size_under_the_final_name_is_named_and_left_alone() {
    let mut bench = Bench::new().await;
    let place = bench.final_path().to_string();
    bench
        .store
        .with(|c| c.files.insert(place.clone(), Stored::of_size(12)));
    let trouble = first_failure(&mut bench).await;
    assert_eq!(
        (trouble.reason.clone(), trouble.class),
        (Reason::IsoFileConflict, Class::Blocked)
    );
    assert!(trouble.message.contains(&place), "{trouble}");
    assert_eq!(
        bench.store.with(|c| c.files.clone()),
        [(place.clone(), Stored::of_size(12))].into()
    );
    // A person follows the advice.
    bench.store.with(|c| c.files.clear());
    recovers(&mut bench, "conflict").await;
}

#[tokio::test(start_paused = true)]
async fn a_partial_file_that_cannot_be_deleted_is_in_nobodys_way() {
    let mut bench = Bench::new().await;
    bench.store.fail(StoreFault::UploadCut(CHUNK));
    bench.store.fail(StoreFault::DeleteRefused);
    first_failure(&mut bench).await;
    let left = bench.store.files();
    assert!(
        matches!(left.as_slice(), [one] if one.contains(".partial-")),
        "{left:?}"
    );
    let (file, _) = bench.arrived(&want("a")).await;
    assert_eq!(
        bench.store.files(),
        [file.path.to_string()],
        "the next flight took it away"
    );
    assert_eq!(
        bench.store.with(|c| c
            .files
            .get(&file.path.to_string())
            .and_then(|f| f.sha256.clone())),
        Some(file.sha256)
    );
}

#[tokio::test(start_paused = true)]
async fn slow_is_not_stalled() {
    let mut bench = Bench::new().await;
    *bench.image.pace.lock().expect("lock") = STALL - Duration::from_secs(1);
    assert!(!bench.arrived(&want("a")).await.1);
    assert_eq!(bench.opened(), 1, "21 chunks of 59 s each are one flight");
}

#[tokio::test(start_paused = true)]
async fn failures_back_off() {
    let mut bench = Bench::new().await;
    for _ in 0..6 {
        bench.image.fail(SourceFault::Refuse);
    }
    let mut gaps = Vec::new();
    for failures in 1..=6 {
        assert_eq!(first_failure(&mut bench).await.reason, "ISONotFound".into());
        let failed = tokio::time::Instant::now();
        for _ in 0..20 {
            bench.ask(&want("a")).await;
        }
        assert_eq!(bench.opened(), failures, "no try during a backoff");
        while matches!(bench.ask(&want("a")).await, IsoState::Failed(_)) {
            bench.woken(&pool("a")).await;
        }
        gaps.push(failed.elapsed());
    }
    assert!(gaps.is_sorted(), "{gaps:?}");
    assert!(gaps[5] >= Duration::from_secs(16), "{gaps:?}");
    assert_eq!(bench.arrived(&want("a")).await.0.path, bench.final_path());
    assert_eq!(
        (
            bench.counted("upload", true),
            bench.counted("upload", false)
        ),
        (1, 6)
    );
    assert_eq!(
        path(&format!("{}.iso", bench.image.sha256())),
        bench.final_path()
    );
}

#[tokio::test(start_paused = true)]
async fn a_datastore_may_take_its_time_after_the_last_byte() {
    let mut bench = Bench::new().await;
    bench
        .store
        .fail(StoreFault::UploadFlushes(Duration::from_secs(250)));
    bench.store.fail(StoreFault::MoveHangs);
    let (file, reused) = bench.arrived(&want("a")).await;
    assert_eq!((&file.path, reused), (&bench.final_path(), false));
    assert_eq!(
        bench.opened(),
        1,
        "what lies there is found, not sent again"
    );
    assert_eq!(bench.store.files(), [file.path.to_string()]);
    assert_eq!(bench.counted("upload", false), 0);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_may_be_silent_for_longer_is_waited_for() {
    for (patience, silence, opened) in [(30, 89, 1), (30, 91, 2), (120, 359, 1)] {
        let mut bench = Bench::new().await;
        let seconds = Duration::from_secs;
        *bench.image.patience.lock().expect("lock") = seconds(patience);
        bench
            .image
            .fail(SourceFault::Pause(CHUNK, seconds(silence)));
        bench.arrived(&want("a")).await;
        assert_eq!(bench.opened(), opened, "{silence} s of silence");
    }
}
