//! The table of flights: what pools want, what is under way, and how each pool is answered. Pure.
//!
//! Flow: `ask` -> an answer at once, and the flights to start -> their `news` -> the pools to wake, and the next
//! flights.
//!
//! Guarantees
//! - One transfer or prune runs at a time (the lane). Looks, which only read, run beside it.
//! - One transfer fetches a content (directory, source key) for all pools that want it. Pools that
//!   share ([`IsoWant::shares`]) are served from one directory.
//! - After a failure nothing is fetched for that content before its backoff is over.
//! - Pools take turns: a pool with a bad Secret does not keep others from the lane.
//! - A transfer that no pool wants any more learns that at once ([`Lane`]).
//! - A transfer may publish only after the record of a pool that wants it lists the final name ([`Lane`]).
//! - A pool whose record names a file that is gone learns that first.
//!
//! Assumptions: a pool wants one ISO at a time. It asks every two seconds while it waits, and once a minute otherwise.
//! `now` is monotonic.
//! Caveat: all of this is a cache. Its loss costs one read for each pool, or one transfer if no status names the file.

mod ends;
mod entry;
#[cfg(test)]
mod tests;
mod told;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use self::entry::{Content, Entry, Input, Interest, Look, Running, Transfer, refuses};
pub use super::msg::{Start, Task};
use super::{
    msg::{IsoState, IsoWant},
    retention::{PruneLog, PruneNews},
};
use crate::{
    domain::names::{DatastorePath, ObjectKey},
    runtime::backoff::RESYNC,
};

/// How often a complete file is looked at again.
pub(super) const RECHECK: Duration = Duration::from_secs(600);
/// A pool that did not ask for that long (many resyncs) wants nothing any more.
pub(super) const FORGET: Duration = Duration::from_secs(600);
/// How long nothing is pruned after the start: every pool must have the time to ask and to name the files that it
/// needs.
pub(super) const SETTLE: Duration = RESYNC;

/// The result of a report.
#[derive(Debug, Default)]
pub struct Turn {
    /// Pools to wake.
    pub wake: BTreeSet<ObjectKey>,
    /// Flights to start.
    pub start: Vec<Start>,
}

/// The table.
#[derive(Clone, Debug, Default)]
pub struct FlightTable {
    contents: BTreeMap<Content, Entry>,
    pools: BTreeMap<ObjectKey, Interest>,
    running: Option<Running>,
    /// The pool that had the lane last.
    served: Option<ObjectKey>,
    last_id: u64,
    first_ask: Option<Duration>,
}

impl FlightTable {
    /// Handles a request of a pool. Answers at once. The flights to start are the second value.
    pub fn ask(&mut self, mut want: IsoWant, now: Duration) -> (IsoState, Vec<Start>) {
        want.directory = self.home(&want);
        let (content, pool) = (Content::of(&want), want.pool.clone());
        let entry = self.contents.entry(content.clone()).or_default();
        let before = self.pools.get(&pool);
        let before = before.filter(|i| i.content.as_ref() == Some(&content));
        // Another URL or other certificates may help, so the content may be tried again.
        if before.is_none_or(|i| Input::of(&i.want) != Input::of(&want)) {
            entry.release();
        }
        self.interested(want, Some(content.clone()), now);
        let look = self.look(&content, &pool, now);
        let start = look.into_iter().chain(self.launch(now)).collect();
        (self.answer(&content, &pool, now), start)
    }

    /// A pool only wants its `prunable` files removed here. Answers with the results so far.
    pub fn clear(&mut self, want: IsoWant, now: Duration) -> (PruneNews, Vec<Start>) {
        let pool = want.pool.clone();
        self.interested(want, None, now);
        let start = self.launch(now).into_iter().collect();
        let interest = self.pools.get_mut(&pool);
        (interest.map(|i| i.prune.news()).unwrap_or_default(), start)
    }

    /// The pool no longer wants anything.
    pub fn leave(&mut self, pool: &ObjectKey) {
        self.pools.remove(pool);
        self.let_go();
    }

    fn transfer(&self) -> Option<(u64, &Transfer)> {
        let running = self.running.as_ref()?;
        Some((running.id, running.transfer.as_ref()?))
    }

    /// The pools that want that content.
    fn wants(&self, content: &Content) -> impl Iterator<Item = (&ObjectKey, &Interest)> {
        self.pools
            .iter()
            .filter(|(_, i)| i.content.as_ref() == Some(content))
    }

    fn waiting(&self, content: &Content) -> BTreeSet<ObjectKey> {
        self.wants(content).map(|(pool, _)| pool.clone()).collect()
    }

    /// The directory in which this want is served. It is the directory of its known file, else one where another pool
    /// has or fetches the same content, else its own. A directory that a user chose is always kept.
    fn home(&self, want: &IsoWant) -> DatastorePath {
        if !want.shares {
            return want.directory.clone();
        }
        let flies = self.transfer().map(|(_, t)| &t.content);
        let rank = |content: &Content, entry: &Entry| {
            let own = content.directory == want.directory;
            (entry.there.is_some(), flies == Some(content), own)
        };
        let shared = self.contents.iter().filter(|(content, _)| {
            let mut wants = self.wants(content);
            content.source_key == want.source_key && wants.any(|(_, i)| i.want.shares)
        });
        let best = || shared.max_by_key(|(content, entry)| rank(content, entry));
        let known = want.known.as_ref().and_then(|file| file.path.parent());
        known
            .or_else(|| best().map(|(content, _)| content.directory.clone()))
            .unwrap_or_else(|| want.directory.clone())
    }

    /// Notes what a pool wants. Forgets pools that no longer ask.
    fn interested(&mut self, want: IsoWant, content: Option<Content>, now: Duration) {
        self.first_ask.get_or_insert(now);
        let pool = want.pool.clone();
        let before = self.pools.remove(&pool);
        let mut prune = before.map_or_else(PruneLog::default, |i| i.prune);
        prune.listed(&want.prunable);
        self.pools
            .retain(|_, i| now.saturating_sub(i.asked) < FORGET);
        let interest = Interest {
            want,
            content,
            asked: now,
            prune,
        };
        self.pools.insert(pool, interest);
        self.let_go();
    }

    /// Drops what no pool wants any more.
    fn let_go(&mut self) {
        let wanted: BTreeSet<_> = self
            .pools
            .values()
            .filter_map(|i| i.content.as_ref())
            .collect();
        self.contents.retain(|content, _| wanted.contains(content));
        let running = self.running.as_mut();
        if let Some(transfer) = running.and_then(|r| r.transfer.as_mut()) {
            let content = Some(&transfer.content);
            let mut wants = self
                .pools
                .values()
                .filter(|i| i.content.as_ref() == content);
            transfer.recalled |= wants.all(|i| refuses(&i.want, &transfer.tokens));
        }
    }

    /// Starts a look at the existing file, or at the file in the pool's record, if it is time.
    fn look(&mut self, content: &Content, pool: &ObjectKey, now: Duration) -> Option<Start> {
        let want = &self.pools.get(pool)?.want;
        let flies = self.transfer().is_some_and(|(_, t)| t.content == *content);
        let entry = self.contents.get(content)?;
        if entry.look.is_some() {
            return None;
        }
        let (file, compare) = match &entry.there {
            Some(there) => there.due(want, now)?,
            None if flies || entry.fetch || entry.holds(now) => return None,
            None => (want.known.clone()?, want.check_every.is_some()),
        };
        let is_early = entry.there.as_ref().is_some_and(|t| now < t.due);
        let turn = self.turn(content)?;
        let mut start = self.start(&turn, Task::Check(file.clone(), compare))?;
        if is_early {
            // The files of dead flights can wait.
            start.want.directories.clear();
        }
        let look = Look {
            id: start.id,
            pool: turn,
            file,
            compare,
        };
        self.contents.get_mut(content)?.look = Some(look);
        Some(start)
    }

    /// The pool whose want the next flight for that content uses: the one after the pool of the last failure.
    fn turn(&self, content: &Content) -> Option<ObjectKey> {
        let failed = self.contents.get(content)?.failed.as_ref();
        let mut wants = self.wants(content).map(|(pool, _)| pool);
        let next = wants.find(|pool| failed.is_none_or(|failed| *pool > failed));
        next.or_else(|| self.wants(content).map(|(pool, _)| pool).next())
            .cloned()
    }

    /// A flight for that pool. It gets the directories of all pools that share its content, because a dead flight may
    /// have left files there.
    fn start(&mut self, pool: &ObjectKey, task: Task) -> Option<Start> {
        let interest = self.pools.get(pool)?;
        let mut want = interest.want.clone();
        if let Some(content) = &interest.content {
            let all = self.wants(content).flat_map(|(_, i)| &i.want.directories);
            want.directories = all.cloned().collect();
        }
        self.last_id += 1;
        let id = self.last_id;
        Some(Start { id, want, task })
    }

    /// Starts the next transfer if the lane is free. If no transfer is needed, starts the next prune.
    fn launch(&mut self, now: Duration) -> Option<Start> {
        if self.running.is_some() {
            return None;
        }
        let served = |pool: &ObjectKey| self.served.as_ref().is_some_and(|s| pool <= s);
        let mut order: Vec<ObjectKey> = self.pools.keys().cloned().collect();
        order.sort_by_key(|pool| served(pool));
        let needs = order.iter().find_map(|pool| self.needs(pool, now));
        let (start, transfer) = match needs {
            Some(content) => {
                let turn = self.turn(&content)?;
                let start = self.start(&turn, Task::Transfer)?;
                let forced = |(pool, i): (&ObjectKey, &Interest)| {
                    Some((pool.clone(), i.want.force_token.clone()?))
                };
                let tokens = self.wants(&content).filter_map(forced).collect();
                let transfer = Transfer::new(content, Input::of(&start.want), tokens);
                (start, Some(transfer))
            }
            None => {
                let due = |pool: &ObjectKey| Some((pool.clone(), self.prunes(pool, now)?));
                let (pool, paths) = order.iter().find_map(due)?;
                (self.start(&pool, Task::Prune(paths))?, None)
            }
        };
        self.served = Some(start.want.pool.clone());
        self.running = Some(Running {
            id: start.id,
            pool: start.want.pool.clone(),
            transfer,
        });
        Some(start)
    }

    /// The content that has to be fetched for that pool.
    fn needs(&self, pool: &ObjectKey, now: Duration) -> Option<Content> {
        let Interest { want, content, .. } = self.pools.get(pool)?;
        let content = content.as_ref()?;
        let entry = self.contents.get(content)?;
        let needed = match &entry.there {
            Some(there) => refuses(want, &there.tokens),
            None => entry.look.is_none() && (entry.fetch || want.known.is_none()),
        };
        (needed && !entry.holds(now)).then(|| content.clone())
    }

    /// The files to remove now for that pool.
    fn prunes(&mut self, pool: &ObjectKey, now: Duration) -> Option<Vec<DatastorePath>> {
        let settled = self
            .first_ask
            .is_some_and(|at| now.saturating_sub(at) >= SETTLE);
        let Interest { want, content, .. } = self.pools.get(pool)?;
        let entry = content.as_ref().map(|c| self.contents.get(c));
        let here = match entry {
            None => None,
            Some(entry) => {
                let entry = entry?;
                let there = entry.there.as_ref().map(|t| &t.file.path);
                // Without the ISO nothing is removed, unless the ISO waits for space that old files use.
                if there.is_none() && !entry.lacks_space() {
                    return None;
                }
                there
            }
        };
        // The new file stays, even if the record does not name it as the current one yet.
        let goes = want.prunable.iter().filter(|path| Some(*path) != here);
        let goes: Vec<_> = goes.cloned().collect();
        let used = self.paths_in_use();
        let interest = self.pools.get_mut(pool).filter(|_| settled)?;
        let paths = interest.prune.begin(&goes, &used, now);
        (!paths.is_empty()).then_some(paths)
    }

    /// Paths that some pool needs, with its name: what was found or uploaded, and what statuses name.
    fn paths_in_use(&self) -> BTreeMap<DatastorePath, ObjectKey> {
        let mut used = BTreeMap::new();
        for (pool, interest) in &self.pools {
            let entry = interest.content.as_ref().and_then(|c| self.contents.get(c));
            let there = entry.and_then(|e| e.there.as_ref()).map(|t| &t.file);
            for file in there.into_iter().chain(&interest.want.known) {
                used.insert(file.path.clone(), pool.clone());
            }
        }
        used
    }
}
