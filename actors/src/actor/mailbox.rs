//! How many wakes are on their way to an actor. ractor's mailboxes are unbounded and do not tell their length; each wake
//! carries a token that is counted until it is read or lost.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use crate::ports::instruments::Instruments;

/// The count of one actor.
pub struct Mailbox {
    kind: &'static str,
    depth: AtomicUsize,
    instruments: Arc<dyn Instruments>,
}

impl Mailbox {
    /// An empty one.
    #[must_use]
    pub fn new(kind: &'static str, instruments: Arc<dyn Instruments>) -> Arc<Self> {
        Arc::new(Self {
            kind,
            depth: AtomicUsize::new(0),
            instruments,
        })
    }

    /// Wakes that were sent and not read.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.depth.load(Ordering::Relaxed)
    }

    /// One more wake is sent.
    #[must_use]
    pub fn send(self: &Arc<Self>) -> Queued {
        self.depth.fetch_add(1, Ordering::Relaxed);
        self.instruments.queued(self.kind, 1);
        Queued(self.clone())
    }
}

/// A wake on its way.
pub struct Queued(Arc<Mailbox>);

impl Drop for Queued {
    fn drop(&mut self) {
        self.0.depth.fetch_sub(1, Ordering::Relaxed);
        self.0.instruments.queued(self.0.kind, -1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::instruments::NoInstruments;

    #[test]
    fn a_wake_counts_until_it_is_read_or_lost() {
        let mailbox = Mailbox::new("vm", Arc::new(NoInstruments));
        let (first, second) = (mailbox.send(), mailbox.send());
        assert_eq!(mailbox.depth(), 2);
        drop(first);
        assert_eq!(mailbox.depth(), 1);
        drop(second);
        assert_eq!(mailbox.depth(), 0);
    }
}
