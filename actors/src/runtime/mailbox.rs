//! Counts the wakes and requests in an actor's mailbox. Mailboxes of ractor are unbounded and do not show their length. So
//! each message carries a token, which counts until the message is read or lost. Messages from an actor to itself do not
//! count.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use ractor::ActorRef;

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

    /// Wakes and requests that were sent and not read yet.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.depth.load(Ordering::Relaxed)
    }

    /// One more is sent.
    #[must_use]
    pub fn send(self: &Arc<Self>) -> Queued {
        self.depth.fetch_add(1, Ordering::Relaxed);
        self.instruments.queued(self.kind, 1);
        Queued(self.clone())
    }
}

/// A wake or request on its way.
pub struct Queued(Arc<Mailbox>);

impl Drop for Queued {
    fn drop(&mut self) {
        self.0.depth.fetch_sub(1, Ordering::Relaxed);
        self.0.instruments.queued(self.0.kind, -1);
    }
}

/// An actor, with the count of the messages in its mailbox.
pub struct Counted<M> {
    /// The actor.
    pub actor: ActorRef<M>,
    mailbox: Arc<Mailbox>,
}

impl<M> Counted<M> {
    /// The actor with its count.
    #[must_use]
    pub fn new(actor: ActorRef<M>, mailbox: Arc<Mailbox>) -> Self {
        Self { actor, mailbox }
    }

    /// The token of one more request.
    #[must_use]
    pub fn send(&self) -> Queued {
        self.mailbox.send()
    }

    /// Requests that were sent and not read yet.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.mailbox.depth()
    }
}

impl<M> Clone for Counted<M> {
    fn clone(&self) -> Self {
        Self::new(self.actor.clone(), self.mailbox.clone())
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
