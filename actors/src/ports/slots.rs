//! Slots for running tasks on one vCenter. New tasks wait for a slot; tasks that already run are counted.
//!
//! [`turns`] decides which task is next. One slot beyond the limit is for removals only.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use self::turns::{Cap, Errand, Kind, Limits, Request, Turns};
use crate::domain::names::ObjectKey;

pub mod turns;

/// The slots of one vCenter; clones share them.
#[derive(Clone, Debug)]
pub struct Slots(Arc<Mutex<Office>>);

#[derive(Debug)]
struct Office {
    turns: Turns,
    /// In order of arrival.
    waiting: BTreeMap<u64, Waiter>,
    came: u64,
}

#[derive(Debug)]
struct Waiter {
    request: Request,
    desk: Arc<Desk>,
}

/// The place where a waiter picks up its slot.
#[derive(Debug, Default)]
struct Desk {
    slot: Mutex<Option<Slot>>,
    ready: Notify,
}

/// A task in flight: its slot comes back when this is dropped.
pub struct Slot {
    slots: Slots,
    kind: Mutex<Kind>,
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Slot").field(&*locked(&self.kind)).finish()
    }
}

impl Slot {
    /// Whether the slot may be used for that.
    #[must_use]
    pub fn serves(&self, errand: Errand) -> bool {
        match &*locked(&self.kind) {
            Kind::Create(_) => true,
            Kind::Common => errand != Errand::Create,
            Kind::Reserve => errand == Errand::Remove,
        }
    }

    /// The create has ended. The VM keeps the slot, and the limits of creates do not count it any more.
    pub fn end_create(&self) {
        let mut kind = locked(&self.kind);
        let Kind::Create(datastore) = &*kind else {
            return;
        };
        self.slots.office().turns.end_create(datastore);
        *kind = Kind::Common;
        drop(kind);
        self.slots.give_out();
    }
}

/// A place in the line, or a slot that was not fetched yet. A dropped ticket gives both back.
#[derive(Debug)]
pub struct Ticket {
    slots: Slots,
    number: u64,
    errand: Errand,
    desk: Arc<Desk>,
}

impl Ticket {
    /// What the slot is wanted for.
    #[must_use]
    pub fn errand(&self) -> Errand {
        self.errand
    }

    /// The slot, if it is there.
    #[must_use]
    pub fn fetch(&self) -> Option<Slot> {
        locked(&self.desk.slot).take()
    }

    /// Waits for the slot. A cancelled wait keeps its place in the line.
    pub async fn granted(&self) -> Slot {
        loop {
            if let Some(slot) = self.fetch() {
                return slot;
            }
            self.desk.ready.notified().await;
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.slots.office().waiting.remove(&self.number);
        // A slot that came in the meantime is given back with its desk.
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Slots {
    /// Limits new tasks, and removals to one more.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self(Arc::new(Mutex::new(Office {
            turns: Turns::new(limits),
            waiting: BTreeMap::new(),
            came: 0,
        })))
    }

    /// Asks for a slot, for a VM of that pool.
    #[must_use]
    pub fn ask(&self, errand: Errand, pool: &ObjectKey) -> Ticket {
        self.request(Request {
            errand,
            pool: pool.clone(),
            datastore: String::new(),
        })
    }

    /// Asks for a slot to create a VM of that pool on the datastore with that id.
    #[must_use]
    pub fn ask_create(&self, pool: &ObjectKey, datastore: &str) -> Ticket {
        self.request(Request {
            errand: Errand::Create,
            pool: pool.clone(),
            datastore: datastore.to_owned(),
        })
    }

    fn request(&self, request: Request) -> Ticket {
        let errand = request.errand;
        let desk = Arc::<Desk>::default();
        let number = {
            let mut office = self.office();
            office.came += 1;
            let waiter = Waiter {
                request,
                desk: Arc::clone(&desk),
            };
            let number = office.came;
            office.waiting.insert(number, waiter);
            number
        };
        self.give_out();
        Ticket {
            slots: self.clone(),
            number,
            errand,
            desk,
        }
    }

    /// The slot of a create that already runs on the datastore with that id. It counts at once, even beyond the limits. Then
    /// no new task begins before one more task has ended.
    #[must_use]
    pub fn count(&self, datastore: &str) -> Slot {
        self.office().turns.count(datastore);
        self.slot(Kind::Create(datastore.to_owned()))
    }

    /// How many tasks may begin now, without the removals' extra slot.
    #[must_use]
    pub fn free(&self) -> usize {
        self.office().turns.free()
    }

    /// How many creates of that pool wait, and the limit that the first of them waits for. `None`: none waits.
    #[must_use]
    pub fn line(&self, pool: &ObjectKey) -> Option<(usize, Cap)> {
        let office = self.office();
        let all = office.waiting.values().map(|w| &w.request);
        let mut creates = all.filter(|r| r.errand == Errand::Create && r.pool == *pool);
        let cap = office.turns.cap(&creates.next()?.datastore);
        Some((1 + creates.count(), cap))
    }

    fn slot(&self, kind: Kind) -> Slot {
        Slot {
            slots: self.clone(),
            kind: Mutex::new(kind),
        }
    }

    fn office(&self) -> MutexGuard<'_, Office> {
        locked(&self.0)
    }

    /// Gives free slots to the next waiters.
    fn give_out(&self) {
        loop {
            let Some((desk, kind)) = self.office().next() else {
                return;
            };
            *locked(&desk.slot) = Some(self.slot(kind));
            desk.ready.notify_one();
        }
    }
}

impl Office {
    fn next(&mut self) -> Option<(Arc<Desk>, Kind)> {
        let (place, kind) = self.turns.next(self.waiting.values().map(|w| &w.request))?;
        let number = *self.waiting.keys().nth(place)?;
        let waiter = self.waiting.remove(&number)?;
        let others = !self.waiting.is_empty();
        self.turns.give(&waiter.request, kind.clone(), others);
        Some((waiter.desk, kind))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut office = self.slots.office();
        let waited_for = !office.waiting.is_empty();
        office
            .turns
            .take_back(locked(&self.kind).clone(), waited_for);
        drop(office);
        self.slots.give_out();
    }
}

#[cfg(test)]
mod tests;
