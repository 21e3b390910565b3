//! Who gets the next slot. Pure.
//!
//! Guarantees: while nothing is removed, one slot waits for removals. A VM that is half made goes on before another is begun.
//! Everything else takes turns, by pool: what a pool begins is one line, what it removes another, and the line that was
//! served longest ago is next. So nobody waits for a burst of somebody else's, and nobody waits for ever.

use std::collections::BTreeMap;

use crate::domain::names::ObjectKey;

/// What a slot is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Errand {
    /// A VM is begun, or one that has stood for long is changed.
    Begin,
    /// A VM that is half made goes on.
    GoOn,
    /// A VM is switched off or destroyed.
    Remove,
}

/// One that waits for a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What for.
    pub errand: Errand,
    /// For a VM of which pool.
    pub pool: ObjectKey,
}

/// Which slot it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One of those that `--max-concurrent-vcenter-tasks` counts.
    Common,
    /// The one beside them, for removals alone.
    Reserve,
}

/// The slots in use, and who has had a turn.
#[derive(Clone, Debug)]
pub struct Turns {
    most: usize,
    common: usize,
    reserve: bool,
    /// By line: number of the slot that it got last.
    served: BTreeMap<(ObjectKey, bool), u64>,
    given: u64,
    /// So many in a row went on while others waited.
    in_a_row: usize,
}

impl Turns {
    /// None in use; `most` common ones at once.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            most,
            common: 0,
            reserve: false,
            served: BTreeMap::new(),
            given: 0,
            in_a_row: 0,
        }
    }

    /// How many common slots are free.
    #[must_use]
    pub fn free(&self) -> usize {
        self.most.saturating_sub(self.common)
    }

    /// Who of `waiting`, in the order in which they came, gets a slot now, and which; `None`: nobody.
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
        let others = self.longest_ago(places().filter(|(_, r)| r.errand != Errand::GoOn));
        let half_made = places().find(|(_, r)| r.errand == Errand::GoOn);
        let half_made = half_made.map(|(at, _)| at);
        // As many as there are slots: others get at least every second round.
        let first = half_made.filter(|_| self.in_a_row < self.most || others.is_none());
        first.or(others).map(|at| (at, Kind::Common))
    }

    fn longest_ago<'a>(&self, lines: impl Iterator<Item = (usize, &'a Request)>) -> Option<usize> {
        // Of one line the first that came: the least of equals.
        let last = |r: &Request| self.served.get(&line(r)).copied().unwrap_or_default();
        lines.min_by_key(|(at, r)| (last(r), *at)).map(|(at, _)| at)
    }

    /// `request` got a slot of that kind; whether others wait yet.
    pub fn give(&mut self, request: &Request, kind: Kind, others: bool) {
        self.given += 1;
        match kind {
            Kind::Common => self.common += 1,
            Kind::Reserve => self.reserve = true,
        }
        if request.errand == Errand::GoOn {
            self.in_a_row = if others { self.in_a_row + 1 } else { 0 };
            return;
        }
        if kind == Kind::Common {
            self.in_a_row = 0;
        }
        self.served.insert(line(request), self.given);
    }

    /// One that nobody gave is in use: a task that runs already, beyond the bound where it has to be.
    pub fn count(&mut self) {
        self.common += 1;
    }

    /// One comes back; whether anybody waits.
    pub fn take_back(&mut self, kind: Kind, waited_for: bool) {
        match kind {
            Kind::Common => self.common = self.common.saturating_sub(1),
            Kind::Reserve => self.reserve = false,
        }
        if self.common == 0 && !self.reserve && !waited_for {
            // After a rest all are equal.
            self.served.clear();
        }
    }
}

fn line(request: &Request) -> (ObjectKey, bool) {
    (request.pool.clone(), request.errand == Errand::Remove)
}

#[cfg(test)]
mod tests;
