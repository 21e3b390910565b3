//! Slots for tasks in flight on one vCenter: new ones wait for theirs, those that run already are counted.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{AcquireError, Semaphore};

/// The slots of one vCenter; clones share them.
#[derive(Clone, Debug)]
pub struct Slots(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    free: Semaphore,
    /// Slots in use beyond the bound: as many that come back are not given out again.
    beyond: Mutex<usize>,
}

/// A task in flight: its slot comes back when this is dropped.
pub struct Slot(Slots);

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Slot")
    }
}

impl Slots {
    /// Bounds new tasks at `max`.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self(Arc::new(Shared {
            free: Semaphore::new(max),
            beyond: Mutex::default(),
        }))
    }

    /// A slot for a task that is about to begin; first come, first served.
    ///
    /// # Errors
    /// Never: the slots are not closed.
    pub async fn take(&self) -> Result<Slot, AcquireError> {
        self.0.free.acquire().await?.forget();
        Ok(Slot(self.clone()))
    }

    /// The slot of a task that runs already, so that it has to be counted, wait or not: where none is free, no new task
    /// begins before one more has ended.
    #[must_use]
    pub fn count(&self) -> Slot {
        let mut beyond = self.beyond();
        match self.0.free.try_acquire() {
            Ok(free) => free.forget(),
            Err(_) => *beyond += 1,
        }
        drop(beyond);
        Slot(self.clone())
    }

    /// How many tasks may begin now.
    #[must_use]
    pub fn free(&self) -> usize {
        self.0.free.available_permits()
    }

    fn beyond(&self) -> MutexGuard<'_, usize> {
        self.0.beyond.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut beyond = self.0.beyond();
        if *beyond > 0 {
            *beyond -= 1;
        } else {
            self.0.0.free.add_permits(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn begins(slots: &Slots) -> Option<Slot> {
        slots.take().now_or_never().and_then(Result::ok)
    }

    #[test]
    fn so_many_begin_and_the_next_when_one_has_ended() {
        let slots = Slots::new(2);
        let one = begins(&slots);
        let two = begins(&slots);
        assert!(one.is_some() && two.is_some());
        assert!(begins(&slots).is_none());
        drop(one);
        assert!(begins(&slots).is_some());
    }

    #[test]
    fn what_runs_already_waits_for_nobody_and_keeps_others_waiting() {
        let slots = Slots::new(2);
        let old: Vec<Slot> = (0..3).map(|_| slots.count()).collect();
        let mut old = old.into_iter();
        drop(old.next());
        assert!(begins(&slots).is_none(), "two still run");
        drop(old.next());
        let new = begins(&slots);
        assert!(new.is_some(), "one runs");
        assert!(begins(&slots).is_none(), "two run");
        drop((old, new));
        assert_eq!(slots.free(), 2);
    }

    #[test]
    fn who_has_waited_gets_the_slot_that_comes_back() {
        let slots = Slots::new(1);
        let old = (slots.count(), slots.count());
        let mut waits = Box::pin(slots.take());
        assert!((&mut waits).now_or_never().is_none());
        drop(old.0);
        assert!((&mut waits).now_or_never().is_none(), "one still runs");
        drop(old.1);
        assert!(waits.now_or_never().is_some_and(|slot| slot.is_ok()));
    }
}
