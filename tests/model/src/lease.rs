//! The Lease in a small world: two operators, each with its own [`Election`], one Lease object, and calls that take
//! time or go wrong.
//!
//! The decisions are the product's. [`Election`] decides what to do next. [`Leadership::admits`] decides whether a
//! mutating call may begin. The model plays what `src/lease.rs` does with them: it makes one call after the other,
//! notes the time before each call, and reports failures as failures. An operator begins a mutating call whenever the
//! fence admits it, and the call takes as long as it may.
//!
//! So that the number of states is finite:
//! - Time moves in steps of a second for both, after every running process has done what is due. Moments are relative
//!   to [`World::now`]. All moments further back than any timeout count as one.
//! - resourceVersions only show which are equal to the object's version or to each other, for each operator.
//! - What cannot have an effect any more is forgotten. That is the question of a call once its outcome is known, and
//!   what an operator saw before its next question. A write on an old version has failed. A test checks that this
//!   leaves the same worlds (`Leases::forgets`).
//! - Every process that is gone for good, but may still hold the Lease, has the name `gone`.
//!
//! Not included: clocks with different speeds, a Lease that somebody else deletes or edits, a third operator.

mod forms;

use std::{fmt, time::Duration};

use agent_forge_actors::runtime::lease::{Election, Leadership, Need, Next, Record, Timing};
use stateright::{Model, Property};

use crate::{
    explore::{self, Spare},
    world::{Budget, Fault},
};

/// One step of time.
const SECOND: Duration = Duration::from_secs(1);
/// The name of every process that is gone for good.
const GONE: &str = "gone";
/// Names of the operators.
const NAMES: [&str; 2] = ["a", "b"];

/// No two act at the same time. Calls that have not ended count too.
pub const ONE_ACTS: &str = "never two operators act";
/// No two believe that they lead.
pub const ONE_LEADS: &str = "never two operators lead";
/// Once faults are over, one of them leads in time.
pub const LED: &str = "in the end somebody leads";
/// This has to happen in some state.
pub const TAKEN: &str = "the other one takes what was let go";
/// All promises.
pub const PROMISES: [&str; 3] = [ONE_ACTS, ONE_LEADS, LED];

/// What a call asks the API server for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Ask {
    Read,
    /// Write `holder` into the object of this version, or create the object.
    Write {
        version: Option<u64>,
        holder: Option<&'static str>,
    },
}

/// The outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Fate {
    /// It has not arrived yet.
    Underway,
    Shown(Option<Lease>),
    Written(u64),
    /// It is refused, or no answer will come. Both are reported as a failure.
    Fails,
}

/// A call that an operator waits for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Call {
    ask: Ask,
    sent: Duration,
    fate: Fate,
}

/// The Lease object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Lease {
    version: u64,
    holder: Option<&'static str>,
}

/// One operator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Operator {
    election: Election,
    call: Option<Call>,
    /// It is paused: it does nothing while time passes.
    stands_still: bool,
    /// It was asked to end, and starts nothing any more.
    ends: bool,
    /// The number of seconds in which its mutating calls may still have effects.
    effects: u64,
}

/// A state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    lease: Option<Lease>,
    operators: [Operator; 2],
    /// A write that may still arrive although its sender has given up.
    late: Option<Ask>,
    /// The number of seconds in which mutating calls of processes that are gone for good may still have effects.
    ghost: u64,
    /// The faults that are left.
    left: Budget,
    /// Whether an operator may still be asked to end.
    may_end: bool,
    /// The operator that released the Lease in order, as long as no other one has taken it.
    let_go: Option<usize>,
}

/// What happens in a transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label {
    /// A second passes.
    Tick,
    /// An operator does what its election decides.
    Does(usize),
    /// Its call arrives.
    Arrives(usize),
    /// Its call arrives twice, and it gets the second answer.
    ArrivesTwice(usize),
    /// Its call is lost.
    IsLost(usize),
    /// Its call arrives, and the answer is lost.
    AnswerLost(usize),
    /// Its call arrives after it has given up, or never.
    Strays(usize),
    /// It gets the answer.
    Hears(usize),
    /// It gives the call up.
    GivesUp(usize),
    /// It pauses.
    StandsStill(usize),
    /// It resumes.
    GoesOn(usize),
    /// It dies and starts again in the same Pod.
    Restarts(usize),
    /// It dies with its Pod, and another one replaces it.
    Dies(usize),
    /// It is asked to end.
    Ends(usize),
    /// It has ended, releases the Lease, and another one replaces it. The fault is what happens to that write.
    LetsGo(usize, Option<Fault>),
    /// The late write arrives.
    Late,
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (who, what) = match *self {
            Self::Tick => return write!(f, "a second goes by"),
            Self::Late => return write!(f, "the late write arrives"),
            Self::Does(n) => (n, "does what is due"),
            Self::Arrives(n) => (n, "its call arrives"),
            Self::ArrivesTwice(n) => (n, "its call arrives twice"),
            Self::IsLost(n) => (n, "its call is lost"),
            Self::AnswerLost(n) => (n, "its call arrives, the answer is lost"),
            Self::Strays(n) => (n, "its call goes astray"),
            Self::Hears(n) => (n, "hears the answer"),
            Self::GivesUp(n) => (n, "gives its call up"),
            Self::StandsStill(n) => (n, "stands still"),
            Self::GoesOn(n) => (n, "goes on"),
            Self::Restarts(n) => (n, "dies, and starts anew in its Pod"),
            Self::Dies(n) => (n, "dies, and another one comes"),
            Self::Ends(n) => (n, "is told to end"),
            Self::LetsGo(n, None) => (n, "lets go"),
            Self::LetsGo(n, Some(fault)) => {
                return write!(f, "operator {}: lets go, {fault:?}", NAMES[n]);
            }
        };
        write!(f, "operator {}: {what}", NAMES[who])
    }
}

/// A planted defect, to check that the oracles find its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// A leader's time counts from the answer to its write.
    CountsFromAnswer,
    /// A candidate waits for a silent holder only as long as between two reads.
    Impatient,
    /// A candidate never takes the Lease from a silent holder.
    Shy,
    /// The API server does not compare versions.
    BlindWrites,
    /// An operator releases the Lease while its calls have not ended.
    LetsGoEarly,
    /// An operator does not release the Lease at its end.
    KeepsIt,
    /// The fence counts a call as over as soon as it begins.
    NoFence,
}

/// The model.
pub struct Leases {
    timing: Timing,
    faults: Vec<Fault>,
    /// An operator may be asked to end once.
    pub ends: bool,
    /// What cannot have an effect any more is forgotten.
    pub forgets: bool,
    /// A planted defect. `None` to check the product.
    pub defect: Option<Defect>,
}

fn seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

impl Leases {
    /// Two operators with these times, and these faults at most once each.
    pub fn new(timing: Timing, faults: &[Fault]) -> Self {
        Self {
            timing,
            faults: faults.to_vec(),
            ends: true,
            forgets: true,
            defect: None,
        }
    }

    /// The moment at which every state is looked at. Everything that matters fits before it.
    fn now(&self) -> Duration {
        self.timing.duration() + SECOND
    }

    fn planted(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    fn fresh(&self, name: &str) -> Operator {
        Operator {
            election: Election::new(name.to_owned(), self.timing),
            call: None,
            stands_still: false,
            ends: false,
            effects: 0,
        }
    }

    fn record(&self, lease: &Lease) -> Record {
        let duration = if self.planted(Defect::Impatient) {
            self.timing.retry_period()
        } else if self.planted(Defect::Shy) {
            self.timing.duration() * 1000
        } else {
            self.timing.duration()
        };
        Record {
            version: lease.version.to_string(),
            holder: lease.holder.map(str::to_owned),
            duration,
        }
    }

    fn serve(&self, w: &mut World, ask: &Ask) -> Fate {
        match ask {
            Ask::Read => Fate::Shown(w.lease.clone()),
            Ask::Write { version, holder } => {
                let blind = self.planted(Defect::BlindWrites) && w.lease.is_some();
                if w.lease.as_ref().map(|l| l.version) != *version && !blind {
                    return Fate::Fails;
                }
                let version = w.lease.as_ref().map_or(0, |l| l.version) + 1;
                let holder = *holder;
                if holder.is_some() {
                    w.let_go = None;
                }
                w.lease = Some(Lease { version, holder });
                Fate::Written(version)
            }
        }
    }

    fn next(&self, operator: &Operator) -> Next {
        operator.election.next(self.now())
    }

    /// Does what the election decides. An operator that has lost starts again.
    fn does(&self, w: &mut World, n: usize) {
        let ask = match self.next(&w.operators[n]) {
            Next::Wait(_) | Next::Clear(_) => return,
            Next::Lost(_) => return self.restarts(w, n),
            Next::Read => Ask::Read,
            Next::Create => Ask::Write {
                version: None,
                holder: Some(NAMES[n]),
            },
            Next::Replace { version, .. } => Ask::Write {
                version: version.parse().ok(),
                holder: Some(NAMES[n]),
            },
        };
        w.operators[n].call = Some(Call {
            ask,
            sent: self.now(),
            fate: Fate::Underway,
        });
    }

    fn hears(&self, w: &mut World, n: usize) {
        let Some(call) = w.operators[n].call.take() else {
            return;
        };
        let (now, election) = (self.now(), &mut w.operators[n].election);
        match call.fate {
            Fate::Shown(lease) => election.shown(now, lease.map(|l| self.record(&l))),
            Fate::Written(version) if self.planted(Defect::CountsFromAnswer) => {
                election.written(now, version.to_string());
            }
            Fate::Written(version) => election.written(call.sent, version.to_string()),
            Fate::Fails | Fate::Underway => {
                // After that, the time of its last read has no meaning.
                election.shown(Duration::ZERO, None);
                election.failed(now);
            }
        }
    }

    /// The container starts again in its Pod under the same name. Its calls continue.
    fn restarts(&self, w: &mut World, n: usize) {
        let effects = w.operators[n].effects;
        w.operators[n] = self.fresh(NAMES[n]);
        w.operators[n].effects = effects;
    }

    /// The Pod is gone, and another one with another name replaces it.
    fn is_replaced(&self, w: &mut World, n: usize) {
        w.ghost = w.ghost.max(w.operators[n].effects);
        let name = NAMES[n];
        self.rename(w, |holder| if holder == name { GONE } else { holder });
        w.operators[n] = self.fresh(name);
    }

    fn has_to_do(&self, operator: &Operator) -> bool {
        let now = self.now();
        match &operator.call {
            _ if operator.stands_still => false,
            Some(call) => now.saturating_sub(call.sent) >= self.timing.lease_call_bound(),
            None => !matches!(self.next(operator), Next::Wait(_)) || self.may_let_go(operator),
        }
    }

    fn may_let_go(&self, operator: &Operator) -> bool {
        operator.ends
            && operator.call.is_none()
            && (operator.effects == 0 || self.planted(Defect::LetsGoEarly))
            && matches!(self.next(operator), Next::Wait(_))
    }

    fn tick(&self, w: &mut World) {
        let now = self.now();
        let earlier = |at: Duration| at.saturating_sub(SECOND);
        for operator in &mut w.operators {
            // What ends within a second counts as ended then.
            operator.election = operator
                .election
                .retold(now + SECOND, earlier, Record::clone);
            if let Some(call) = &mut operator.call {
                call.sent = earlier(call.sent);
            }
            operator.effects = operator.effects.saturating_sub(1);
        }
        w.ghost = w.ghost.saturating_sub(1);
    }

    fn lets_go(&self, w: &mut World, n: usize, fault: Option<Fault>) {
        let version = w.operators[n].election.to_release();
        let version = version.and_then(|v| v.parse().ok());
        let ask = Ask::Write {
            version,
            holder: None,
        };
        let written = match fault {
            _ if version.is_none() => false,
            Some(Fault::Unknown) => {
                w.late = Some(ask);
                false
            }
            Some(_) => false,
            None if self.planted(Defect::KeepsIt) => true,
            None => matches!(self.serve(w, &ask), Fate::Written(_)),
        };
        w.let_go = written.then_some(n);
        self.is_replaced(w, n);
    }

    /// The state after that event. `None` if the event is impossible.
    fn after(&self, w: &World, label: Label) -> Option<World> {
        let mut w = w.clone();
        let spend = |w: &mut World, fault: Fault| {
            let may = w.left.has(fault);
            w.left.spend(fault);
            may.then_some(())
        };
        let underway = |w: &World, n: usize| {
            let call = w.operators[n].call.as_ref();
            call.filter(|c| c.fate == Fate::Underway)
                .map(|c| c.ask.clone())
        };
        let fated = |w: &mut World, n: usize, fate: Fate| {
            if let Some(call) = &mut w.operators[n].call {
                call.fate = fate;
            }
        };
        let runs = |w: &World, n: usize| !w.operators[n].stands_still;
        match label {
            Label::Tick => {
                if w.operators.iter().any(|o| self.has_to_do(o)) {
                    return None;
                }
                self.tick(&mut w);
            }
            Label::Does(n) => {
                if !runs(&w, n) || w.operators[n].call.is_some() {
                    return None;
                }
                self.does(&mut w, n);
            }
            Label::Arrives(n) => {
                let ask = underway(&w, n)?;
                let fate = self.serve(&mut w, &ask);
                fated(&mut w, n, fate);
            }
            Label::ArrivesTwice(n) => {
                let ask = underway(&w, n).filter(|ask| *ask != Ask::Read)?;
                spend(&mut w, Fault::Duplicate)?;
                self.serve(&mut w, &ask);
                let fate = self.serve(&mut w, &ask);
                fated(&mut w, n, fate);
            }
            Label::IsLost(n) => {
                underway(&w, n)?;
                spend(&mut w, Fault::Loss)?;
                fated(&mut w, n, Fate::Fails);
            }
            Label::AnswerLost(n) => {
                let ask = underway(&w, n).filter(|ask| *ask != Ask::Read)?;
                spend(&mut w, Fault::Unknown)?;
                self.serve(&mut w, &ask);
                fated(&mut w, n, Fate::Fails);
            }
            Label::Strays(n) => {
                let ask = underway(&w, n).filter(|ask| *ask != Ask::Read)?;
                spend(&mut w, Fault::Unknown)?;
                w.late = Some(ask);
                fated(&mut w, n, Fate::Fails);
            }
            Label::Hears(n) => {
                let call = w.operators[n].call.as_ref().filter(|_| runs(&w, n))?;
                if matches!(call.fate, Fate::Underway | Fate::Fails) {
                    return None;
                }
                self.hears(&mut w, n);
            }
            Label::GivesUp(n) => {
                let call = w.operators[n].call.as_ref().filter(|_| runs(&w, n))?;
                let waited = self.now().saturating_sub(call.sent);
                // A failure may be reported at once. A call that is slow without a reason is answered before its time
                // is over, unless its sender paused.
                let over = waited > self.timing.lease_call_bound();
                if call.fate != Fate::Fails && !over {
                    return None;
                }
                fated(&mut w, n, Fate::Fails);
                self.hears(&mut w, n);
            }
            Label::StandsStill(n) => {
                spend(&mut w, Fault::Lag)?;
                w.operators[n].stands_still = true;
            }
            Label::GoesOn(n) => {
                if runs(&w, n) {
                    return None;
                }
                w.operators[n].stands_still = false;
            }
            Label::Restarts(n) => {
                spend(&mut w, Fault::Crash)?;
                // A request that was sent may still arrive.
                let sent = underway(&w, n).filter(|ask| *ask != Ask::Read);
                w.late = w.late.take().or(sent);
                self.restarts(&mut w, n);
            }
            Label::Dies(n) => {
                spend(&mut w, Fault::Crash)?;
                // A request that was sent may still arrive.
                let sent = underway(&w, n).filter(|ask| *ask != Ask::Read);
                w.late = w.late.take().or(sent);
                self.is_replaced(&mut w, n);
            }
            Label::Ends(n) => {
                if !w.may_end || w.operators[n].ends {
                    return None;
                }
                w.may_end = false;
                w.operators[n].ends = true;
            }
            Label::LetsGo(n, fault) => {
                if !runs(&w, n) || !self.may_let_go(&w.operators[n]) {
                    return None;
                }
                if let Some(fault) = fault {
                    w.operators[n].election.to_release()?;
                    spend(&mut w, fault)?;
                }
                self.lets_go(&mut w, n, fault);
            }
            Label::Late => {
                let ask = w.late.take()?;
                self.serve(&mut w, &ask);
            }
        }
        self.settle(&mut w);
        Some(w)
    }

    /// Each operator that may act does so. Then the state is brought into its one form.
    fn settle(&self, w: &mut World) {
        let (now, bound) = (self.now(), self.timing.call_bound());
        for operator in &mut w.operators {
            let machine_state = match operator.election.leads_until() {
                Some(until) => Leadership::Leading { until },
                None => Leadership::Standby,
            };
            let needed = if self.planted(Defect::NoFence) {
                Duration::ZERO
            } else {
                bound
            };
            let begins = machine_state.admits(Need::Whole, now, needed).is_ok();
            if begins && !operator.stands_still && !operator.ends {
                operator.effects = seconds(bound);
            }
        }
        if self.forgets {
            self.forget(w);
        } else {
            self.rank(w);
        }
    }

    /// Whether one operator leads in time, without more faults and with every call answered at once. After a release,
    /// that is at the next read. Otherwise it is when the holder's time is over.
    pub fn is_led(&self, w: &World) -> bool {
        let mut w = w.clone();
        w.left = Budget::default();
        w.late = None;
        for operator in &mut w.operators {
            operator.stands_still = false;
            // The call that it waited for is over, with or without an answer.
            if let Some(call) = &mut operator.call
                && call.fate == Fate::Underway
            {
                call.fate = Fate::Fails;
            }
        }
        let looks = seconds(self.timing.retry_period());
        let within = match w.let_go {
            // One read of the other operator. The process that replaces the releasing one does not exist yet.
            Some(_) => looks + 1,
            // An operator has just seen the holder, or has to end first. One read follows, and one that failed.
            None => seconds(self.timing.duration()) + seconds(self.timing.call_bound()) + 3 * looks,
        };
        let absent = w.let_go;
        for _ in 0..=within {
            self.runs_on(&mut w, absent);
            if self.leading(&w) > 0 {
                return true;
            }
            self.tick(&mut w);
            self.settle(&mut w);
        }
        false
    }

    /// Every operator except `absent` does all that is due now, and every call is answered at once.
    fn runs_on(&self, w: &mut World, absent: Option<usize>) {
        let all = 0..w.operators.len();
        let present: Vec<usize> = all.filter(|n| Some(*n) != absent).collect();
        while let Some(&n) = present.iter().find(|n| self.has_more(&w.operators[**n])) {
            if let Some(Call { ask, fate, .. }) = w.operators[n].call.clone() {
                let served = match fate {
                    Fate::Underway => self.serve(w, &ask),
                    fate => fate,
                };
                if let Some(call) = &mut w.operators[n].call {
                    call.fate = served;
                }
                self.hears(w, n);
            } else if self.may_let_go(&w.operators[n]) {
                self.lets_go(w, n, None);
            } else {
                self.does(w, n);
            }
            self.settle(w);
        }
    }

    fn has_more(&self, operator: &Operator) -> bool {
        operator.call.is_some() || self.has_to_do(operator)
    }

    /// How many act, including processes that are gone for good.
    fn acting(w: &World) -> usize {
        let living = w.operators.iter().filter(|o| o.effects > 0).count();
        living + usize::from(w.ghost > 0)
    }

    fn leading(&self, w: &World) -> usize {
        let leads = |o: &&Operator| o.election.leads_until().is_some_and(|u| u > self.now());
        w.operators.iter().filter(leads).count()
    }
}

impl Spare for Leases {
    /// The faults, and whether an operator may be asked to end.
    fn spare(&self, w: &World) -> u8 {
        w.left.bits() | u8::from(w.may_end) << Fault::ALL.len()
    }

    fn print(&self, w: &World) -> u64 {
        let print = |w: &World| {
            let World {
                lease,
                operators,
                late,
                ghost,
                left: _,
                may_end: _,
                let_go,
            } = w;
            explore::digest(&(lease, operators, late, ghost, let_go))
        };
        // The two operators are alike, so it does not matter which is which.
        print(w).min(print(&self.mirrored(w)))
    }
}

impl Model for Leases {
    type State = World;
    type Action = Label;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            lease: None,
            operators: NAMES.map(|name| self.fresh(name)),
            late: None,
            ghost: 0,
            left: Budget::of(&self.faults),
            may_end: self.ends,
            let_go: None,
        }]
    }

    fn actions(&self, w: &World, actions: &mut Vec<Label>) {
        actions.extend([Label::Tick, Label::Late]);
        for n in 0..w.operators.len() {
            actions.extend([
                Label::Does(n),
                Label::Arrives(n),
                Label::ArrivesTwice(n),
                Label::IsLost(n),
                Label::AnswerLost(n),
                Label::Strays(n),
                Label::Hears(n),
                Label::GivesUp(n),
                Label::StandsStill(n),
                Label::GoesOn(n),
                Label::Restarts(n),
                Label::Dies(n),
                Label::Ends(n),
                Label::LetsGo(n, None),
                Label::LetsGo(n, Some(Fault::Loss)),
                Label::LetsGo(n, Some(Fault::Unknown)),
            ]);
        }
    }

    fn next_state(&self, w: &World, label: Label) -> Option<World> {
        // States after a broken promise show nothing new.
        if Self::acting(w) > 1 || self.leading(w) > 1 {
            return None;
        }
        self.after(w, label).filter(|next| next != w)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ONE_ACTS, |_, w| Self::acting(w) <= 1),
            Property::always(ONE_LEADS, |m: &Self, w| m.leading(w) <= 1),
            Property::always(LED, |m: &Self, w| m.is_led(w)),
            Property::sometimes(TAKEN, |_, w: &World| {
                let taker = w.let_go.map(|n| &w.operators[1 - n]);
                let asks = taker.and_then(|o| o.call.as_ref()).map(|c| &c.ask);
                matches!(asks, Some(Ask::Write { .. }))
            }),
        ]
    }
}
