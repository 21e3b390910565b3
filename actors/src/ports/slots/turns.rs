//! Decides who gets the next slot. Pure.
//!
//! Guarantees:
//! - Creates have limits of their own, of the vCenter and of each datastore. So they leave slots for other work.
//! - While no removal runs, one slot is free for removals.
//! - A half-made VM continues before another VM begins.
//! - All other work takes turns by pool. A pool has two lines, one for what it begins and one for what it removes. The line
//!   that was served longest ago is next. So a burst of one pool does not delay another pool, and every request is served.

use std::{collections::BTreeMap, fmt};

use crate::domain::names::ObjectKey;

/// What a slot is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Errand {
    /// A VM is created.
    Create,
    /// A VM that exists is changed.
    Begin,
    /// A half-made VM continues.
    GoOn,
    /// A VM is powered off or destroyed.
    Remove,
}

/// A request that waits for a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What for.
    pub errand: Errand,
    /// For a VM of which pool.
    pub pool: ObjectKey,
    /// Id of the datastore on which a VM is created. Empty for other errands.
    pub datastore: String,
}

/// How many tasks may run at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// All, without the extra one for removals (`--max-concurrent-vcenter-tasks`).
    pub tasks: usize,
    /// Creates (`--max-concurrent-creates`).
    pub creates: usize,
    /// Creates on one datastore (`--max-concurrent-creates-per-datastore`).
    pub creates_per_datastore: usize,
}

impl Limits {
    /// At most `tasks`, whatever they are.
    #[must_use]
    pub const fn tasks(tasks: usize) -> Self {
        Self {
            tasks,
            creates: tasks,
            creates_per_datastore: tasks,
        }
    }
}

/// The limit that a create waits for, with its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cap {
    /// Creates in the vCenter.
    Creates(usize),
    /// Creates on the VM's datastore.
    Datastore(usize),
    /// All tasks in the vCenter.
    Tasks(usize),
}

impl fmt::Display for Cap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (limit, what, flag) = match self {
            Self::Creates(n) => (n, "creates", "--max-concurrent-creates"),
            Self::Datastore(n) => (
                n,
                "creates on a datastore",
                "--max-concurrent-creates-per-datastore",
            ),
            Self::Tasks(n) => (n, "tasks", "--max-concurrent-vcenter-tasks"),
        };
        write!(f, "may run {limit} {what} at once ({flag})")
    }
}

/// Which slot it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One of those that `--max-concurrent-vcenter-tasks` counts.
    Common,
    /// One of the same, for a VM that is created on the datastore with that id. The VM keeps it as a common one while it is
    /// half made ([`Turns::end_create`]).
    Create(String),
    /// The extra one, for removals only.
    Reserve,
}

/// The slots in use, and which lines were served.
#[derive(Clone, Debug)]
pub struct Turns {
    limits: Limits,
    common: usize,
    /// How many of the common ones are for creates, by datastore id.
    creates: BTreeMap<String, usize>,
    reserve: bool,
    /// By line: the number of the last slot that it got.
    served: BTreeMap<(ObjectKey, bool), u64>,
    given: u64,
    /// How many half-made VMs in a row got a slot while others waited.
    in_a_row: usize,
}

impl Turns {
    /// No slot in use.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            common: 0,
            creates: BTreeMap::new(),
            reserve: false,
            served: BTreeMap::new(),
            given: 0,
            in_a_row: 0,
        }
    }

    /// How many common slots are free.
    #[must_use]
    pub fn free(&self) -> usize {
        self.limits.tasks.saturating_sub(self.common)
    }

    /// Which request of `waiting`, in order of arrival, gets a slot now, and of which kind. `None`: no request gets one.
    #[must_use]
    pub fn next<'a>(
        &self,
        waiting: impl Iterator<Item = &'a Request> + Clone,
    ) -> Option<(usize, Kind)> {
        let places = || waiting.clone().enumerate();
        let removals = places().filter(|(_, r)| r.errand == Errand::Remove);
        if !self.reserve
            && let Some(at) = self.longest_ago(removals)
        {
            return Some((at, Kind::Reserve));
        }
        if self.free() == 0 {
            return None;
        }
        let others = places().filter(|(_, r)| r.errand != Errand::GoOn && self.leaves_room(r));
        let others = self.longest_ago(others);
        let half_made = places().find(|(_, r)| r.errand == Errand::GoOn);
        let half_made = half_made.map(|(at, _)| at);
        // At most as many in a row as there are slots: others get at least every second round.
        let first = half_made.filter(|_| self.in_a_row < self.limits.tasks || others.is_none());
        let at = first.or(others)?;
        let kind = waiting.clone().nth(at).map(|r| match r.errand {
            Errand::Create => Kind::Create(r.datastore.clone()),
            _ => Kind::Common,
        });
        Some((at, kind?))
    }

    /// The limits of creates allow the request.
    fn leaves_room(&self, request: &Request) -> bool {
        let all: usize = self.creates.values().sum();
        let there = self.creates.get(&request.datastore).copied();
        request.errand != Errand::Create
            || all < self.limits.creates
                && there.unwrap_or_default() < self.limits.creates_per_datastore
    }

    /// The limit that a create on that datastore waits for now. No number in it changes while it waits.
    #[must_use]
    pub fn cap(&self, datastore: &str) -> Cap {
        let limits = self.limits;
        let all: usize = self.creates.values().sum();
        let there = self.creates.get(datastore).copied().unwrap_or_default();
        let narrow = limits.creates_per_datastore < limits.creates;
        if narrow && there >= limits.creates_per_datastore {
            Cap::Datastore(limits.creates_per_datastore)
        } else if all < limits.creates && self.free() == 0 {
            Cap::Tasks(limits.tasks)
        } else {
            Cap::Creates(limits.creates)
        }
    }

    fn longest_ago<'a>(&self, lines: impl Iterator<Item = (usize, &'a Request)>) -> Option<usize> {
        // In one line the oldest request is first.
        let last = |r: &Request| self.served.get(&line(r)).copied().unwrap_or_default();
        lines.min_by_key(|(at, r)| (last(r), *at)).map(|(at, _)| at)
    }

    /// `request` got a slot of that kind. `others`: more requests wait.
    pub fn give(&mut self, request: &Request, kind: Kind, others: bool) {
        self.given += 1;
        match &kind {
            Kind::Common => self.common += 1,
            Kind::Create(datastore) => self.count(datastore),
            Kind::Reserve => self.reserve = true,
        }
        if request.errand == Errand::GoOn {
            self.in_a_row = if others { self.in_a_row + 1 } else { 0 };
            return;
        }
        if kind != Kind::Reserve {
            self.in_a_row = 0;
        }
        self.served.insert(line(request), self.given);
    }

    /// A create that already runs takes a slot by itself, beyond the limits if needed.
    pub fn count(&mut self, datastore: &str) {
        self.common += 1;
        *self.creates.entry(datastore.to_owned()).or_default() += 1;
    }

    /// A create on that datastore has ended. The VM still has its slot.
    pub fn end_create(&mut self, datastore: &str) {
        let there = self.creates.get(datastore).copied().unwrap_or_default();
        if there > 1 {
            self.creates.insert(datastore.to_owned(), there - 1);
        } else {
            self.creates.remove(datastore);
        }
    }

    /// A slot comes back. `waited_for`: some request waits.
    pub fn take_back(&mut self, kind: Kind, waited_for: bool) {
        match kind {
            Kind::Common => self.common = self.common.saturating_sub(1),
            Kind::Create(datastore) => {
                self.common = self.common.saturating_sub(1);
                self.end_create(&datastore);
            }
            Kind::Reserve => self.reserve = false,
        }
        if self.common == 0 && !self.reserve && !waited_for {
            // After an idle time all lines are equal.
            self.served.clear();
        }
    }
}

fn line(request: &Request) -> (ObjectKey, bool) {
    (request.pool.clone(), request.errand == Errand::Remove)
}

#[cfg(test)]
mod tests;
