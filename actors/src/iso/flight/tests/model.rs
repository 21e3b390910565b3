//! The guarantees of the table, under random requests, ends of flights, and passing time.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use proptest::prelude::*;

use super::{Content, FORGET, FlightTable, RECHECK, Start, Task, entry::HEARD};
use crate::{
    domain::{
        failure::{ErrorSource, ReconcileError},
        names::{DatastorePath, ObjectKey},
    },
    iso::{
        msg::{FlightNews, IsoFile, IsoPlace, IsoState, IsoWant},
        testing::bench::{path, pool, want},
    },
    runtime::backoff,
};

/// The details of a pool's request.
#[derive(Clone, Copy, Debug, Default)]
struct Hints {
    /// The record names the file.
    known: bool,
    /// Retention releases some files.
    prunable: bool,
    /// The record lists the name that is to be published.
    listed: bool,
    /// The force-refresh annotation has a new value.
    forced: bool,
}

#[derive(Clone, Debug)]
enum Op {
    Ask(u8, usize, Hints),
    Progress(usize),
    /// All bytes of that flight have come.
    Publish(usize),
    Arrive(usize),
    /// Of which flight, whether people must correct something, and the source of the error.
    Fail(usize, bool, ErrorSource),
    Miss(usize),
    /// That flight notices that no pool wants it.
    Recall(usize),
    /// That pool is being deleted.
    Leave(u8),
    Pass(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let which = any::<prop::sample::Index>().prop_map(|i| i.index(64));
    let hints = (
        prop::bool::weighted(0.2),
        any::<bool>(),
        prop::bool::weighted(0.3),
        prop::bool::weighted(0.1),
    );
    let hints = hints.prop_map(|(known, prunable, listed, forced)| Hints {
        known,
        prunable,
        listed,
        forced,
    });
    prop_oneof![
        6 => (0..4_u8, 0..3_usize, hints).prop_map(|(pool, content, hints)| Op::Ask(pool, content, hints)),
        2 => which.clone().prop_map(Op::Publish),
        1 => which.clone().prop_map(Op::Progress),
        3 => which.clone().prop_map(Op::Arrive),
        2 => (which.clone(), any::<bool>(), any::<bool>()).prop_map(|(w, blocked, iso)| {
            Op::Fail(w, blocked, if iso { ErrorSource::Iso } else { ErrorSource::Vsphere })
        }),
        1 => which.clone().prop_map(Op::Miss),
        3 => which.prop_map(Op::Recall),
        1 => (0..4_u8).prop_map(Op::Leave),
        3 => prop_oneof![0..3_u64, 20..50_u64, 550..700_u64].prop_map(Op::Pass),
    ]
}

/// Three contents: one, one in another directory, one of another key.
fn wanted(name: u8, content: usize) -> IsoWant {
    let mut want = want(&name.to_string());
    match content {
        1 => want.directory = DatastorePath::new("ds1", "other").expect("path"),
        2 => want.source_key = "another".to_owned(),
        _ => {}
    }
    want
}

fn file(content: usize) -> IsoFile {
    let (sha256, uploaded_at) = (format!("{content:064x}"), jiff::Timestamp::UNIX_EPOCH);
    IsoFile {
        path: path(&format!("{sha256}.iso")),
        sha256,
        size: 1,
        uploaded_at,
        validators: Default::default(),
        volatile: false,
    }
}

fn key(name: u8) -> ObjectKey {
    pool(&name.to_string())
}

/// Failures in a row, until when nothing is tried, and the source of the last error.
type Held = (u32, Duration, ErrorSource);

#[derive(Default)]
struct Run {
    table: FlightTable,
    now: Duration,
    flights: BTreeMap<u64, Start>,
    held: BTreeMap<usize, Held>,
    /// What each pool last asked for, when, and with which details.
    interest: BTreeMap<u8, (usize, Duration, Hints)>,
    /// Contents that are there.
    there: BTreeSet<usize>,
    /// Transfers that at some time were wanted by no pool.
    recalled: BTreeSet<u64>,
    /// Pools that each transfer was forced for.
    tokens: BTreeMap<u64, BTreeSet<u8>>,
    /// Transfers that may get their final name.
    publishing: BTreeSet<u64>,
}

fn mutates(start: &Start) -> bool {
    !matches!(start.task, Task::Check(..))
}

fn content(start: &Start) -> usize {
    let is = |c: &usize| Content::of(&wanted(0, *c)) == Content::of(&start.want);
    (0..3).find(is).expect("one of the three")
}

impl Run {
    fn wants(&self, content: usize) -> impl Iterator<Item = (u8, Hints)> {
        let of = move |(name, (c, _, hints)): (&u8, &(usize, Duration, Hints))| {
            (*c == content).then_some((*name, *hints))
        };
        self.interest.iter().filter_map(of)
    }

    fn started(&mut self, starts: Vec<Start>) {
        for start in starts {
            let content = content(&start);
            let wanted = self
                .wants(content)
                .any(|(name, _)| key(name) == start.want.pool);
            assert!(wanted, "it flies for a pool that wants it");
            let busy = mutates(&start) && self.flights.values().any(mutates);
            assert!(!busy, "two at a time in the lane");
            let held = self.held.get(&content);
            let held = held.is_some_and(|(_, until, _)| *until > self.now);
            match &start.task {
                Task::Prune(paths) => assert!(!paths.contains(&file(content).path)),
                Task::Transfer => assert!(!held, "a try during the backoff"),
                Task::Check(..) => {
                    assert!(!held || self.there.contains(&content), "a look during it");
                }
            }
            if start.task == Task::Transfer {
                let forced = self.wants(content).filter(|(_, hints)| hints.forced);
                let forced = forced.map(|(name, _)| name).collect();
                self.tokens.insert(start.id, forced);
            }
            let before = self.flights.insert(start.id, start);
            assert!(before.is_none(), "numbers are unique");
        }
        self.is_sound();
    }

    /// Forgets what no pool wants any more. Its transfer learns that.
    fn forget(&mut self) {
        for c in 0..3 {
            if self.wants(c).next().is_none() {
                self.there.remove(&c);
                self.held.remove(&c);
                // A look at it no longer counts.
                self.flights.retain(|_, s| mutates(s) || content(s) != c);
            }
        }
        let transfers = self.flights.values().filter(|s| s.task == Task::Transfer);
        let unwanted = transfers.filter(|s| {
            let tokens = &self.tokens[&s.id];
            let mut wants = self.wants(content(s));
            wants.all(|(name, hints)| hints.forced && !tokens.contains(&name))
        });
        let ids: Vec<_> = unwanted.map(|s| s.id).collect();
        self.recalled.extend(ids);
    }

    fn is_sound(&self) {
        let lane = self.table.lane();
        let transfer = self.flights.values().find(|s| s.task == Task::Transfer);
        assert_eq!(lane.transfer, transfer.map(|s| s.id));
        if let Some(start) = transfer {
            assert_eq!(lane.wanted, !self.recalled.contains(&start.id));
            let lists = self.wants(content(start)).any(|(_, hints)| hints.listed);
            let announced = self.publishing.contains(&start.id);
            assert_eq!(lane.listed, announced && lists);
        }
    }

    fn ask(&mut self, name: u8, content: usize, hints: Hints) -> IsoState {
        let now = self.now;
        let before = self.interest.get(&name).map(|(c, ..)| *c);
        self.interest
            .retain(|n, (_, asked, _)| *n == name || now - *asked < FORGET);
        self.interest.insert(name, (content, now, hints));
        self.forget();
        // A pool that starts to want it may have what it needs.
        let released = before != Some(content);
        if let Some(held) = self.held.get_mut(&content).filter(|_| released)
            && held.2 == ErrorSource::Iso
        {
            held.1 = Duration::ZERO;
        }
        let known = hints.known.then(|| file(content));
        let want = IsoWant {
            used: known.as_ref().map(|file| file.path.clone()),
            known,
            prunable: match hints.prunable {
                true => [7, 8, content].map(|c| file(c).path).to_vec(),
                false => Vec::new(),
            },
            listed: hints
                .listed
                .then(|| file(content).path)
                .into_iter()
                .collect(),
            force_token: hints.forced.then(|| "1".to_owned()),
            ..wanted(name, content)
        };
        let (answer, starts) = self.table.ask(want, now);
        self.started(starts);
        let there = self.there.contains(&content);
        match &answer {
            IsoState::Ready { file: got, .. } => {
                assert!(there && *got == file(content));
            }
            IsoState::Failed(_) => assert!(self.held.contains_key(&content)),
            IsoState::Lost(gone) => assert!(!there && hints.known && *gone == file(content).path),
            IsoState::Publishing(place) => assert_eq!(place.path, file(content).path),
            IsoState::Queued(first) => {
                let uploads = |s: &Start| s.task == Task::Transfer && s.want.pool == *first;
                assert!(self.flights.values().any(uploads), "waits for {first}");
            }
            IsoState::Fetching { .. } => assert!(!self.flights.is_empty(), "waits for nothing"),
        }
        assert!(hints.forced || !there || matches!(answer, IsoState::Ready { .. }));
        answer
    }

    fn nth(&self, n: usize) -> Option<Start> {
        let start = self.flights.values().nth(n % self.flights.len().max(1));
        start.cloned()
    }

    fn end(&mut self, start: &Start, news: FlightNews) {
        self.flights.remove(&start.id);
        let came = matches!(news, FlightNews::Arrived(..));
        let turn = self.table.news(start.id, news, self.now);
        if came && start.task == Task::Transfer {
            for (name, _) in self.wants(content(start)) {
                assert!(turn.wake.contains(&key(name)), "{name} is not woken");
            }
        }
        self.started(turn.start);
    }

    fn apply(&mut self, op: &Op) {
        let flight = match op {
            Op::Progress(n)
            | Op::Publish(n)
            | Op::Arrive(n)
            | Op::Fail(n, ..)
            | Op::Miss(n)
            | Op::Recall(n) => match self.nth(*n) {
                Some(start) => Some((content(&start), start)),
                None => return,
            },
            _ => None,
        };
        match (op, flight) {
            (Op::Ask(name, content, hints), _) => drop(self.ask(*name, *content, *hints)),
            (Op::Leave(name), _) => {
                self.interest.remove(name);
                self.forget();
                self.table.leave(&key(*name));
                self.is_sound();
            }
            (Op::Pass(seconds), _) => self.now += Duration::from_secs(*seconds),
            (Op::Progress(_), Some((_, start))) => {
                let turn = self
                    .table
                    .news(start.id, FlightNews::Progress(1, Some(2)), self.now);
                assert!(turn.start.is_empty() && turn.wake.is_empty());
            }
            (Op::Publish(_), Some((content, start))) if start.task == Task::Transfer => {
                let IsoFile { sha256, path, .. } = file(content);
                let news = FlightNews::Publishing(IsoPlace { sha256, path });
                let turn = self.table.news(start.id, news, self.now);
                let heard = !self.recalled.contains(&start.id);
                if heard {
                    self.publishing.insert(start.id);
                }
                for (name, _) in self.wants(content) {
                    assert_eq!(turn.wake.contains(&key(name)), heard);
                }
                self.is_sound();
            }
            (Op::Arrive(_), Some((_, start))) if matches!(start.task, Task::Prune(_)) => {
                self.end(&start, FlightNews::Pruned(vec![file(7).path], Vec::new()));
            }
            (Op::Arrive(_), Some((content, start))) => {
                let wanted = self.wants(content).next().is_some();
                if wanted && (self.there.insert(content) || start.task == Task::Transfer) {
                    self.held.remove(&content);
                }
                self.end(&start, FlightNews::Arrived(file(content), false));
            }
            (Op::Miss(_), Some((content, start))) if !mutates(&start) => {
                self.there.remove(&content);
                self.end(&start, FlightNews::Missing);
            }
            (Op::Recall(_), Some((_, start))) if self.recalled.contains(&start.id) => {
                self.end(&start, FlightNews::Recalled);
            }
            (Op::Fail(_, blocked, side), Some((content, start))) => {
                self.fail(content, &start, *blocked, *side);
            }
            _ => {}
        }
    }

    fn fail(&mut self, content: usize, start: &Start, blocked: bool, side: ErrorSource) {
        let trouble = match blocked {
            true => ReconcileError::blocked(side, "Told".into(), "as told"),
            false => ReconcileError::transient(side, "Told".into(), "as told"),
        };
        // A failed look at an existing file proves nothing.
        let counts = match start.task {
            Task::Transfer => true,
            Task::Check(..) => !self.there.contains(&content),
            Task::Prune(_) => false,
        };
        if counts && self.wants(content).next().is_some() {
            let failures = self.held.get(&content).map_or(0, |(n, ..)| *n) + 1;
            let want = wanted(0, content);
            let seed = format!("{}/{}", want.directory, want.source_key);
            let delay = backoff::delay(trouble.class, failures, &seed).max(HEARD);
            let held = (failures, self.now + delay, side);
            self.held.insert(content, held);
        }
        self.end(start, FlightNews::Failed(trouble));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Every flight is allowed and every answer is true. Once no fault is left, every pool that asks again gets its
    /// file.
    #[test]
    fn the_table_keeps_its_promises(ops in prop::collection::vec(op(), 1..60)) {
        let mut run = Run::default();
        for op in &ops {
            run.apply(op);
        }
        let names: Vec<_> = run.interest.iter().map(|(n, (c, ..))| (*n, *c)).collect();
        for _ in 0..20 {
            for (name, content) in &names {
                run.ask(*name, *content, Hints::default());
            }
            while !run.flights.is_empty() {
                run.apply(&Op::Arrive(0));
            }
            run.now += RECHECK / 10;
        }
        for (name, content) in names {
            let answer = run.ask(name, content, Hints::default());
            let ready = matches!(answer, IsoState::Ready { .. });
            prop_assert!(ready, "{name} has not got it: {answer:?}");
        }
    }
}
