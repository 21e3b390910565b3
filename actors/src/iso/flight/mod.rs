//! The single-flight table: which want starts work, which joins work under way, which waits, and what each is told.
//!
//! Flow: `ask` -> answer at once, plus work to start -> `news` of that work -> whom to wake, plus work to start.
//!
//! Guarantees
//! - Equal content (directory, source key, force token) is fetched by one transfer, however many pools ask; pools of one
//!   [`super::msg::ShareGroup`] are served from one directory.
//! - At most one transfer or prune runs at a time; checks (one read) run beside it, so that a pool whose file is there
//!   never waits for somebody else's upload.
//! - After a failure nothing runs for that (directory, source key) before its backoff is over; then the pools are woken.
//! - Each pool that was told "on its way" is woken when that changes.
//! - A transfer gets leave to publish only once the record of a pool that wants it lists the final name.
//! - A transfer that nobody wants any more is told so at once: it keeps the lane from those who wait.
//! - Whose record gives its VMs a file that was looked for and not found is told that first, until the record does not.
//!
//! Assumptions: a pool wants one ISO at a time, and asks at least once per resync while it wants it. `now` is monotonic.
//! Caveat: everything here is a cache. Losing it costs one read per pool, or one transfer where nobody recorded a file.

mod backoff;
#[cfg(test)]
mod edges;
mod entry;
mod lane;
mod left;
#[cfg(test)]
mod model;
mod outcome;
mod retold;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    time::Duration,
};

use tokio::sync::watch;

use self::{
    backoff::Backoffs,
    entry::{Content, Entry, Input, Interest, Phase, Source},
};
use super::msg::{FlightNews, IsoFile, IsoState, IsoWant, Wanted};
use crate::{
    domain::{
        failure::ErrorSource,
        names::{DatastorePath, ObjectKey},
    },
    runtime::backoff::RESYNC,
};

/// A file that was seen complete is looked at again when asked for after that long.
pub(super) const RECHECK: Duration = Duration::from_secs(600);
/// Least time between two wakes of a pool for progress.
pub(super) const PROGRESS_WAKE: Duration = Duration::from_secs(1);
/// A pool that did not ask for that long (many resyncs) no longer wants it.
pub(super) const FORGET: Duration = Duration::from_secs(600);
/// Nothing is pruned before every pool had the time to ask and to say what it relies on.
pub(super) const SETTLE: Duration = RESYNC;

/// Work for a flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Is this file there, with this size? And, if asked for, does the source still have these bytes?
    Check(IsoFile, bool),
    /// Fetch and publish.
    Transfer,
    /// Remove these unless a VM has them mounted.
    Prune(Vec<DatastorePath>),
    /// Likewise where the pool lets all go, and what dead processes left beside them.
    Clear(Vec<DatastorePath>),
}

impl Task {
    /// Name for traces.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Check(..) => "check",
            Self::Transfer => "transfer",
            Self::Prune(_) => "prune",
            Self::Clear(_) => "clear",
        }
    }
}

/// A flight to start, on behalf of the pool in `want`.
#[derive(Clone, Debug)]
pub(super) struct Start {
    pub(super) id: u64,
    pub(super) want: IsoWant,
    pub(super) task: Task,
    /// What a transfer looks at to learn that it is for nobody.
    pub(super) wanted: Wanted,
}

/// What follows from a piece of news.
#[derive(Debug, Default)]
pub(super) struct Turn {
    pub(super) wake: BTreeSet<ObjectKey>,
    pub(super) start: Vec<Start>,
}

/// A mutating flight: one at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Work {
    Transfer(Content),
    Prune(Content, ObjectKey),
    Clear(ObjectKey),
}

#[derive(Clone, Debug)]
struct Running {
    id: u64,
    work: Work,
    pool: ObjectKey,
    /// What it was begun with.
    input: Input,
    /// Dropped, the flight knows that nobody wants what it fetches any more.
    wanted: Option<Keep>,
}

/// Keeps a flight wanted.
#[derive(Clone)]
struct Keep {
    _channel: watch::Sender<()>,
}

impl Keep {
    fn new(channel: watch::Sender<()>) -> Self {
        Self { _channel: channel }
    }
}

impl fmt::Debug for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keep")
    }
}

/// A look at a file that is under way.
#[derive(Clone, Debug)]
struct Look {
    content: Content,
    pool: ObjectKey,
    /// What it was begun with.
    input: Input,
    /// Digest of the file.
    sha256: String,
    /// Where it should lie.
    path: DatastorePath,
    /// The source is asked too.
    source: bool,
}

/// The table. Pure: `now` comes in, work and wakes come out.
#[derive(Clone, Debug, Default)]
pub(super) struct FlightTable {
    entries: BTreeMap<Content, Entry>,
    /// What pools let go here that want nothing else of this datastore any more.
    left: BTreeMap<ObjectKey, Interest>,
    backoffs: Backoffs,
    queue: VecDeque<Work>,
    running: Option<Running>,
    checks: BTreeMap<u64, Look>,
    pub(super) last_id: u64,
    first_ask: Option<Duration>,
}

impl FlightTable {
    /// A pool asks. Answers at once; the work to start, if any, is the second value.
    pub(super) fn ask(&mut self, mut want: IsoWant, now: Duration) -> (IsoState, Vec<Start>) {
        want.directory = self.home(&want);
        let (content, pool) = (self.content(&want), want.pool.clone());
        self.first_ask.get_or_insert(now);
        self.left.remove(&pool);
        self.forget(&content, &pool, now);
        let (known, every) = (want.known.clone(), want.check_every);
        let within = want.look_within;
        let entry = self.entries.entry(content.clone()).or_default();
        // Another URL or CA bundle is another chance: whatever failed may have been the old one.
        if entry.is_another_chance(&Input::of(&want)) {
            self.backoffs.release(&content.source());
        }
        entry.asked(want, now);
        let mut start = Vec::new();
        match &entry.phase {
            Phase::Idle if self.backoffs.holds(&content.source(), now) => {}
            Phase::Idle => match known {
                Some(file) => start.extend(self.check(&content, file, every.is_some())),
                None => self.enqueue(&content),
            },
            Phase::Ready {
                file,
                checking: false,
                looked,
                check_at,
                compared,
                ..
            } => {
                let compare = every.is_some_and(|every| now.saturating_sub(*compared) >= every);
                let early = within.is_some_and(|within| now.saturating_sub(*looked) >= within);
                if compare || early || *check_at <= now {
                    let file = file.clone();
                    start.extend(self.check(&content, file, compare));
                }
            }
            _ => {}
        }
        self.offer_prune(&content, &pool, now);
        start.extend(self.launch(now));
        (self.answer(&content, &pool), start)
    }

    /// A flight reports. News of flights that the table does not know is ignored.
    pub(super) fn news(&mut self, id: u64, mut news: FlightNews, now: Duration) -> Turn {
        let mut turn = Turn::default();
        if let FlightNews::Progress(done, total) = news {
            turn.wake = self.progress(id, done, total, now);
            return turn;
        }
        if let FlightNews::Publishing(place, leave) = news {
            turn.wake = self.publishing(id, place, leave, now);
            return turn;
        }
        let (mut asked_source, mut looked_at, mut place) = (true, None, None);
        let (content, pool, input, prune) = match self.running.take_if(|r| r.id == id) {
            Some(Running {
                work: Work::Clear(pool),
                ..
            }) => {
                turn.wake = self.cleared(&pool, news, now);
                turn.start.extend(self.launch(now));
                return turn;
            }
            Some(Running {
                work: Work::Transfer(content),
                pool,
                input,
                ..
            }) => (content, pool, input, false),
            Some(Running {
                work: Work::Prune(content, _),
                pool,
                input,
                ..
            }) => (content, pool, input, true),
            None => match self.checks.remove(&id) {
                Some(look) => {
                    (asked_source, looked_at) = (look.source, Some(look.sha256));
                    place = Some(look.path);
                    (look.content, look.pool, look.input, false)
                }
                None => return turn,
            },
        };
        turn.wake = if prune {
            self.prune_ended(&content, &pool, news, now)
        } else {
            if let Some(entry) = self.entries.get_mut(&content) {
                entry.evidence.note(looked_at, asked_source, &mut news);
                if matches!(news, FlightNews::Missing) {
                    entry.gone = place;
                }
            }
            match news {
                FlightNews::Arrived(file, reused) => {
                    let uploaded_for = (!reused).then_some(pool);
                    self.arrived(&content, file, uploaded_for, asked_source, now)
                }
                // Whoever came to want what was recalled gets a flight of its own.
                FlightNews::Missing | FlightNews::Outdated | FlightNews::Recalled => {
                    self.missing(&content, now)
                }
                FlightNews::Failed(trouble) => self.failed(&content, (pool, input), trouble, now),
                FlightNews::Progress(..) | FlightNews::Publishing(..) | FlightNews::Pruned(..) => {
                    BTreeSet::new()
                }
            }
        };
        if self
            .entries
            .get(&content)
            .is_some_and(|e| e.wants.is_empty())
        {
            self.entries.remove(&content);
        }
        turn.start.extend(self.launch(now));
        turn
    }

    /// The pool wants nothing any more.
    pub(super) fn leave(&mut self, pool: &ObjectKey, now: Duration) {
        for entry in self.entries.values_mut() {
            entry.wants.remove(pool);
        }
        self.left.remove(pool);
        self.let_go(None, now);
    }

    /// Pools whose backoff is over by now; each is named once per backoff.
    pub(super) fn due(&mut self, now: Duration) -> BTreeSet<ObjectKey> {
        self.backoffs
            .due(now)
            .iter()
            .flat_map(|source| self.pools_without(source))
            .collect()
    }

    /// When [`Self::due`] has something to say next.
    pub(super) fn next_due(&self) -> Option<Duration> {
        self.backoffs.next_due()
    }

    /// Is any work under way?
    pub(super) fn is_flying(&self) -> bool {
        self.running.is_some() || !self.checks.is_empty()
    }

    /// Number of the transfer under way.
    pub(super) fn transfer(&self) -> Option<u64> {
        let running = self.running.as_ref();
        running
            .filter(|r| matches!(r.work, Work::Transfer(_)))
            .map(|r| r.id)
    }

    /// Bytes per second of the transfer under way, once that can be told.
    pub(super) fn speed(&self) -> Option<u64> {
        match &self.running.as_ref()?.work {
            Work::Transfer(content) => self.entries.get(content)?.speed(),
            Work::Prune(..) | Work::Clear(_) => None,
        }
    }

    /// Why things are not there yet: reason and sentence; and the highest number of failures in a row.
    pub(super) fn waiting_on(&self) -> (Vec<(String, String)>, u32) {
        let say = |(content, entry): (&Content, &Entry)| {
            let (reason, text) =
                match (entry.waiting_on(), self.backoffs.trouble(&content.source())) {
                    (Some((reason, text)), _) => (reason.to_owned(), text),
                    (None, Some(trouble)) if !entry.is_ready() => {
                        (trouble.reason.clone(), trouble.message.clone())
                    }
                    _ => return None,
                };
            Some((reason, format!("{}: {text}", content.directory)))
        };
        (
            self.entries.iter().filter_map(say).collect(),
            self.backoffs.most_failures(),
        )
    }

    /// The directory in which this want is served: where its known file lies, else where another pool has or fetches
    /// the same content, else its own. A directory that somebody chose is never left.
    fn home(&self, want: &IsoWant) -> DatastorePath {
        if want.shareable.is_none() {
            return want.directory.clone();
        }
        let known = want.known.as_ref().and_then(|file| file.path.parent());
        let rank = |entry: &Entry| match entry.phase {
            Phase::Ready { .. } => 3,
            Phase::Flying { .. } => 2,
            Phase::Checking | Phase::Queued => 1,
            Phase::Idle => 0,
        };
        let shared = self.entries.iter().filter(|(content, entry)| {
            content.is_same_content(want)
                && entry
                    .wants
                    .values()
                    .any(|i| i.want.shareable == want.shareable)
        });
        known
            .or_else(|| {
                let best = shared.max_by_key(|(content, entry)| {
                    (rank(entry), content.directory == want.directory)
                });
                best.map(|(content, _)| content.directory.clone())
            })
            .unwrap_or_else(|| want.directory.clone())
    }

    /// What is asked for. Whose record names the very file that another content of the source has asks for that one: a pool that
    /// was once forced to fetch anew shares what came later.
    fn content(&self, want: &IsoWant) -> Content {
        let own = Content::of(want);
        let Some(known) = &want.known else {
            return own;
        };
        if self.entries.contains_key(&own) {
            return own;
        }
        let of_source = || {
            let all = self.entries.iter();
            all.filter(|(content, _)| content.source() == own.source())
        };
        // What it joined is its own until its record changes: also while other bytes are on their way there.
        let has = of_source()
            .find(|(_, e)| e.was_asked(&want.pool, &known.path))
            .or_else(|| of_source().find(|(_, e)| e.is_of(&known.path)));
        has.map_or(own, |(content, _)| content.clone())
    }

    /// A failure of vCenter's stands until bytes of the next try go there: that a try began says nothing of vCenter, and
    /// in an outage each try would be announced as its end.
    fn answer(&mut self, content: &Content, pool: &ObjectKey) -> IsoState {
        let trouble = self.backoffs.trouble(&content.source());
        // One that was recalled ends soon.
        let upload = self.running.as_ref().filter(|r| {
            matches!(r.work, Work::Transfer(_)) && r.wanted.is_some() && r.pool != *pool
        });
        let answer = self.entries.get_mut(content).and_then(|entry| {
            if let Some(gone) = entry.lost_by(pool) {
                return Some(IsoState::Lost(gone));
            }
            let outage = trouble.is_some_and(|t| t.side == ErrorSource::Vsphere);
            if outage && !entry.is_ready() && !entry.brings() {
                return None;
            }
            match upload {
                Some(first) if entry.is_queued() => Some(IsoState::Queued(first.pool.clone())),
                _ => entry.answer(pool),
            }
        });
        answer.unwrap_or_else(|| match trouble {
            Some(trouble) => IsoState::Failed(trouble.clone()),
            None => IsoState::Fetching {
                done: 0,
                total: None,
                rate: None,
            },
        })
    }

    fn id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Drops interests that are over: a pool's earlier want, pools that stopped asking; and what only they wanted.
    fn forget(&mut self, asked: &Content, pool: &ObjectKey, now: Duration) {
        for (content, entry) in &mut self.entries {
            let wanted =
                |key: &ObjectKey, i: &Interest| now.saturating_sub(i.asked) < FORGET && key != pool;
            entry
                .wants
                .retain(|key, i| (content == asked && key == pool) || wanted(key, i));
        }
        self.let_go(Some(asked), now);
    }

    /// Drops what nobody wants any more; `asked` is just being asked for.
    fn let_go(&mut self, asked: Option<&Content>, now: Duration) {
        // Before its leave goes, or a flight could take that for a failure.
        self.recall(asked);
        for (content, entry) in &mut self.entries {
            if asked != Some(content) {
                entry.settle_leave();
            }
        }
        self.entries.retain(|_, e| !e.is_forgotten());
        let entries = &self.entries;
        // A look at what was forgotten says nothing about what is asked for anew.
        self.checks
            .retain(|_, look| entries.contains_key(&look.content));
        self.backoffs
            .forget(now, |source| entries.keys().any(|c| c.source() == *source));
    }

    /// Tells the transfer under way if nobody wants it any more.
    fn recall(&mut self, asked: Option<&Content>) {
        let entries = &self.entries;
        let is_unwanted = |content: &Content| {
            asked != Some(content) && entries.get(content).is_none_or(|e| e.wants.is_empty())
        };
        if let Some(Running {
            work: Work::Transfer(content),
            wanted,
            ..
        }) = &mut self.running
            && is_unwanted(content)
        {
            *wanted = None;
        }
    }

    /// Pools that want something of this source and do not have it.
    fn pools_without(&self, source: &Source) -> BTreeSet<ObjectKey> {
        let without = self
            .entries
            .iter()
            .filter(|(c, e)| c.source() == *source && !e.is_ready());
        without.flat_map(|(_, e)| e.pools()).collect()
    }
}
