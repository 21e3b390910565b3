//! A pool that people pause: its ISO, its conditions, and when it goes on.

use agent_forge_crds::{
    conditions::{ISO_READY, PAUSED, Reason},
    names::PAUSED_ANNOTATION,
};
use kube::ResourceExt as _;

use super::*;
use crate::domain::upstream::{Pausable, PausableKind};

struct Passes {
    bench: Bench,
    isos: Arc<Told>,
    memory: Memory,
}

impl Passes {
    /// A pool without an ISO, whose transfer is under way.
    async fn begun() -> Self {
        let bench = Bench::new();
        bench.hub.with(|o| {
            o.version = 10;
            o.child = None;
            let status = o.pool.as_mut().and_then(|p| p.status.as_mut());
            status.expect("a status").iso = None;
        });
        let fetching = IsoState::Fetching {
            done: 1,
            total: Some(2),
            rate: None,
        };
        let mut passes = Self {
            bench,
            isos: Told::new(fetching),
            memory: Memory::default(),
        };
        passes.next().await;
        assert_eq!(passes.asked(), (1, 0));
        passes
    }

    async fn next(&mut self) -> Verdict {
        let key = ObjectKey::new(NAMESPACE, POOL);
        let memory = std::mem::take(&mut self.memory);
        let (context, isos) = (self.bench.context.clone(), self.isos.clone());
        let (memory, verdict) = run(context, isos, key, memory).await;
        self.memory = memory;
        verdict
    }

    /// How often the cache was asked for the ISO, and how often a transfer was called off.
    fn asked(&self) -> (usize, usize) {
        let asked = self.isos.urls.lock().expect("lock").len();
        (asked, *self.isos.left.lock().expect("lock"))
    }

    /// Status and reason of a condition.
    fn says(&self, type_: &str) -> Option<(String, String)> {
        let pool = self.bench.hub.with(|o| o.pool.clone()).expect("a pool");
        let status = pool.status.expect("a status");
        let said = find_condition(&status.conditions, type_);
        said.map(|c| (c.status.clone(), c.reason.clone()))
    }
}

fn word(status: &str, reason: Reason) -> Option<(String, String)> {
    Some((status.to_owned(), reason.to_string()))
}

#[tokio::test]
async fn a_transfer_is_called_off_once_and_begins_again_after_the_pause() {
    let mut pool = Passes::begun().await;
    pool.bench.hub.with(|o| {
        let paused = (PAUSED_ANNOTATION.to_owned(), "true".to_owned());
        let pool = o.pool.as_mut().expect("a pool");
        pool.annotations_mut().extend([paused]);
    });
    for _ in 0..3 {
        let verdict = pool.next().await;
        assert_eq!(verdict.failure, None);
        assert_eq!(pool.asked(), (1, 1));
    }
    assert_eq!(pool.says(PAUSED), word("True", Reason::Paused));
    assert_eq!(pool.says(ISO_READY), word("False", Reason::Paused));
    pool.bench.hub.with(|o| {
        let pool = o.pool.as_mut().expect("a pool");
        pool.annotations_mut().remove(PAUSED_ANNOTATION);
    });
    pool.next().await;
    assert_eq!(pool.asked(), (2, 1));
    assert_eq!(pool.says(PAUSED), None);
}

#[tokio::test]
async fn a_pause_until_a_time_wakes_its_pool() {
    let mut pool = Passes::begun().await;
    let hour = Duration::from_secs(3600);
    let until = pool.bench.context.clock.wall().checked_add(hour);
    pool.bench.hub.with(|o| {
        let hosted = Pausable {
            key: ObjectKey::new(NAMESPACE, "demo"),
            cluster: None,
            annotated: false,
            paused: false,
            paused_until: Some(until.expect("in range").to_string()),
        };
        o.pausables.push((PausableKind::HostedCluster, hosted));
    });
    // Nothing else is due after the first pass.
    pool.next().await;
    pool.bench.turn(hour - Duration::from_secs(1));
    let verdict = pool.next().await;
    assert_eq!(pool.says(PAUSED), word("True", Reason::Paused));
    assert!(verdict.again <= Some(Duration::from_secs(1)), "{verdict:?}");
    pool.bench.turn(Duration::from_secs(1));
    pool.next().await;
    assert_eq!(pool.says(PAUSED), None);
    assert_eq!(pool.asked(), (2, 1));
}
