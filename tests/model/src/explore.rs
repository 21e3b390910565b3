//! The search: it looks at all states of a [`Model`], except those that another state covers.
//!
//! Two states may differ only in the faults that are left. The state with fewer faults left cannot do anything that the
//! other one cannot, and no promise depends on the number. So the search skips a state when it has seen the same one
//! with at least the same faults left ([`Spare`]). It begins with the states that have most left. A system that returns
//! from a fault to its former state therefore costs only the way back. `stateright` provides the language for models
//! and promises. Its own search does not use this rule (docs/adr/0016-less-left-is-nothing-new.md).
//!
//! Among states with the same faults left, shorter ways come first. The set of visited states depends on the number of
//! threads, but not on their speed.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    hash::Hash,
    sync::mpsc,
    thread,
};

use ahash::{AHashMap, RandomState};
use stateright::{Expectation, Model};

/// The part of a state that says only how much may still happen.
pub trait Spare: Model {
    /// That part as bits. A state that has all bits of another one can continue in all of its ways.
    fn spare(&self, state: &Self::State) -> u8;
    /// Digest of everything else.
    fn print(&self, state: &Self::State) -> u64;
}

/// Digest of a value, as the key of a table that stores the value.
pub type Digest = (u64, u64);

/// The same value has the same digest in all threads.
const fn hashes(seed: u64) -> RandomState {
    RandomState::with_seeds(seed, 2, 3, 4)
}

/// Digest of a state.
pub fn digest(state: &impl Hash) -> u64 {
    hashes(1).hash_one(state)
}

/// Digest of a value, twice as wide.
pub fn wide_digest(value: &(impl Hash + ?Sized)) -> Digest {
    (hashes(1).hash_one(value), hashes(5).hash_one(value))
}

/// Number of states in one piece of work.
const PIECE: usize = 64;

/// For each set of bits: all sets that are part of it, as a bit for each number.
struct Parts(Vec<[u64; 4]>);

impl Parts {
    fn new() -> Self {
        let part = |whole: u16| {
            let mut all = [0; 4];
            for n in (0..256u16).filter(|n| n & whole == *n) {
                all[usize::from(n / 64)] |= 1 << (n % 64);
            }
            all
        };
        Self((0..256).map(part).collect())
    }

    /// Notes these bits. Returns `false` if noted bits contain them already.
    fn note(&self, noted: &mut [u64; 4], bits: u8) -> bool {
        let new = noted[usize::from(bits / 64)] & 1 << (bits % 64) == 0;
        for (noted, part) in noted.iter_mut().zip(self.0[usize::from(bits)]) {
            *noted |= part;
        }
        new
    }
}

/// A state to look at, and how the search reached it.
struct Node<S> {
    state: S,
    number: u32,
    depth: u32,
}

/// A following state, and the index of the action that leads to it.
struct Next<S> {
    state: S,
    action: u16,
    print: u64,
    spare: u8,
}

/// What the look at one state found.
struct Looked<S> {
    number: u32,
    depth: u32,
    found: Vec<&'static str>,
    /// Number of transitions.
    ways: usize,
    /// The following states that this thread has not reported recently.
    next: Vec<Next<S>>,
}

/// States that a thread has reported recently. Most transitions lead to a state that was just met. It is cheaper to
/// drop such a state in the thread that made it.
struct Told(Vec<(u64, u8)>);

impl Told {
    /// A power of two.
    const ROOM: usize = 1 << 20;

    fn new() -> Self {
        Self(vec![(0, 0); Self::ROOM])
    }

    /// Notes this state. Returns `false` if it was reported with at least as much left.
    fn note(&mut self, print: u64, spare: u8) -> bool {
        #[allow(clippy::cast_possible_truncation, reason = "any bits will do")]
        let place = &mut self.0[print as usize % Self::ROOM];
        let new = place.0 != print || place.1 & spare != spare;
        if new {
            *place = (print, spare);
        }
        new
    }
}

/// Where a property was met. A promise was broken there, or a state was reached that has to be reachable.
pub struct Found<M: Model> {
    /// The actions that lead to the state.
    pub way: Vec<M::Action>,
    /// The state.
    pub last: M::State,
}

/// The result of a search.
pub struct Explored<M: Model> {
    /// Number of states.
    pub states: usize,
    /// Number of transitions.
    pub ways: usize,
    /// The greatest number of steps to a state.
    pub depth: u32,
    /// Whether the search saw everything.
    pub whole: bool,
    /// The properties that were met, by name.
    pub found: BTreeMap<&'static str, Found<M>>,
}

impl<M: Model> Explored<M> {
    /// Prints the size of the search and the way to each broken promise. Returns the names of all properties that were
    /// met.
    #[allow(
        clippy::print_stdout,
        reason = "the numbers are what a reader of a test looks for"
    )]
    pub fn told(&self, what: &str, promises: &[&'static str]) -> BTreeSet<&'static str>
    where
        M::Action: std::fmt::Debug,
    {
        println!(
            "{what}: {} states by {} transitions",
            self.states, self.ways
        );
        for (name, found) in &self.found {
            if promises.contains(name) {
                println!("{what}: {name}: {:#?}", found.way);
            }
        }
        self.found.keys().copied().collect()
    }
}

/// Explores all states with that many threads, or until one of the named promises is broken. Calls `progress` from time
/// to time with the number of states that were looked at and that wait. The search ends early if `progress` returns
/// false.
///
/// # Panics
/// More than 2^32 states.
pub fn explore<M>(
    model: &M,
    threads: usize,
    promises: &[&'static str],
    mut progress: impl FnMut(usize, usize) -> bool,
) -> Explored<M>
where
    M: Spare + Sync,
    M::State: Clone + Send,
{
    let parts = Parts::new();
    let mut seen: AHashMap<u64, [u64; 4]> = AHashMap::new();
    let mut ways: Vec<(u32, u16)> = Vec::new();
    let mut waiting: BTreeMap<u32, VecDeque<Node<M::State>>> = BTreeMap::new();
    let mut count = 0;
    let mut met: BTreeMap<&'static str, u32> = BTreeMap::new();
    let mut all = Explored {
        states: 0,
        ways: 0,
        depth: 0,
        whole: true,
        found: BTreeMap::new(),
    };
    let mut enter = |waiting: &mut BTreeMap<u32, VecDeque<_>>, from: u32, depth, next: Next<_>| {
        if !parts.note(seen.entry(next.print).or_default(), next.spare) {
            return 0;
        }
        let number = u32::try_from(ways.len()).expect("fewer states");
        ways.push((from, next.action));
        let node = Node {
            state: next.state,
            number,
            depth,
        };
        let spent = next.spare.count_zeros();
        waiting.entry(spent).or_default().push_back(node);
        1
    };
    for (n, state) in model.init_states().into_iter().enumerate() {
        let next = Next {
            action: u16::try_from(n).unwrap_or(u16::MAX),
            print: model.print(&state),
            spare: model.spare(&state),
            state,
        };
        count += enter(&mut waiting, u32::MAX, 0, next);
    }
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1))
            .map(|_| {
                let (give, work) = mpsc::channel::<Vec<Node<M::State>>>();
                let (done, take) = mpsc::channel();
                scope.spawn(move || {
                    let mut told = Told::new();
                    for piece in work {
                        let looked = piece.into_iter().map(|node| look(model, &mut told, node));
                        if done.send(looked.collect::<Vec<_>>()).is_err() {
                            return;
                        }
                    }
                });
                (give, take)
            })
            .collect();
        // Each thread has two pieces, and the results are taken in turn. So the pieces do not depend on the speed of
        // the threads.
        let mut given = VecDeque::new();
        for turn in 0_usize.. {
            while given.len() < 2 * workers.len()
                && let Some(mut first) = waiting.first_entry()
            {
                let line = first.get_mut();
                let piece: Vec<_> = line.drain(..line.len().min(PIECE)).collect();
                if line.is_empty() {
                    first.remove();
                }
                count -= piece.len();
                let worker = (turn + given.len()) % workers.len();
                if workers[worker].0.send(piece).is_err() {
                    return;
                }
                given.push_back(worker);
            }
            let Some(worker) = given.pop_front() else {
                return;
            };
            let Ok(looked) = workers[worker].1.recv() else {
                return;
            };
            for looked in looked {
                all.states += 1;
                all.depth = all.depth.max(looked.depth);
                all.ways += looked.ways;
                for name in looked.found {
                    met.entry(name).or_insert(looked.number);
                }
                for next in looked.next {
                    count += enter(&mut waiting, looked.number, looked.depth + 1, next);
                }
            }
            let broken = promises.iter().any(|name| met.contains_key(name));
            if broken || !progress(all.states, count) {
                all.whole = false;
                return;
            }
        }
    });
    let found = |(name, number)| (name, way_to(model, &ways, number));
    all.found = met.into_iter().map(found).collect();
    all
}

fn look<M: Spare>(model: &M, told: &mut Told, node: Node<M::State>) -> Looked<M::State> {
    let met = |p: &stateright::Property<M>| {
        let wanted = !matches!(p.expectation, Expectation::Always);
        (p.condition)(model, &node.state) == wanted
    };
    let found = model.properties().into_iter().filter(met).map(|p| p.name);
    let found = found.collect();
    let mut actions = Vec::new();
    model.actions(&node.state, &mut actions);
    let (mut ways, mut next) = (0, Vec::new());
    for (n, action) in actions.into_iter().enumerate() {
        let Some(state) = model.next_state(&node.state, action) else {
            continue;
        };
        ways += 1;
        let (print, spare) = (model.print(&state), model.spare(&state));
        if told.note(print, spare) {
            next.push(Next {
                action: u16::try_from(n).unwrap_or(u16::MAX),
                print,
                spare,
                state,
            });
        }
    }
    Looked {
        number: node.number,
        depth: node.depth,
        found,
        ways,
        next,
    }
}

/// Follows the way to that state again.
fn way_to<M: Model>(model: &M, ways: &[(u32, u16)], number: u32) -> Found<M> {
    let mut steps = Vec::new();
    let mut at = number;
    while let Some(&(from, action)) = ways.get(at as usize) {
        steps.push(usize::from(action));
        at = from;
    }
    let mut steps = steps.into_iter().rev();
    let mut begin = model.init_states();
    let mut last = begin.swap_remove(steps.next().unwrap_or(0));
    let mut way = Vec::new();
    for step in steps {
        let (mut here, mut same) = (Vec::new(), Vec::new());
        model.actions(&last, &mut here);
        model.actions(&last, &mut same);
        way.push(here.swap_remove(step));
        if let Some(next) = model.next_state(&last, same.swap_remove(step)) {
            last = next;
        }
    }
    Found { way, last }
}
