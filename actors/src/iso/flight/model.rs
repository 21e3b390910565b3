//! The table against a small model of what it promises, under random asks, ends of flights and passing time.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use proptest::prelude::*;
use tokio::sync::watch;

use super::{Content, FORGET, FlightTable, PROGRESS_WAKE, RECHECK, Start, Task};
use crate::{
    domain::{
        failure::{ErrorSource, ReconcileError},
        names::{DatastorePath, ObjectKey},
    },
    iso::{
        msg::{FlightNews, IsoFile, IsoPlace, IsoState, IsoWant, PublishPermit},
        testing::bench::{path, pool, want},
    },
    runtime::backoff,
};

#[derive(Clone, Debug)]
enum Op {
    Ask {
        pool: u8,
        content: usize,
        known: bool,
        prunable: bool,
        listed: bool,
    },
    Progress(usize),
    /// All bytes of that flight have come.
    Publish(usize),
    Arrive(usize),
    /// Of which flight; whether people have to mend it; whose fault it is.
    Fail(usize, bool, ErrorSource),
    Miss(usize),
    /// That flight notices that nobody wants it.
    Recall(usize),
    /// That pool is being deleted.
    PublishPermit(u8),
    Pass(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let which = any::<prop::sample::Index>().prop_map(|i| i.index(64));
    prop_oneof![
        6 => (0..4_u8, 0..5_usize, prop::bool::weighted(0.2), any::<bool>(), prop::bool::weighted(0.3))
            .prop_map(|(pool, content, known, prunable, listed)| Op::Ask { pool, content, known, prunable, listed }),
        2 => which.clone().prop_map(Op::Publish),
        1 => which.clone().prop_map(Op::Progress),
        3 => which.clone().prop_map(Op::Arrive),
        2 => (which.clone(), any::<bool>(), any::<bool>()).prop_map(|(w, blocked, iso)| {
            Op::Fail(w, blocked, if iso { ErrorSource::Iso } else { ErrorSource::Vsphere })
        }),
        1 => which.clone().prop_map(Op::Miss),
        3 => which.prop_map(Op::Recall),
        1 => (0..4_u8).prop_map(Op::PublishPermit),
        3 => prop_oneof![0..3_u64, 20..50_u64, 550..700_u64].prop_map(Op::Pass),
    ]
}

/// Five contents: three of one source, one of another directory, one of another key.
fn wanted(name: u8, content: usize) -> IsoWant {
    let mut want = want(&name.to_string());
    match content {
        1 => want.force_token = Some("1".to_owned()),
        2 => want.force_token = Some("2".to_owned()),
        3 => want.directory = DatastorePath::new("ds1", "other").expect("path"),
        4 => want.source_key = "another".to_owned(),
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

/// Contents 0, 1 and 2 are one source.
fn source(content: usize) -> usize {
    if content <= 2 { 0 } else { content }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Fetching,
    Publishing,
    Lost,
    Ready,
    Failed,
}

/// What is known of a content, in the plainest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Nothing,
    Wanted,
    Flying,
    There { looked: Duration, looking: bool },
}

struct Run {
    table: FlightTable,
    now: Duration,
    flights: BTreeMap<u64, Start>,
    known: [Known; 5],
    /// Failures in a row of a source, until when it may not be tried, and whose fault the last one was.
    held: BTreeMap<usize, (u32, Duration, ErrorSource)>,
    /// Contents of which bytes are on their way.
    coming: BTreeSet<usize>,
    /// Contents whose flight waits for leave to publish.
    publishing: BTreeMap<usize, watch::Receiver<bool>>,
    /// Pools whose last ask listed the final name of what they ask for.
    listed: BTreeSet<u8>,
    /// Contents whose file was looked for and not found, and has not come since.
    gone: [bool; 5],
    interest: BTreeMap<u8, (usize, Duration)>,
    /// Pools that were told that it is not there, and were not woken since.
    asleep: BTreeSet<ObjectKey>,
    told: BTreeMap<u64, Duration>,
    /// Transfers that nobody wanted at some time since they began.
    recalled: BTreeSet<u64>,
    /// Looks at what was forgotten since: their news must change nothing.
    stale: Vec<u64>,
}

fn mutates(start: &Start) -> bool {
    !matches!(start.task, Task::Check(..))
}

impl Run {
    fn new() -> Self {
        Self {
            table: FlightTable::default(),
            now: Duration::from_secs(1),
            flights: BTreeMap::new(),
            known: [Known::Nothing; 5],
            held: BTreeMap::new(),
            coming: BTreeSet::new(),
            publishing: BTreeMap::new(),
            listed: BTreeSet::new(),
            gone: [false; 5],
            interest: BTreeMap::new(),
            asleep: BTreeSet::new(),
            told: BTreeMap::new(),
            recalled: BTreeSet::new(),
            stale: Vec::new(),
        }
    }

    fn content(start: &Start) -> usize {
        (0..5)
            .find(|c| Content::of(&wanted(0, *c)) == Content::of(&start.want))
            .expect("one of the five")
    }

    fn is_held(&self, content: usize) -> bool {
        self.held
            .get(&source(content))
            .is_some_and(|(_, until, _)| *until > self.now)
    }

    fn pools(&self, content: usize) -> BTreeSet<ObjectKey> {
        self.interest
            .iter()
            .filter(|(_, (c, _))| *c == content)
            .map(|(p, _)| pool(&p.to_string()))
            .collect()
    }

    fn started(&mut self, starts: Vec<Start>) {
        for start in starts {
            let content = Self::content(&start);
            assert!(
                self.pools(content).contains(&start.want.pool),
                "runs for a pool that wants it"
            );
            assert!(
                !(mutates(&start) && self.flights.values().any(mutates)),
                "two mutating flights at a time"
            );
            let (held, known) = (self.is_held(content), &mut self.known[content]);
            match (&start.task, known) {
                (Task::Prune(paths), Known::There { .. }) => {
                    assert!(
                        !paths.contains(&file(content).path),
                        "prunes what it announced"
                    );
                }
                (Task::Check(..), Known::There { looked, looking }) => {
                    assert!(!*looking && self.now >= *looked, "looks too often");
                    *looking = true;
                }
                (Task::Check(..) | Task::Transfer, known) => {
                    assert_eq!(*known, Known::Wanted, "nobody waits for content {content}");
                    *known = Known::Flying;
                    assert!(!held, "a try during the backoff");
                }
                (Task::Prune(_), known) => panic!("prune while {known:?}"),
                (Task::Clear(_), _) => panic!("nobody has left"),
            }
            assert!(
                self.flights.insert(start.id, start).is_none(),
                "flight ids are unique"
            );
        }
        // A free lane is never left idle while somebody waits for it.
        let lane_is_free = !self.flights.values().any(mutates);
        assert!(
            !(lane_is_free && self.known.contains(&Known::Wanted)),
            "{:?} and nothing flies",
            self.known
        );
    }

    /// What nobody wants any more is forgotten.
    fn forget(&mut self, name: u8) {
        let now = self.now;
        self.interest
            .retain(|p, (_, at)| *p == name || now - *at < FORGET);
        self.let_go();
    }

    fn let_go(&mut self) {
        let now = self.now;
        for c in 0..5 {
            if self.pools(c).is_empty() && self.known[c] != Known::Flying {
                (self.known[c], self.gone[c]) = (Known::Nothing, false);
                let looks = self
                    .flights
                    .extract_if(.., |_, s| !mutates(s) && Self::content(s) == c);
                self.stale.extend(looks.map(|(id, _)| id));
            }
        }
        let alive: BTreeSet<usize> = (0..5)
            .filter(|c| !self.pools(*c).is_empty() || self.known[*c] == Known::Flying)
            .map(source)
            .collect();
        self.held
            .retain(|source, (_, until, _)| *until > now || alive.contains(source));
    }

    /// `hints`: the record names the file; retention lets some go; the record lists the name that is to be published.
    fn ask(&mut self, name: u8, content: usize, hints: (bool, bool, bool)) -> Kind {
        let (known, prunable, listed) = hints;
        // A pool that comes with another want has left the one before; so has one that was away for long, unless it
        // asks for the same again.
        let same = self.interest.get(&name).is_some_and(|(c, _)| *c == content);
        if !same {
            self.interest.remove(&name);
        }
        self.forget(name);
        self.interest.insert(name, (content, self.now));
        if listed {
            self.listed.insert(name)
        } else {
            self.listed.remove(&name)
        };
        let lost = self.lost();
        let given = self.publishing.remove(&content).filter(|wait| {
            if !listed {
                self.publishing.insert(content, wait.clone());
            }
            listed
        });
        let expected = match self.known[content] {
            Known::There { .. } => Kind::Ready,
            Known::Nothing if self.is_held(content) => Kind::Failed,
            Known::Nothing => {
                self.known[content] = Known::Wanted;
                Kind::Fetching
            }
            Known::Wanted | Known::Flying => Kind::Fetching,
        };
        // A try hides an outage of vCenter only once bytes go there.
        let held = self.held.get(&source(content));
        let outage = held.is_some_and(|(.., side)| *side == ErrorSource::Vsphere);
        let expected = match expected {
            Kind::Fetching if outage && !self.coming.contains(&content) => Kind::Failed,
            Kind::Fetching if self.publishing.contains_key(&content) => Kind::Publishing,
            other => other,
        };
        // Whose record gives it to VMs hears of that first.
        let expected = match expected {
            Kind::Ready => Kind::Ready,
            _ if known && self.gone[content] => Kind::Lost,
            other => other,
        };
        let known = known.then(|| file(content));
        let used = known.as_ref().map(|file| file.path.clone());
        let prunable = if prunable {
            [7, 8, content].map(|c| file(c).path).to_vec()
        } else {
            Vec::new()
        };
        let (answer, starts) = self.table.ask(
            IsoWant {
                known,
                used,
                prunable,
                listed: listed.then(|| file(content).path).into_iter().collect(),
                ..wanted(name, content)
            },
            self.now,
        );
        self.are_told(&lost);
        assert!(
            given.is_none_or(|wait| *wait.borrow()),
            "listed, and no leave"
        );
        for wait in self.publishing.values() {
            assert_eq!(
                wait.has_changed().ok(),
                Some(false),
                "leave that nobody gave"
            );
        }
        self.started(starts);
        let kind = match answer {
            IsoState::Fetching { .. } => Kind::Fetching,
            IsoState::Queued(first) => {
                let uploads = |s: &Start| s.task == Task::Transfer && s.want.pool == first;
                assert!(self.flights.values().any(uploads), "waits for {first}");
                Kind::Fetching
            }
            IsoState::Lost(gone) => {
                assert_eq!(gone, file(content).path);
                Kind::Lost
            }
            IsoState::Publishing(place) => {
                assert_eq!(place.path, file(content).path);
                Kind::Publishing
            }
            IsoState::Ready { file: there, .. } => {
                assert_eq!(there, file(content));
                Kind::Ready
            }
            IsoState::Failed(_) => Kind::Failed,
        };
        assert_eq!(kind, expected, "content {content}: {:?}", self.known);
        let pool = pool(&name.to_string());
        if kind == Kind::Ready {
            self.asleep.remove(&pool)
        } else {
            self.asleep.insert(pool)
        };
        kind
    }

    /// Waits for leave to publish what nobody wants any more, and notes the transfers of it.
    fn lost(&mut self) -> Vec<watch::Receiver<bool>> {
        let lost: Vec<usize> = (0..5).filter(|c| self.pools(*c).is_empty()).collect();
        let transfers = self.flights.values();
        let transfers = transfers.filter(|start| start.task == Task::Transfer);
        let of_lost = transfers.filter(|start| lost.contains(&Self::content(start)));
        self.recalled.extend(of_lost.map(|start| start.id));
        lost.iter()
            .filter_map(|c| self.publishing.remove(c))
            .collect()
    }

    /// Those whom nobody wants know it, and nobody else does.
    fn are_told(&self, lost: &[watch::Receiver<bool>]) {
        for wait in lost {
            assert!(
                wait.has_changed().is_err(),
                "waits although nobody wants it"
            );
        }
        for (id, start) in &self.flights {
            assert_eq!(
                start.wanted.is_over(),
                self.recalled.contains(id),
                "flight {id}"
            );
        }
    }

    fn nth(&self, n: usize) -> Option<(u64, usize, Task)> {
        let start = self.flights.values().nth(n % self.flights.len().max(1))?;
        Some((start.id, Self::content(start), start.task.clone()))
    }

    /// A flight ends with this news; checks who is woken, and lets the table start the next.
    fn end(&mut self, id: u64, news: FlightNews, must_wake: &BTreeSet<ObjectKey>) {
        let ended = self.flights.remove(&id);
        if let Some(start) = ended.as_ref().filter(|start| mutates(start)) {
            self.coming.remove(&Self::content(start));
            self.publishing.remove(&Self::content(start));
        }
        if let Some(content) = ended.map(|start| Self::content(&start))
            && self.pools(content).is_empty()
        {
            (self.known[content], self.gone[content]) = (Known::Nothing, false);
        }
        let turn = self.table.news(id, news, self.now);
        assert!(
            must_wake.is_subset(&turn.wake),
            "{must_wake:?} wait, woken are {:?}",
            turn.wake
        );
        self.asleep.retain(|p| !turn.wake.contains(p));
        self.started(turn.start);
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Ask {
                pool,
                content,
                known,
                prunable,
                listed,
            } => {
                self.ask(pool, content, (known, prunable, listed));
            }
            Op::Publish(n) => {
                let Some((id, content, Task::Transfer)) = self.nth(n) else {
                    return;
                };
                let IsoFile { sha256, path, .. } = file(content);
                let (leave, wait) = PublishPermit::pair();
                let news = FlightNews::Publishing(IsoPlace { sha256, path }, leave);
                let turn = self.table.news(id, news, self.now);
                assert!(turn.start.is_empty());
                if self.recalled.contains(&id) {
                    assert!(turn.wake.is_empty() && wait.has_changed().is_err());
                    return;
                }
                let pools = self.pools(content);
                assert_eq!(turn.wake, pools, "whoever can list it hears of it");
                self.asleep.retain(|p| !turn.wake.contains(p));
                self.coming.insert(content);
                let lists = |p: &u8| pools.contains(&pool(&p.to_string()));
                if self.listed.iter().any(lists) {
                    assert!(*wait.borrow(), "listed already");
                } else if pools.is_empty() {
                    assert!(wait.has_changed().is_err(), "nobody wants it");
                } else {
                    self.publishing.insert(content, wait);
                }
            }
            Op::Pass(seconds) => self.pass(Duration::from_secs(seconds)),
            Op::Progress(n) => {
                let Some((id, content, Task::Transfer)) = self.nth(n) else {
                    return;
                };
                let turn = self
                    .table
                    .news(id, FlightNews::Progress(1, Some(2)), self.now);
                assert!(turn.start.is_empty() && turn.wake.is_subset(&self.pools(content)));
                self.asleep.retain(|p| !turn.wake.contains(p));
                self.coming.insert(content);
                if !turn.wake.is_empty()
                    && let Some(before) = self.told.insert(id, self.now)
                {
                    assert!(self.now - before >= PROGRESS_WAKE, "woken too often");
                }
            }
            Op::Arrive(n) => {
                let Some((id, content, task)) = self.nth(n) else {
                    return;
                };
                if let Task::Prune(paths) = task {
                    return self.end(id, FlightNews::Pruned(paths, Vec::new()), &BTreeSet::new());
                }
                let waited = self.known[content] == Known::Flying;
                let wake = if waited {
                    self.pools(content)
                } else {
                    BTreeSet::new()
                };
                self.held.remove(&source(content));
                self.gone[content] = false;
                self.known[content] = Known::There {
                    looked: self.now + RECHECK,
                    looking: false,
                };
                self.end(id, FlightNews::Arrived(file(content), false), &wake);
            }
            Op::Miss(n) => {
                while let Some(id) = self.stale.pop() {
                    let turn = self.table.news(id, FlightNews::Missing, self.now);
                    assert!(
                        turn.wake.is_empty() && turn.start.is_empty(),
                        "heeds news of the forgotten"
                    );
                }
                let Some((id, content, Task::Check(..))) = self.nth(n) else {
                    return;
                };
                let was_there = matches!(self.known[content], Known::There { .. });
                let wake = if was_there {
                    self.pools(content)
                } else {
                    BTreeSet::new()
                };
                self.known[content] = if self.is_held(content) {
                    Known::Nothing
                } else {
                    Known::Wanted
                };
                self.gone[content] = true;
                self.end(id, FlightNews::Missing, &wake);
            }
            Op::Recall(n) => {
                let Some((id, content, Task::Transfer)) = self.nth(n) else {
                    return;
                };
                if !self.recalled.contains(&id) {
                    return;
                }
                // It is no failure: whoever came to want it meanwhile gets another flight, in turn.
                let held = self.is_held(content);
                self.known[content] = if held { Known::Nothing } else { Known::Wanted };
                let wake = if held {
                    self.pools(content)
                } else {
                    BTreeSet::new()
                };
                self.end(id, FlightNews::Recalled, &wake);
            }
            Op::PublishPermit(name) => {
                self.interest.remove(&name);
                self.let_go();
                let lost = self.lost();
                self.table.leave(&pool(&name.to_string()), self.now);
                self.are_told(&lost);
            }
            Op::Fail(n, blocked, side) => {
                let Some((id, content, task)) = self.nth(n) else {
                    return;
                };
                let trouble = if blocked {
                    ReconcileError::blocked(side, "Told", "as told")
                } else {
                    ReconcileError::transient(side, "Told", "as told")
                };
                match task {
                    Task::Prune(_) => self.end(id, FlightNews::Failed(trouble), &BTreeSet::new()),
                    _ => self.fail(id, content, trouble),
                }
            }
        }
    }

    fn fail(&mut self, id: u64, content: usize, trouble: ReconcileError) {
        if let Known::There { .. } = self.known[content] {
            // Looked for in vain is not gone; but the next look comes earlier, after a backoff.
            let looked =
                self.now + backoff::delay(trouble.class, 1, "").min(Duration::from_millis(500));
            self.known[content] = Known::There {
                looked,
                looking: false,
            };
            return self.end(id, FlightNews::Failed(trouble), &BTreeSet::new());
        }
        self.known[content] = Known::Nothing;
        let mut wake = BTreeSet::new();
        for c in (0..5).filter(|c| source(*c) == source(content)) {
            if self.known[c] == Known::Wanted {
                self.known[c] = Known::Nothing;
            }
            if !matches!(self.known[c], Known::There { .. }) {
                wake.extend(self.pools(c));
            }
        }
        let want = wanted(0, content);
        let failures = self.held.get(&source(content)).map_or(1, |(n, ..)| n + 1);
        let delay = backoff::delay(
            trouble.class,
            failures,
            &format!("{}/{}", want.directory, want.source_key),
        )
        .max(super::backoff::HEARD);
        self.held
            .insert(source(content), (failures, self.now + delay, trouble.side));
        self.end(id, FlightNews::Failed(trouble), &wake);
    }

    /// Time passes, and the alarm rings when the table asked for it.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(due) = self.table.next_due().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            let woken = self.table.due(self.now);
            self.asleep.retain(|p| !woken.contains(p));
        }
        self.now = end;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Every answer is the model's, every flight is one that the model allows, whoever waits is woken, and once the
    /// world is well everybody who asks again gets the file.
    #[test]
    fn the_table_keeps_its_promises(ops in prop::collection::vec(op(), 1..60)) {
        let mut run = Run::new();
        for op in &ops {
            run.apply(op);
        }
        // All flights end well, time passes: nobody is left asleep.
        for _ in 0..20 {
            while !run.flights.is_empty() {
                run.apply(&Op::Arrive(0));
            }
            run.pass(Duration::from_secs(60));
        }
        let waiting: BTreeSet<_> = run.interest.keys().map(|p| pool(&p.to_string())).collect();
        let never: Vec<_> = run.asleep.intersection(&waiting).collect();
        prop_assert!(never.is_empty(), "never woken: {:?}", never);
        // And whoever asks gets it.
        for (name, (content, _)) in run.interest.clone() {
            let mut kind = run.ask(name, content, (false, false, false));
            while kind != Kind::Ready {
                prop_assert!(!run.flights.is_empty(), "nothing flies, nothing is there");
                while !run.flights.is_empty() {
                    run.apply(&Op::Arrive(0));
                }
                kind = run.ask(name, content, (false, false, false));
            }
        }
    }
}
