//! A transfer that no pool wants any more ends silently, and leaves neither bytes nor a backoff.

use std::{sync::atomic::Ordering, time::Duration};

use tokio::time::Instant;

use crate::{
    domain::names::DatastorePath,
    iso::{
        ensure, leave,
        msg::{IsoState, IsoWant},
        testing::{
            bench::{Bench, pool, want},
            image::{CHUNK, SourceFault},
            store::StoreFault,
        },
    },
};

/// What holds up the transfer that is under way.
#[derive(Clone, Copy, Debug)]
enum Holdup {
    SilentSource,
    SlowSource,
    HangingUpload,
    SilentAfterLastByte,
    NoRecord,
}

impl Holdup {
    const ALL: [Self; 5] = [
        Self::SilentSource,
        Self::SlowSource,
        Self::HangingUpload,
        Self::SilentAfterLastByte,
        Self::NoRecord,
    ];

    /// Lets pool `a` begin a transfer that does not end, and waits until a part of it is on the datastore.
    async fn begin(self, bench: &Bench) {
        let size = bench.image.length.load(Ordering::SeqCst);
        match self {
            Self::SilentSource => bench.image.fail(SourceFault::Stall(3 * CHUNK)),
            Self::SlowSource => *bench.image.pace.lock().expect("lock") = Duration::from_secs(9),
            Self::HangingUpload => bench.store.fail(StoreFault::UploadHangs(CHUNK)),
            Self::SilentAfterLastByte => bench.store.fail(StoreFault::UploadHangs(size)),
            Self::NoRecord => {}
        }
        let answer = ensure(&bench.cache(), want("a")).await;
        assert!(matches!(answer, Ok(IsoState::Fetching { .. })));
        tokio::time::sleep(Duration::from_secs(30)).await;
        let files = bench.store.files();
        assert!(
            matches!(files.as_slice(), [one] if one.contains(".partial-")),
            "{self:?}: {files:?}"
        );
        *bench.image.pace.lock().expect("lock") = Duration::ZERO;
    }
}

/// It is there at once. No failure is reported, and nothing else is left.
async fn comes_at_once(bench: &mut Bench, wants: &IsoWant, case: &str) {
    let began = Instant::now();
    let IsoState::Ready { file, reused, .. } = bench.settled(wants).await else {
        panic!("{case}: a failure was told")
    };
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{case}: {:?}",
        began.elapsed()
    );
    assert!(!reused, "{case}");
    assert_eq!(bench.store.files(), [file.path.to_string()], "{case}");
    assert_eq!(
        bench.counted("upload", false),
        0,
        "{case}: it is no failure"
    );
    assert_eq!((bench.opened(), bench.image.alive.now()), (2, 0), "{case}");
    assert_eq!(bench.image.bodies.load(Ordering::SeqCst), 0, "{case}");
}

#[tokio::test(start_paused = true)]
async fn another_source_does_not_wait_for_the_old_download() {
    let another = IsoWant {
        source_key: "another".to_owned(),
        ..want("a")
    };
    // The same source: the recall must cause no backoff.
    let forced = IsoWant {
        force_token: Some("1".to_owned()),
        ..want("a")
    };
    for holdup in Holdup::ALL {
        for wants in [&another, &forced] {
            let mut bench = Bench::new().await;
            holdup.begin(&bench).await;
            let case = format!("{holdup:?}, then {:?}", wants.force_token);
            comes_at_once(&mut bench, wants, &case).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_is_being_deleted_leaves_the_lane_to_others() {
    for holdup in Holdup::ALL {
        let mut bench = Bench::new().await;
        holdup.begin(&bench).await;
        let elsewhere = IsoWant {
            directory: DatastorePath::new("ds1", "other").expect("path"),
            ..want("b")
        };
        bench.ask(&elsewhere).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(bench.opened(), 1, "{holdup:?}: it waits for the lane");
        for _ in 0..2 {
            leave(&bench.cache(), &pool("a"));
        }
        comes_at_once(&mut bench, &elsewhere, &format!("{holdup:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_another_pool_wants_too_goes_on() {
    let mut bench = Bench::new().await;
    Holdup::SlowSource.begin(&bench).await;
    bench.ask(&want("b")).await;
    leave(&bench.cache(), &pool("a"));
    let another = IsoWant {
        source_key: "another".to_owned(),
        ..want("a")
    };
    bench.ask(&another).await;
    assert!(matches!(
        bench.settled(&want("b")).await,
        IsoState::Ready { reused: false, .. }
    ));
    bench.arrived(&another).await;
    assert_eq!(bench.opened(), 2, "the one that was under way, and another");
}

#[tokio::test(start_paused = true)]
async fn a_move_that_began_is_waited_for() {
    let mut bench = Bench::new().await;
    bench.store.fail(StoreFault::MoveHangs);
    let mut wants = want("a");
    let place = loop {
        match ensure(&bench.cache(), wants.clone()).await {
            Ok(IsoState::Publishing(place)) => break place,
            _ => bench.woken(&pool("a")).await,
        };
    };
    wants.listed.insert(place.path);
    bench.ask(&wants).await;
    let moves = |b: &Bench| b.store.count("move") == 1;
    bench.until("it is moved", moves).await;
    let another = IsoWant {
        source_key: "another".to_owned(),
        ..want("a")
    };
    let (file, reused) = bench.arrived(&another).await;
    assert!(reused, "the same bytes got their name before");
    assert_eq!(bench.store.files(), [file.path.to_string()]);
    assert_eq!(bench.counted("upload", true), 2, "both came to their end");
}
