//! What starts: looks beside the mailbox, and one mutating flight at a time.

use std::{collections::BTreeMap, time::Duration};

use agent_forge_crds::conditions::reason;

use super::{Content, FlightTable, Input, Keep, Look, Phase, Running, SETTLE, Start, Task, Work};
use crate::{
    domain::names::{DatastorePath, ObjectKey},
    iso::msg::{IsoFile, IsoWant, Wanted},
};

impl FlightTable {
    /// Starts looking for `file`, for the pool whose turn it is; `source`: at what the source has, too.
    pub(super) fn check(
        &mut self,
        content: &Content,
        file: IsoFile,
        source: bool,
    ) -> Option<Start> {
        let id = self.id();
        let entry = self.entries.get_mut(content)?;
        let want = entry.next_flight()?;
        match &mut entry.phase {
            Phase::Ready { checking, .. } => *checking = true,
            phase => *phase = Phase::Checking,
        }
        let look = Look {
            sha256: file.sha256.clone(),
            path: file.path.clone(),
            content: content.clone(),
            pool: want.pool.clone(),
            input: Input::of(&want),
            source,
        };
        self.checks.insert(id, look);
        Some(Start {
            id,
            want,
            task: Task::Check(file, source),
            wanted: Wanted::default(),
        })
    }

    pub(super) fn enqueue(&mut self, content: &Content) {
        if let Some(entry) = self.entries.get_mut(content) {
            entry.phase = Phase::Queued;
            self.queue.push_back(Work::Transfer(content.clone()));
        }
    }

    pub(super) fn offer_prune(&mut self, content: &Content, pool: &ObjectKey, now: Duration) {
        let (full, settled) = (self.is_short_of_space(content), self.is_settled(now));
        let Some(entry) = self.entries.get_mut(content) else {
            return;
        };
        if !entry.is_ready() && !full {
            return;
        }
        let goes = entry.lets_go(pool);
        if settled
            && let Some(interest) = entry.wants.get_mut(pool)
            && interest.prune.due(&goes, now)
        {
            interest.prune.queued = true;
            self.queue
                .push_back(Work::Prune(content.clone(), pool.clone()));
        }
    }

    /// Every pool had the time to say what it relies on.
    pub(super) fn is_settled(&self, now: Duration) -> bool {
        self.first_ask
            .is_some_and(|at| now.saturating_sub(at) >= SETTLE)
    }

    /// Starts the next mutating flight if none runs.
    pub(super) fn launch(&mut self, now: Duration) -> Option<Start> {
        while self.running.is_none() {
            let work = self.queue.pop_front()?;
            let id = self.id();
            let started = match &work {
                Work::Transfer(content) => self
                    .launch_transfer(content)
                    .map(|want| (want, Task::Transfer)),
                Work::Prune(content, pool) => self.launch_prune(content, pool, now),
                Work::Clear(pool) => self.launch_clear(pool, now),
            };
            if let Some((want, task)) = started {
                let (keep, wanted) = Wanted::pair();
                self.running = Some(Running {
                    id,
                    work,
                    pool: want.pool.clone(),
                    input: Input::of(&want),
                    wanted: Some(Keep::new(keep)),
                });
                return Some(Start {
                    id,
                    want,
                    task,
                    wanted,
                });
            }
        }
        None
    }

    fn launch_transfer(&mut self, content: &Content) -> Option<IsoWant> {
        let entry = self.entries.get_mut(content).filter(|e| e.is_queued())?;
        let want = entry.next_flight()?;
        entry.phase = Phase::Flying {
            done: 0,
            total: None,
            began: None,
            seen: Duration::ZERO,
            woken: None,
            publishes: None,
        };
        Some(want)
    }

    fn launch_prune(
        &mut self,
        content: &Content,
        pool: &ObjectKey,
        now: Duration,
    ) -> Option<(IsoWant, Task)> {
        let (used, full) = (self.paths_in_use(), self.is_short_of_space(content));
        let entry = self.entries.get_mut(content)?;
        let wanted = entry.is_ready() || full;
        let goes = entry.lets_go(pool);
        let interest = entry.wants.get_mut(pool)?;
        interest.prune.queued = false;
        if !wanted {
            return None;
        }
        let paths = interest.prune.begin(&goes, &used, now);
        (!paths.is_empty()).then(|| (interest.want.clone(), Task::Prune(paths)))
    }

    /// The transfer failed for want of space: what retention lets go is in the way of it, and goes first.
    pub(super) fn is_short_of_space(&self, content: &Content) -> bool {
        let trouble = self.backoffs.trouble(&content.source());
        trouble.is_some_and(|t| t.reason == reason::NO_DISK_SPACE)
    }

    /// Paths that some pool relies on, with its name: what was found or uploaded, and what statuses say.
    pub(super) fn paths_in_use(&self) -> BTreeMap<DatastorePath, ObjectKey> {
        let mut used = BTreeMap::new();
        for entry in self.entries.values() {
            for (pool, interest) in &entry.wants {
                if let Phase::Ready { file, .. } = &entry.phase {
                    used.insert(file.path.clone(), pool.clone());
                }
                if let Some(known) = &interest.want.known {
                    used.insert(known.path.clone(), pool.clone());
                }
            }
        }
        used
    }
}
