//! A file that a person deleted: when the cache notices, and what pools learn of it.

use std::time::Duration;

use tokio::time::Instant;

use crate::iso::{
    ensure,
    msg::{IsoFile, IsoState, IsoWant},
    testing::{
        bench::{Bench, pool, want},
        image::SourceFault,
    },
};

const SECOND: Duration = Duration::from_secs(1);

/// What pool `a` wants while its record gives that file to its VMs.
fn using(file: &IsoFile) -> IsoWant {
    IsoWant {
        known: Some(file.clone()),
        used: Some(file.path.clone()),
        ..want("a")
    }
}

/// The same after its record gives them nothing.
fn using_nothing(file: &IsoFile) -> IsoWant {
    IsoWant {
        known: None,
        used: None,
        ..using(file)
    }
}

async fn told(bench: &Bench, want: &IsoWant) -> IsoState {
    let answer = ensure(&bench.cache(), want.clone()).await;
    answer.expect("an answer")
}

/// Asks until the answer is not only "on its way".
async fn outcome(bench: &mut Bench, want: &IsoWant) -> IsoState {
    loop {
        match told(bench, want).await {
            IsoState::Fetching { .. } => bench.woken(&want.pool).await,
            other => return other,
        };
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_needed_is_looked_at_before_its_time() {
    let mut bench = Bench::new().await;
    let (file, _) = bench.arrived(&want("a")).await;
    bench.store.with(|c| c.files.clear());
    *bench.image.pace.lock().expect("lock") = SECOND;
    let needing = IsoWant {
        look_within: Some(20 * SECOND),
        ..using(&file)
    };
    let looks = bench.store.count("stat");
    for _ in 0..19 {
        tokio::time::advance(SECOND).await;
        let there = told(&bench, &needing).await;
        assert!(matches!(there, IsoState::Ready { .. }), "{there:?}");
    }
    assert_eq!(bench.store.count("stat"), looks, "it was seen just before");
    while bench.wakes.try_recv().is_ok() {}
    tokio::time::advance(SECOND).await;
    let there = told(&bench, &needing).await;
    assert!(matches!(there, IsoState::Ready { .. }), "{there:?}");
    let began = Instant::now();
    bench.woken(&pool("a")).await;
    assert_eq!(began.elapsed(), Duration::ZERO);
    let lost = IsoState::Lost(file.path.clone());
    for _ in 0..2 {
        assert_eq!(told(&bench, &needing).await, lost, "until it is recorded");
    }
    // If the record gives it to no VM, there is nothing to take back.
    let other = IsoWant {
        pool: pool("b"),
        used: None,
        ..using(&file)
    };
    for want in [&other, &using_nothing(&file)] {
        let coming = told(&bench, want).await;
        assert!(matches!(coming, IsoState::Fetching { .. }), "{coming:?}");
    }
    let (back, reused) = bench.arrived(&using_nothing(&file)).await;
    assert_eq!((back.path, reused), (file.path, false));
    assert_eq!(bench.opened(), 2);
}

#[tokio::test(start_paused = true)]
async fn that_it_is_lost_is_told_before_why_it_does_not_come_back() {
    let mut bench = Bench::new().await;
    let (file, _) = bench.arrived(&want("a")).await;
    bench.kill().await;
    bench.restart().await;
    bench.store.with(|c| c.files.clear());
    bench.image.fail(SourceFault::Refuse);
    let lost = IsoState::Lost(file.path.clone());
    assert_eq!(outcome(&mut bench, &using(&file)).await, lost);
    let failed = |b: &Bench| b.counted("upload", false) == 1;
    bench.until("the first try fails", failed).await;
    assert_eq!(told(&bench, &using(&file)).await, lost);
    let IsoState::Failed(why) = outcome(&mut bench, &using_nothing(&file)).await else {
        panic!("its source refuses")
    };
    assert_eq!(why.reason, "ISONotFound".into());
    assert_eq!(bench.arrived(&using_nothing(&file)).await.0.path, file.path);
}
