//! Doubt about what the caches show: a watch had to list again although nobody asked for that.
//!
//! A watch lists again when the API server does not know its place any more (410). Mostly that is harmless. After a restore
//! of etcd from a backup it is the only sign: each kind lists again by itself, one after the other, so that for a moment the
//! caches mix two histories. So all kinds are listed again, each after that moment, and nothing is ended before.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

/// Whether the caches may mix two histories, and how often they may have.
#[derive(Debug, Default)]
pub struct Doubt {
    /// A list has begun that nobody asked for, and the others are not asked for yet.
    begun: AtomicBool,
    times: AtomicU64,
    told: Notify,
}

impl Doubt {
    /// A list begins that nobody asked for.
    pub fn begin(&self) {
        if !self.begun.swap(true, Ordering::AcqRel) {
            self.times.fetch_add(1, Ordering::Release);
            self.told.notify_one();
        }
    }

    /// All kinds are asked for from now on: the caches know what is missing.
    pub fn is_answered(&self) {
        self.begun.store(false, Ordering::Release);
    }

    /// Whether the other lists are not asked for yet.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    /// How often it began.
    #[must_use]
    pub fn times(&self) -> u64 {
        self.times.load(Ordering::Acquire)
    }

    /// Ends when it begins.
    pub async fn begins(&self) {
        while !self.has_begun() {
            self.told.notified().await;
        }
    }
}
