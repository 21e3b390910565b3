//! Two Leases in a small world: two operators of ours, a predecessor, our own Lease and the predecessor's Lease.
//!
//! The decisions are the product's: an [`Election`] for each Lease, [`Leadership::joined`] and [`Leadership::admits`].
//! The model plays what `src/lease.rs` does with them. An operator asks for the predecessor's Lease while it holds our
//! own. An operator that has to end releases both when its calls are over.
//!
//! Each call for a Lease is answered at once; `actors/src/runtime/lease/tests/world.rs` has one Lease whose calls are late,
//! lost and repeated. The predecessor follows client-go's rules, which are those of an [`Election`] without a fence:
//! it acts while it leads. So that the number of states is finite, moments are relative to [`Guarded::now`], and a
//! version is either current ([`CURRENT`]) or old.
//!
//! Not included: a predecessor that pauses and resumes. Nothing of ours can fence that.

use std::time::Duration;

use agent_forge_actors::{
    migration::lease::{Guard, Kin},
    runtime::lease::{Election, Leadership, Need, Next, Record, Timing},
};
use stateright::{Model, Property};

use crate::{
    explore::{self, Spare},
    world::{Budget, Fault},
};

const SECOND: Duration = Duration::from_secs(1);
/// The version that an object has. Every other version is old.
const CURRENT: &str = "current";
const OLD: &str = "old";
/// Our two operators, and last the predecessor.
const NAMES: [&str; 3] = ["a", "b", "agent-forge-operator"];
const PREDECESSOR: usize = 2;
/// Namespace of our own Lease.
const NAMESPACE: &str = "ours";

/// No two act at the same time. Calls that have not ended count too.
pub const ONE_ACTS: &str = "never do two act";
/// Once faults are over, one of them leads in time.
pub const LED: &str = "in the end somebody leads";
/// This has to happen in some state.
pub const HANDED_OVER: &str = "one of ours takes what one of ours held";
/// This has to happen in some state too.
pub const GIVEN_BACK: &str = "the predecessor leads after one of ours";
/// All promises.
pub const PROMISES: [&str; 2] = [ONE_ACTS, LED];

/// Our own Lease, or the predecessor's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Which {
    Own,
    Theirs,
}
use Which::{Own, Theirs};

/// A process that competes for Leases.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Candidate {
    /// For our own Lease and for the predecessor's.
    elections: [Election; 2],
    stands_still: bool,
    ends: bool,
    /// The number of seconds in which its calls may still have effects.
    effects: u64,
}

/// A state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// The holder of each Lease. `None` if the object does not exist or names no holder.
    holders: [Option<String>; 2],
    all: [Candidate; 3],
    ghost: u64,
    left: Budget,
    may_end: [bool; 3],
    /// The last takeover, if a property asks for it.
    news: Option<&'static str>,
}

/// What happens in a transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label {
    /// A second passes.
    Tick,
    /// A process does what is due with our own Lease (`false`) or with the predecessor's (`true`).
    Does(usize, bool),
    /// A process dies with its Pod, and another one replaces it.
    Dies(usize),
    /// An operator pauses.
    StandsStill(usize),
    /// It resumes.
    GoesOn(usize),
    /// A process is asked to end.
    Ends(usize),
    /// It releases its Leases, and another one replaces it.
    LetsGo(usize),
}

/// A planted defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Our own Lease is enough to act.
    OwnIsEnough,
    /// The predecessor counts as one of our operators.
    Fooled,
    /// A process asks for the predecessor's Lease without our own.
    Unordered,
    /// A process that paused until it lost our own Lease writes into the predecessor's.
    Asleep,
}

/// The model.
pub struct Guarded {
    timing: Timing,
    faults: Vec<Fault>,
    /// A planted defect. `None` to check the product.
    pub defect: Option<Defect>,
}

impl Guarded {
    /// A world with these faults, each at most once.
    pub fn new(timing: Timing, faults: &[Fault]) -> Self {
        Self {
            timing,
            faults: faults.to_vec(),
            defect: None,
        }
    }

    fn planted(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    fn now(&self) -> Duration {
        self.timing.duration() + SECOND
    }

    fn fresh(&self, n: usize) -> Candidate {
        let own = Election::new(NAMES[n].to_owned(), self.timing);
        let guard = Guard {
            kin: Kin::of(NAMESPACE),
            holds: true,
            required: false,
            follows: false,
        };
        let theirs = if n == PREDECESSOR {
            own.clone()
        } else {
            Election::guarding(NAMES[n], self.timing, guard)
        };
        Candidate {
            elections: [own, theirs],
            stands_still: false,
            ends: false,
            effects: 0,
        }
    }

    fn name(&self, n: usize, which: Which) -> String {
        if which == Own || n == PREDECESSOR {
            NAMES[n].to_owned()
        } else {
            Kin::of(NAMESPACE).named(NAMES[n])
        }
    }

    fn machine_state(&self, n: usize, w: &World) -> Leadership {
        let each = w.all[n]
            .elections
            .each_ref()
            .map(|e| match e.leads_until() {
                Some(until) => Leadership::Leading { until },
                None => Leadership::Standby,
            });
        if n == PREDECESSOR {
            // It has no fence: it ends when it could not renew.
            let until = match each[1] {
                Leadership::Leading { until } => until - self.timing.call_bound(),
                _ => Duration::ZERO,
            };
            return Leadership::Leading { until };
        }
        if self.planted(Defect::OwnIsEnough) {
            return each[0].clone();
        }
        Leadership::joined(&each)
    }

    /// The content of a Lease.
    fn record(&self, w: &World, n: usize, which: Which) -> Option<Record> {
        let holder = w.holders[which as usize].clone()?;
        let is_kin = self.planted(Defect::Fooled) && n != PREDECESSOR && which == Theirs;
        let holder = if is_kin && holder == NAMES[PREDECESSOR] {
            Kin::of(NAMESPACE).named(&holder)
        } else {
            holder
        };
        Some(Record {
            version: CURRENT.to_owned(),
            holder: Some(holder).filter(|h| !h.is_empty()),
            duration: self.timing.duration(),
        })
    }

    /// What `n` has to do with that Lease now.
    fn next(&self, w: &World, n: usize, which: Which) -> Next {
        let now = self.now();
        let [own, theirs] = &w.all[n].elections;
        match which {
            Own if n == PREDECESSOR => Next::Wait(SECOND),
            Own => own.next(now),
            Theirs if n == PREDECESSOR || self.planted(Defect::Unordered) => theirs.next(now),
            Theirs => match own.leads_until() {
                Some(_) if self.planted(Defect::Asleep) => theirs.next(now),
                Some(until) => theirs.next_beside(now, &Leadership::Leading { until }),
                None => Next::Wait(SECOND),
            },
        }
    }

    /// Writes a holder into a Lease. What others have seen of the Lease is old then.
    fn write(&self, w: &mut World, which: Which, holder: String) {
        let before = w.holders[which as usize].replace(holder.clone());
        let before = before.unwrap_or_default();
        let kin = Kin::of(NAMESPACE);
        if which == Theirs && before != holder {
            let ours = [&before, &holder].map(|h| kin.includes(h));
            w.news = match ours {
                [true, true] => Some(HANDED_OVER),
                [_, false] if holder == NAMES[PREDECESSOR] && w.news == Some(LED) => {
                    Some(GIVEN_BACK)
                }
                // An operator of ours held the Lease, or released it.
                [_, true] => Some(LED),
                _ => w.news.filter(|n| *n == LED && holder.is_empty()),
            };
        }
        for candidate in &mut w.all {
            let election = &mut candidate.elections[which as usize];
            *election = election.retold(
                self.now(),
                |at| at,
                |r| Record {
                    version: OLD.to_owned(),
                    ..r.clone()
                },
            );
        }
    }

    fn does(&self, w: &mut World, n: usize, which: Which) {
        let now = self.now();
        match self.next(w, n, which) {
            Next::Wait(_) | Next::Clear(_) => {}
            Next::Lost(_) => self.restarts(w, n),
            Next::Read => {
                let shown = self.record(w, n, which);
                w.all[n].elections[which as usize].shown(now, shown);
            }
            Next::Create if w.holders[which as usize].is_none() => self.holds(w, n, which),
            Next::Replace { version, .. } if version == CURRENT => self.holds(w, n, which),
            Next::Create | Next::Replace { .. } => {
                // After a conflict, what it saw before does not matter any more.
                let election = &mut w.all[n].elections[which as usize];
                election.shown(Duration::ZERO, None);
                election.failed(now);
            }
        }
    }

    fn holds(&self, w: &mut World, n: usize, which: Which) {
        self.write(w, which, self.name(n, which));
        w.all[n].elections[which as usize].written(self.now(), CURRENT.to_owned());
    }

    /// Starts again in the same Pod, under the same name.
    fn restarts(&self, w: &mut World, n: usize) {
        let effects = w.all[n].effects;
        w.all[n] = self.fresh(n);
        w.all[n].effects = effects;
    }

    /// Another process replaces it. A Lease that it holds keeps the name of a process that is gone.
    fn is_replaced(&self, w: &mut World, n: usize) {
        w.ghost = w.ghost.max(w.all[n].effects);
        for which in [Own, Theirs] {
            let name = self.name(n, which);
            let gone = name.clone() + "-gone";
            let rename = |holder: &Option<String>| match holder {
                Some(holder) if *holder == name => Some(gone.clone()),
                other => other.clone(),
            };
            let holder = &mut w.holders[which as usize];
            *holder = rename(holder);
            for candidate in &mut w.all {
                let election = &mut candidate.elections[which as usize];
                *election = election.retold(
                    self.now(),
                    |at| at,
                    |r| Record {
                        holder: rename(&r.holder),
                        ..r.clone()
                    },
                );
            }
        }
        w.all[n] = self.fresh(n);
    }

    fn has_to_do(&self, w: &World, n: usize) -> bool {
        let due = |which| !matches!(self.next(w, n, which), Next::Wait(_));
        !w.all[n].stands_still && (due(Own) || due(Theirs) || self.may_let_go(w, n))
    }

    fn may_let_go(&self, w: &World, n: usize) -> bool {
        let candidate = &w.all[n];
        candidate.ends && candidate.effects == 0 && !candidate.stands_still
    }

    fn lets_go(&self, w: &mut World, n: usize) {
        for which in [Theirs, Own] {
            let version = w.all[n].elections[which as usize].to_release();
            if version == Some(CURRENT) {
                self.write(w, which, String::new());
            }
        }
        self.is_replaced(w, n);
    }

    fn tick(&self, w: &mut World) {
        let earlier = |at: Duration| at.saturating_sub(SECOND);
        let later = self.now() + SECOND;
        for candidate in &mut w.all {
            for election in &mut candidate.elections {
                *election = election.retold(later, earlier, Record::clone);
            }
            candidate.effects = candidate.effects.saturating_sub(1);
        }
        w.ghost = w.ghost.saturating_sub(1);
    }

    /// Each process that may act does so.
    fn settle(&self, w: &mut World) {
        let (now, bound) = (self.now(), self.timing.call_bound());
        for n in 0..NAMES.len() {
            let machine_state = self.machine_state(n, w);
            let bound = if n == PREDECESSOR { SECOND } else { bound };
            let bound = if machine_state.admits(Need::Begin, now, bound).is_err() {
                continue;
            } else {
                bound
            };
            let need = if n == PREDECESSOR {
                Need::Begin
            } else {
                Need::Whole
            };
            let candidate = &mut w.all[n];
            let idle = candidate.stands_still || candidate.ends;
            if machine_state.admits(need, now, bound).is_ok() && !idle {
                candidate.effects = bound.as_secs();
            }
        }
    }

    fn after(&self, w: &World, label: Label) -> Option<World> {
        let mut w = w.clone();
        let spend = |w: &mut World, fault: Fault| {
            let may = w.left.has(fault);
            w.left.spend(fault);
            may.then_some(())
        };
        match label {
            Label::Tick => {
                if (0..NAMES.len()).any(|n| self.has_to_do(&w, n)) {
                    return None;
                }
                self.tick(&mut w);
            }
            Label::Does(n, own) => {
                if w.all[n].stands_still {
                    return None;
                }
                self.does(&mut w, n, if own { Own } else { Theirs });
            }
            Label::Dies(n) => {
                spend(&mut w, Fault::Crash)?;
                self.is_replaced(&mut w, n);
            }
            Label::StandsStill(n) => {
                if n == PREDECESSOR {
                    return None;
                }
                spend(&mut w, Fault::Lag)?;
                w.all[n].stands_still = true;
            }
            Label::GoesOn(n) => {
                if !w.all[n].stands_still {
                    return None;
                }
                w.all[n].stands_still = false;
            }
            Label::Ends(n) => {
                if !std::mem::take(&mut w.may_end[n]) {
                    return None;
                }
                w.all[n].ends = true;
            }
            Label::LetsGo(n) => {
                if !self.may_let_go(&w, n) {
                    return None;
                }
                self.lets_go(&mut w, n);
            }
        }
        self.settle(&mut w);
        Some(w)
    }

    fn acting(w: &World) -> usize {
        let living = w.all.iter().filter(|c| c.effects > 0).count();
        living + usize::from(w.ghost > 0)
    }

    fn leading(&self, w: &World) -> usize {
        let leads = |n: &usize| {
            let machine_state = self.machine_state(*n, w);
            machine_state
                .admits(Need::Begin, self.now(), SECOND)
                .is_ok()
        };
        (0..NAMES.len()).filter(leads).count()
    }

    /// Whether one of them leads in time once nothing more goes wrong. Each Lease may have to expire once.
    fn is_led(&self, w: &World) -> bool {
        let mut w = w.clone();
        for candidate in &mut w.all {
            candidate.stands_still = false;
        }
        let lease = self.timing.duration() + self.timing.call_bound();
        for _ in 0..=2 * lease.as_secs() + 4 {
            while let Some(n) = (0..NAMES.len()).find(|n| self.has_to_do(&w, *n)) {
                let due = |which| !matches!(self.next(&w, n, which), Next::Wait(_));
                match [Own, Theirs].into_iter().find(|which| due(*which)) {
                    Some(which) => self.does(&mut w, n, which),
                    None => self.lets_go(&mut w, n),
                }
                self.settle(&mut w);
            }
            if self.leading(&w) > 0 {
                return true;
            }
            self.tick(&mut w);
            self.settle(&mut w);
        }
        false
    }
}

impl Spare for Guarded {
    fn spare(&self, w: &World) -> u8 {
        let may_end = w.may_end.iter().enumerate();
        let ends = may_end.map(|(n, may)| u8::from(*may) << n).sum::<u8>();
        w.left.bits() | ends << Fault::ALL.len()
    }

    fn print(&self, w: &World) -> u64 {
        explore::digest(&(&w.holders, &w.all, w.ghost, w.news))
    }
}

impl Model for Guarded {
    type State = World;
    type Action = Label;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            holders: [None, None],
            all: [0, 1, PREDECESSOR].map(|n| self.fresh(n)),
            ghost: 0,
            left: Budget::of(&self.faults),
            may_end: [true; 3],
            news: None,
        }]
    }

    fn actions(&self, _: &World, actions: &mut Vec<Label>) {
        actions.push(Label::Tick);
        for n in 0..NAMES.len() {
            actions.extend([
                Label::Does(n, true),
                Label::Does(n, false),
                Label::Dies(n),
                Label::StandsStill(n),
                Label::GoesOn(n),
                Label::Ends(n),
                Label::LetsGo(n),
            ]);
        }
    }

    fn next_state(&self, w: &World, label: Label) -> Option<World> {
        // States after a broken promise show nothing new.
        if Self::acting(w) > 1 {
            return None;
        }
        self.after(w, label).filter(|next| next != w)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ONE_ACTS, |_, w| Self::acting(w) <= 1),
            Property::always(LED, |m: &Self, w| m.is_led(w)),
            Property::sometimes(HANDED_OVER, |_, w: &World| w.news == Some(HANDED_OVER)),
            Property::sometimes(GIVEN_BACK, |_, w: &World| w.news == Some(GIVEN_BACK)),
        ]
    }
}
