//! Counts what the operator asks for, whether it changes anything or not.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Counters of one world. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Traffic(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    reads: AtomicU64,
    watches: AtomicU64,
    writes: AtomicU64,
    calls: AtomicU64,
    refused: AtomicU64,
    waiting: AtomicU64,
    most_waiting: AtomicU64,
}

/// A request of the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A list, or a read of one object, from the API server.
    Read,
    /// The start of a watch of the API server.
    Watch,
    /// A write to the API server, other than to a Lease.
    Write,
    /// Any call to vCenter.
    Call,
    /// A try to reach a vCenter that is unreachable.
    Refused,
}

/// Number of requests so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Of [`Asked::Read`].
    pub reads: u64,
    /// Of [`Asked::Watch`].
    pub watches: u64,
    /// Of [`Asked::Write`].
    pub writes: u64,
    /// Of [`Asked::Call`].
    pub calls: u64,
    /// Of [`Asked::Refused`].
    pub refused: u64,
    /// The highest number of long polls at vCenter that were open at the same time.
    pub most_waiting: u64,
}

impl Counts {
    /// The requests since `before`. The number of long polls is the highest of the whole run.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            reads: self.reads - before.reads,
            watches: self.watches - before.watches,
            writes: self.writes - before.writes,
            calls: self.calls - before.calls,
            refused: self.refused - before.refused,
            most_waiting: self.most_waiting,
        }
    }
}

/// An open long poll.
pub struct Waiting(Traffic);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Traffic {
    /// Counts one request.
    pub fn count(&self, what: Asked) {
        let counter = match what {
            Asked::Read => &self.0.reads,
            Asked::Watch => &self.0.watches,
            Asked::Write => &self.0.writes,
            Asked::Call => &self.0.calls,
            Asked::Refused => &self.0.refused,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// A long poll begins. It ends when the result is dropped.
    #[must_use]
    pub fn wait(&self) -> Waiting {
        let open = self.0.waiting.fetch_add(1, Ordering::Relaxed) + 1;
        self.0.most_waiting.fetch_max(open, Ordering::Relaxed);
        Waiting(self.clone())
    }

    /// All counts.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            reads: of(&self.0.reads),
            watches: of(&self.0.watches),
            writes: of(&self.0.writes),
            calls: of(&self.0.calls),
            refused: of(&self.0.refused),
            most_waiting: of(&self.0.most_waiting),
        }
    }
}
