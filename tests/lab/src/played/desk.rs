//! A work queue of keys, the loop of every played controller.
//!
//! A change wakes a key, now or later. The loop runs one pass per woken key, and the pass returns when it wants to run
//! again. Guarantees: there are never two passes of one key at once. A key that is woken during its pass runs again.
//! Several wakes result in one pass. Assumption: a pass reads everything again, and may be repeated safely.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::Result;
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use tokio::{sync::Notify, time::Instant};

use super::{
    mirror::{Change, Mirror},
    refusal,
    task::Task,
};

/// Pause before a pass is repeated after it met a stale object. The mirror is up to date by then.
const STALE_RETRY: Duration = Duration::from_millis(25);
/// Pause before a pass is repeated after another failure.
const FAILED_RETRY: Duration = Duration::from_secs(1);

/// A controller: one pass over one key.
pub trait Player: Send + Sync + 'static {
    /// Reads everything about `key` and acts. Returns when to run again if nothing changes.
    fn pass(&self, key: &str) -> impl Future<Output = Result<Option<Duration>>> + Send;
}

/// The woken keys and their due times. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Desk(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    due: Mutex<Due>,
    changed: Notify,
}

/// When each key is due: by key, and in the order of time.
#[derive(Debug, Default)]
struct Due {
    keys: BTreeMap<String, Instant>,
    order: BTreeSet<(Instant, String)>,
}

impl Due {
    /// Makes the key due at `when`, unless it is due earlier.
    fn wake(&mut self, key: &str, when: Instant) {
        let known = self.keys.get(key).copied();
        if known.is_some_and(|known| known <= when) {
            return;
        }
        if let Some(known) = known {
            self.order.remove(&(known, key.to_owned()));
        }
        self.keys.insert(key.to_owned(), when);
        self.order.insert((when, key.to_owned()));
    }

    fn take(&mut self, when: Instant, key: &str) {
        self.keys.remove(key);
        self.order.remove(&(when, key.to_owned()));
    }
}

impl Desk {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, Due> {
        self.0.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a pass over `key` as soon as possible.
    pub fn wake(&self, key: &str) {
        self.wake_at(key, Instant::now());
    }

    /// Runs a pass over `key` at `when`, or earlier if it is woken earlier.
    pub fn wake_at(&self, key: &str, when: Instant) {
        self.lock().wake(key, when);
        self.0.changed.notify_one();
    }

    /// Wakes the keys that `keys` returns for each change of `mirror`, beginning with all its present objects.
    #[must_use]
    pub fn follow<F, I>(&self, mirror: &Mirror, keys: F) -> Task
    where
        F: Fn(&Change) -> I + Send + 'static,
        I: IntoIterator<Item = String>,
    {
        let desk = self.clone();
        let mut changes = mirror.changes();
        Task::spawn(async move {
            while let Some(change) = changes.recv().await {
                for key in keys(&change) {
                    desk.wake(&key);
                }
            }
        })
    }

    /// Takes a key that is due and not in `busy`. Otherwise returns when the next one is due.
    fn take(&self, busy: &BTreeSet<String>) -> Result<String, Option<Instant>> {
        let now = Instant::now();
        let mut due = self.lock();
        let mut idle = due.order.iter().filter(|(_, key)| !busy.contains(key));
        match idle.next().cloned() {
            Some((when, key)) if when <= now => {
                due.take(when, &key);
                Ok(key)
            }
            Some((when, _)) => Err(Some(when)),
            None => Err(None),
        }
    }

    /// Runs passes, at most `width` at once, until the returned handle is dropped.
    #[must_use]
    pub fn work<P: Player>(&self, player: Arc<P>, width: usize) -> Task {
        Task::spawn(self.clone().run(player, width))
    }

    async fn run<P: Player>(self, player: Arc<P>, width: usize) {
        let mut busy = BTreeSet::new();
        let mut passes: FuturesUnordered<BoxFuture<'static, (String, Result<Option<Duration>>)>> =
            FuturesUnordered::new();
        loop {
            let mut next = None;
            while busy.len() < width {
                match self.take(&busy) {
                    Ok(key) => {
                        busy.insert(key.clone());
                        let player = player.clone();
                        passes.push(
                            async move {
                                let outcome = player.pass(&key).await;
                                (key, outcome)
                            }
                            .boxed(),
                        );
                    }
                    Err(when) => {
                        next = when;
                        break;
                    }
                }
            }
            tokio::select! {
                biased;
                Some((key, outcome)) = passes.next(), if !passes.is_empty() => {
                    busy.remove(&key);
                    if let Some(wait) = after(&key, outcome) {
                        self.wake_at(&key, Instant::now() + wait);
                    }
                }
                () = self.0.changed.notified() => {}
                () = tokio::time::sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
            }
        }
    }
}

fn after(key: &str, outcome: Result<Option<Duration>>) -> Option<Duration> {
    match outcome {
        Ok(wait) => wait,
        Err(error) if refusal::is_stale(&error) => Some(STALE_RETRY),
        Err(error) => {
            tracing::warn!(%key, error = %format!("{error:#}"), "played part failed, will try again");
            Some(FAILED_RETRY)
        }
    }
}
