//! In-memory ports for the ISO cache's tests, and a bench that runs the real actor on them. All time is virtual.

pub(super) mod bench;
pub(super) mod image;
pub(super) mod store;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use agent_forge_crds::{conditions::Reason, pool::RefusedCredentials};
use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use tokio::{sync::mpsc, time::Instant};

use crate::{
    domain::{
        failure::{ErrorSource, ReconcileError},
        names::ObjectKey,
    },
    ports::{
        clock::Clock,
        instruments::{Instruments, PoolGauges},
        sessions::{Sessions, Waker},
        vcenter::VCenter,
    },
};

/// Follows tokio's (paused) time.
pub(super) struct TestClock {
    start: Instant,
}

impl TestClock {
    pub(super) fn new() -> Self {
        Self {
            start: Instant::now(),
        }
    }
}

impl Clock for TestClock {
    fn wall(&self) -> Timestamp {
        let base: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
        base + SignedDuration::try_from(self.monotonic()).expect("a span")
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}

/// Sessions by Secret. A Secret without one is refused.
#[derive(Default)]
pub(super) struct TestSessions(pub(super) Mutex<BTreeMap<ObjectKey, Arc<dyn VCenter>>>);

#[async_trait]
impl Sessions for TestSessions {
    async fn session(
        &self,
        secret: &ObjectKey,
        _: &str,
    ) -> Result<Arc<dyn VCenter>, ReconcileError> {
        let known = self.0.lock().expect("lock").get(secret).cloned();
        known.ok_or_else(|| {
            ReconcileError::blocked(
                ErrorSource::Vsphere,
                Reason::InvalidCredentials,
                format!("Secret {secret} is refused"),
            )
        })
    }

    async fn refusal(&self, _: &ObjectKey) -> Option<RefusedCredentials> {
        None
    }
}

/// Hands wakes to the test, with their time.
pub(super) struct TestWaker(pub(super) mpsc::UnboundedSender<(ObjectKey, Instant)>);

impl Waker for TestWaker {
    fn wake_pool(&self, pool: &ObjectKey, reason: &'static str) {
        assert_eq!(reason, "iso");
        let _ = self.0.send((pool.clone(), Instant::now()));
    }
}

/// Counts ISO operations, and keeps the last report about the transfer under way.
#[derive(Default)]
pub(super) struct TestInstruments(
    pub(super) Mutex<BTreeMap<(&'static str, bool), u32>>,
    pub(super) Mutex<Option<(u64, u64)>>,
);

impl Instruments for TestInstruments {
    fn pool(&self, _: &ObjectKey, _: &PoolGauges) {}
    fn drop_pool(&self, _: &ObjectKey) {}
    fn vm_operation(&self, _: &'static str, _: bool) {}
    fn iso_operation(&self, operation: &'static str, success: bool) {
        *self
            .0
            .lock()
            .expect("lock")
            .entry((operation, success))
            .or_default() += 1;
    }
    fn iso_transfer(&self, _: &str, progress: Option<(u64, u64)>) {
        *self.1.lock().expect("lock") = progress;
    }
    fn actors(&self, _: &'static str, _: i64) {}
    fn restarted(&self, _: &'static str) {}
}
