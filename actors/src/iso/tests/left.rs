//! Pools that have left a datastore: their files there are removed, unless something needs them.

use std::time::Duration;

use crate::{
    domain::names::DatastorePath,
    iso::{
        clear,
        flight::SETTLE,
        msg::{IsoState, IsoWant},
        retention::PruneNews,
        testing::{
            bench::{Bench, path, pool, want},
            image::{CHUNK, SourceFault},
            store::Stored,
        },
    },
};

fn old(n: u8) -> DatastorePath {
    path(&format!("{n:064x}.iso"))
}

async fn news(bench: &Bench, left: &IsoWant) -> PruneNews {
    clear(&bench.cache(), left.clone())
        .await
        .expect("an answer")
}

#[tokio::test(start_paused = true)]
async fn what_a_pool_has_left_goes_unless_somebody_needs_it() {
    let mut bench = Bench::new().await;
    // An earlier actor died while it wrote to the pool's former datastore.
    bench.image.fail(SourceFault::Stall(3 * CHUNK));
    bench.ask(&want("a")).await;
    bench
        .until("a part of it is there", |b| b.store.files().len() == 1)
        .await;
    bench.kill().await;
    tokio::time::advance(Duration::from_secs(1)).await;
    bench.restart().await;
    let neighbour = IsoWant {
        directory: DatastorePath::new("ds1", "other").expect("path"),
        ..want("b")
    };
    let (shared, _) = bench.arrived(&neighbour).await;
    for file in [&old(1), &old(2), &path("rescue.iso")] {
        bench
            .store
            .with(|c| c.files.insert(file.to_string(), Stored::of_size(1)));
    }
    bench.store.with(|c| c.mounted = vec![old(2).to_string()]);
    let mut left = IsoWant {
        prunable: vec![old(1), old(2), shared.path.clone()],
        ..want("a")
    };
    tokio::time::advance(SETTLE - Duration::from_secs(2)).await;
    for _ in 0..2 {
        assert_eq!(news(&bench, &left).await, PruneNews::default());
        assert_eq!(
            bench.store.count("mounted_isos"),
            0,
            "others may rely on it"
        );
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    let (mut gone, mut kept) = PruneNews::default();
    while gone.len() + kept.len() < 3 {
        let (more_gone, more_kept) = news(&bench, &left).await;
        if more_gone.is_empty() && more_kept.is_empty() {
            bench.woken(&left.pool).await;
        }
        gone.extend(more_gone);
        kept.extend(more_kept);
    }
    kept.sort();
    assert_eq!(gone, [old(1)]);
    let why = [
        (old(2), "VM vm-0 has it in its CD-ROM drive".to_owned()),
        (shared.path.clone(), "pool ns/b uses it".to_owned()),
    ];
    assert_eq!(kept, why);
    let mut rest = [old(2), path("rescue.iso"), shared.path.clone()].map(|p| p.to_string());
    rest.sort();
    assert_eq!(
        bench.store.files(),
        rest,
        "what the dead life left goes as well"
    );
    // It is reported once, and tried again. A removed file is no longer listed.
    left.prunable.remove(0);
    assert_eq!(news(&bench, &left).await, PruneNews::default());
    bench.store.with(|c| c.mounted.clear());
    for _ in 0..9 {
        tokio::time::advance(Duration::from_secs(60)).await;
        bench.arrived(&neighbour).await;
        assert_eq!(news(&bench, &left).await, PruneNews::default());
    }
    tokio::time::advance(Duration::from_secs(61)).await;
    bench.arrived(&neighbour).await;
    while bench.wakes.try_recv().is_ok() {}
    news(&bench, &left).await;
    bench.woken(&left.pool).await;
    assert_eq!(news(&bench, &left).await, (vec![old(2)], vec![]));
    assert_eq!(bench.opened(), 2, "nothing is fetched for who has left");
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_comes_back_keeps_what_it_finds() {
    let mut bench = Bench::new().await;
    let (file, _) = bench.arrived(&want("a")).await;
    tokio::time::advance(SETTLE).await;
    // The lane is taken, so that the removal has to wait.
    *bench.image.pace.lock().expect("lock") = Duration::from_secs(2);
    let neighbour = IsoWant {
        directory: DatastorePath::new("ds1", "other").expect("path"),
        ..want("b")
    };
    bench.ask(&neighbour).await;
    let left = IsoWant {
        prunable: vec![file.path.clone()],
        source_key: "another".to_owned(),
        ..want("a")
    };
    assert_eq!(news(&bench, &left).await, PruneNews::default());
    let waits = IsoState::Queued(pool("b"));
    assert_eq!(bench.ask(&want("a")).await, waits);
    bench.arrived(&neighbour).await;
    let (again, reused) = bench.arrived(&want("a")).await;
    assert!(reused && again.path == file.path, "it lay there still");
}

#[tokio::test(start_paused = true)]
async fn what_a_pool_wanted_here_itself_holds_nothing_back() {
    let mut bench = Bench::new().await;
    let (file, _) = bench.arrived(&want("a")).await;
    tokio::time::advance(SETTLE).await;
    let left = IsoWant {
        prunable: vec![file.path.clone()],
        source_key: "another".to_owned(),
        ..want("a")
    };
    assert_eq!(news(&bench, &left).await, PruneNews::default());
    bench.woken(&left.pool).await;
    assert_eq!(news(&bench, &left).await, (vec![file.path], vec![]));
}
