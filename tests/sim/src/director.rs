//! Stands between the operator and its world: counts effects, makes things go wrong where the plan says so, and keeps
//! the trace.
//!
//! Flow: the gate notes an effect ([`Director::admit`]); the request that carries it arrives at a door right after, and
//! takes the note up ([`Director::arrived`]): from then on door and plan decide what becomes of it.
//! Guarantee: a mutating request without a note is a panic: nothing writes past the gate.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use agent_forge_actors::ports::effect::{Effect, EffectKind, Gate, Held, Settled};
use async_trait::async_trait;
use tokio::{sync::mpsc, time::Instant};

use crate::{
    plan::{Fault, Plan, Point},
    traffic::Traffic,
};

/// One life of the operator's process.
#[derive(Debug)]
pub struct Life {
    /// From 1.
    pub number: u32,
    dead: AtomicBool,
}

impl Life {
    /// Whether it was killed: nothing of it reaches the world any more, and nothing reaches it.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// Kills it.
    pub fn kill(&self) {
        self.dead.store(true, Ordering::Relaxed);
    }
}

/// Waits for ever if the life is over.
pub async fn alive(life: Option<&Arc<Life>>) {
    if life.is_some_and(|l| l.is_dead()) {
        std::future::pending::<()>().await;
    }
}

/// An effect on its way to a door.
#[derive(Clone, Debug)]
pub struct Noted {
    /// What.
    pub effect: Effect,
    /// Which occurrence.
    pub nth: u32,
    /// What goes wrong with it.
    pub fault: Option<Fault>,
    /// Number of the life that it belongs to.
    pub life: u32,
}

impl Noted {
    /// As a point of plans.
    #[must_use]
    pub fn point(&self) -> Point {
        Point {
            effect: self.effect.kind.code(),
            key: self.effect.key.to_string(),
            nth: self.nth,
        }
    }
}

/// Who may let a run go on under another plan (`branches.rs`).
pub trait Branch: Send + Sync {
    /// The plan that the run goes on under from that point on, if not under the one it has; asked before it is decided what
    /// goes wrong there.
    fn at(&self, point: &Point) -> Option<Plan>;
}

/// What somebody outside the doors has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Kill the process and start another.
    Crash,
    /// Something around the point: what, for which object, in which life.
    Around(Fault, String, u32),
}

/// A time in which something did not serve the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// The vCenter's; else the API server's.
    pub of_vcenter: bool,
    /// Since when.
    pub from: Duration,
    /// Until when.
    pub until: Duration,
}

#[derive(Default)]
struct State {
    counts: BTreeMap<(EffectKind, String), u32>,
    plan: Plan,
    to_come: Vec<(Point, Fault)>,
    granted: Duration,
    /// No branching any more.
    settled: bool,
    on_their_way: VecDeque<Noted>,
    effects: Vec<(Duration, Point)>,
    hit: usize,
    lines: Vec<String>,
    hash: DefaultHasher,
    violations: Vec<String>,
    vcenter_away: Option<Instant>,
    api_away: Option<Instant>,
    disk_full: Option<Instant>,
    outages: Vec<Outage>,
    slow_until: Option<Instant>,
    lag_until: Option<Instant>,
    last_fault: Duration,
    jump: Duration,
    created: u32,
    lost: u32,
    mended: Option<Instant>,
    upstream_still: Option<Instant>,
    /// The life that acted last, by hub, and those that did before.
    acting: BTreeMap<u32, u32>,
    acted: BTreeSet<u32>,
    orders: Vec<mpsc::UnboundedSender<Order>>,
}

impl State {
    /// Notes who acts; true where somebody else has acted since that life did: once it is over, leadership never comes
    /// back to a process.
    fn comes_back(&mut self, life: u32) -> bool {
        let before = self.acting.insert(hub(life), life);
        if before == Some(life) {
            return false;
        }
        self.acted.extend(before);
        self.acted.contains(&life)
    }
}

/// See the module's contract. Cheap to clone.
#[derive(Clone)]
pub struct Director {
    /// What the operator asks for.
    pub traffic: Traffic,
    began: Instant,
    branch: Option<Arc<dyn Branch>>,
    state: Arc<Mutex<State>>,
}

/// Lives of the operator of another hub are counted from here on.
pub const ANOTHER_HUB: u32 = 1000;

/// The hub that a life belongs to.
#[must_use]
pub fn hub(life: u32) -> u32 {
    life / ANOTHER_HUB
}

/// Code of what is written to keep the lease, which a standby does as well.
pub const LEASE: &str = "K16";
/// Makes and ends the views that reads are made through.
const VIEW: &str = "V13";

/// Whether an effect changes something that lasts. Keeping the lease and reading go on at rest: a VM that is missing is looked
/// for as long as it is.
#[must_use]
pub fn is_deed(effect: &str) -> bool {
    ![LEASE, VIEW].contains(&effect)
}
/// Lines kept for the report of a failure.
const LINES: usize = 4000;

impl Director {
    /// A director of `plan`.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        let state = State {
            to_come: plan.faults.clone(),
            plan,
            ..State::default()
        };
        Self {
            traffic: Traffic::default(),
            began: Instant::now(),
            branch: None,
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Asks `branch` at every point from now on.
    #[must_use]
    pub fn branching(mut self, branch: Option<Arc<dyn Branch>>) -> Self {
        self.branch = branch;
        self
    }

    /// The plan that the run is under by now.
    #[must_use]
    pub fn plan(&self) -> Plan {
        self.state().plan.clone()
    }

    /// The plan that the run is under, and stays under from now on.
    #[must_use]
    pub fn settle(&self) -> Plan {
        self.state().settled = true;
        self.plan()
    }

    /// Beyond its cause, each planned fault may cost that much time.
    pub fn grant(&self, each: Duration) {
        self.state().granted = each;
    }

    /// How long the causes of all planned faults last in all, with what was granted for each.
    #[must_use]
    pub fn causes(&self) -> Duration {
        let state = self.state();
        let each = |lasts| lasts + state.granted;
        state.plan.lasts().map(each).sum()
    }

    /// Orders from now on, for who carries them out for one instance.
    #[must_use]
    pub fn orders(&self) -> mpsc::UnboundedReceiver<Order> {
        let (orders, receiver) = mpsc::unbounded_channel();
        self.state().orders.push(orders);
        receiver
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Time since the beginning of the world.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Adds a line to the trace.
    pub fn line(&self, text: impl FnOnce() -> String) {
        let (now, text) = (self.now(), text());
        let mut state = self.state();
        (now.as_millis(), &text).hash(&mut state.hash);
        if state.lines.len() < LINES {
            state
                .lines
                .push(format!("{:>10.3} {text}", now.as_secs_f64()));
        }
    }

    /// Hashes bytes into the trace without keeping them.
    pub fn digest(&self, bytes: &[u8]) {
        bytes.hash(&mut self.state().hash);
    }

    /// Hash of everything so far.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.state().hash.finish()
    }

    /// The trace.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.state().lines.clone()
    }

    /// Every effect so far, in order.
    #[must_use]
    pub fn effects(&self) -> Vec<(Duration, Point)> {
        self.state().effects.clone()
    }

    /// How many effects there were that change something ([`is_deed`]).
    #[must_use]
    pub fn deeds(&self) -> usize {
        let state = self.state();
        let deeds = state.effects.iter().filter(|(_, p)| is_deed(p.effect));
        deeds.count()
    }

    /// Planned faults that came about.
    #[must_use]
    pub fn hit(&self) -> usize {
        self.state().hit
    }

    /// When the last fault came about.
    #[must_use]
    pub fn last_fault(&self) -> Duration {
        self.state().last_fault
    }

    /// A promise was broken.
    pub fn violated(&self, what: impl Into<String>) {
        let what = what.into();
        self.line(|| format!("VIOLATED {what}"));
        let mut state = self.state();
        if state.violations.len() < 20 && !state.violations.contains(&what) {
            state.violations.push(what);
        }
    }

    /// Broken promises.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.state().violations.clone()
    }

    fn admit(&self, life: &Arc<Life>, effect: &Effect) {
        let now = self.now();
        let mut state = self.state();
        let count = state
            .counts
            .entry((effect.kind, effect.key.to_string()))
            .or_default();
        *count += 1;
        let mut noted = Noted {
            effect: effect.clone(),
            nth: *count,
            fault: None,
            life: life.number,
        };
        let point = noted.point();
        state.effects.push((now, point.clone()));
        let branch = self.branch.as_ref().filter(|_| !state.settled);
        if let Some(plan) = branch.and_then(|b| b.at(&point)) {
            state.to_come = plan.faults.clone();
            state.plan = plan;
        }
        if let Some(at) = state.to_come.iter().position(|(p, _)| *p == point) {
            let (_, fault) = state.to_come.remove(at);
            state.hit += 1;
            state.last_fault = now;
            noted.fault = Some(fault);
        }
        let fault = noted.fault;
        state.on_their_way.push_back(noted);
        let two = point.effect != LEASE && state.comes_back(life.number);
        drop(state);
        if two {
            self.violated(format!(
                "R11 two act: [{}] does {point}, and another has acted since it did",
                life.number
            ));
        }
        self.line(|| {
            let what = fault.map(|f| format!(" <- {} {}", f.code(), f.text()));
            format!(
                "[{}] {point} {}{}",
                life.number,
                effect.kind.name(),
                what.unwrap_or_default()
            )
        });
        if let Some(fault) = fault.filter(|f| !f.at_request()) {
            self.order(Order::Around(fault, effect.key.to_string(), life.number));
        }
    }

    /// Gives an order, to each instance: who it is for knows it.
    pub fn order(&self, order: Order) {
        // Nobody listens any more at the end of a run.
        let mut state = self.state();
        state.orders.retain(|to| to.send(order.clone()).is_ok());
    }

    /// The process dies here: nothing of this life goes on.
    pub fn crash(&self, life: &Life) {
        life.kill();
        self.line(|| format!("[{}] killed", life.number));
        self.forget_notes(life);
        self.order(Order::Crash);
    }

    /// Forgets effects whose requests will never come: their process is gone.
    pub fn forget_notes(&self, life: &Life) {
        let mut state = self.state();
        state.on_their_way.retain(|n| n.life != life.number);
    }

    /// The note of the effect whose request this is.
    ///
    /// # Panics
    /// A mutating request came without one.
    pub fn arrived(&self, life: &Life, what: &str, fits: impl Fn(&Effect) -> bool) -> Noted {
        let mut state = self.state();
        let mine = |n: &Noted| n.life == life.number && fits(&n.effect);
        let Some(at) = state.on_their_way.iter().position(mine) else {
            let waiting: Vec<String> = state
                .on_their_way
                .iter()
                .map(|n| n.point().to_string())
                .collect();
            drop(state);
            self.violated(format!(
                "{what} changes something and did not pass the gate (on their way: {waiting:?})"
            ));
            panic!("{what} did not pass the gate");
        };
        state
            .on_their_way
            .remove(at)
            .unwrap_or_else(|| unreachable!())
    }

    /// Takes the vCenter away for a while.
    pub fn take_vcenter(&self, lasting: Duration) {
        self.state().vcenter_away = Some(Instant::now() + lasting);
        self.outage(true, lasting);
    }

    /// Takes the API server away for a while.
    pub fn take_api(&self, lasting: Duration) {
        self.state().api_away = Some(Instant::now() + lasting);
        self.outage(false, lasting);
    }

    /// Notes that one of them does not serve the operator for a while.
    pub fn outage(&self, of_vcenter: bool, lasting: Duration) {
        let from = self.now();
        self.state().outages.push(Outage {
            of_vcenter,
            from,
            until: from + lasting,
        });
    }

    /// The outages so far.
    #[must_use]
    pub fn outages(&self) -> Vec<Outage> {
        self.state().outages.clone()
    }

    /// Lets datastores take no more bytes for a while.
    pub fn fill_disks(&self, lasting: Duration) {
        self.state().disk_full = Some(Instant::now() + lasting);
    }

    /// Whether datastores take no bytes.
    #[must_use]
    pub fn disks_are_full(&self) -> bool {
        self.state().disk_full.is_some_and(|u| Instant::now() < u)
    }

    /// Lets every answer take long for a while.
    pub fn slow_down(&self, lasting: Duration) {
        self.state().slow_until = Some(Instant::now() + lasting);
    }

    /// Lets the operator's watches lag for a while.
    pub fn lag(&self, lasting: Duration) {
        self.state().lag_until = Some(Instant::now() + lasting);
    }

    /// Notes that a VM came into being.
    pub fn note_created(&self) {
        self.state().created += 1;
    }

    /// VMs that came into being.
    #[must_use]
    pub fn created(&self) -> u32 {
        self.state().created
    }

    /// Notes that the inventory lost VMs that run.
    pub fn note_lost(&self, vms: u32) {
        self.state().lost += vms;
    }

    /// VMs that the inventory lost.
    #[must_use]
    pub fn lost(&self) -> u32 {
        self.state().lost
    }

    /// A person has something to put right, and has done it after that long.
    pub fn mend(&self, lasting: Duration) {
        self.state().mended = Some(Instant::now() + lasting);
    }

    /// Whether no person has anything left to put right.
    #[must_use]
    pub fn is_mended(&self) -> bool {
        // Who waits for the same moment comes first, or not.
        let last = Duration::from_secs(1);
        self.state()
            .mended
            .is_none_or(|u| Instant::now() > u + last)
    }

    /// Upstream's controllers stand still for that long, as whoever restores a hub has them do: they have read what is there
    /// when they go on.
    pub fn still_upstream(&self, lasting: Duration) {
        self.state().upstream_still = Some(Instant::now() + lasting);
    }

    /// Whether they do.
    #[must_use]
    pub fn upstream_is_still(&self) -> bool {
        let state = self.state();
        state.upstream_still.is_some_and(|u| Instant::now() < u)
    }

    /// Lets the operator's wall clock jump ahead.
    pub fn jump(&self, by: Duration) {
        self.state().jump += by;
    }

    /// How far the operator's wall clock is ahead.
    #[must_use]
    pub fn clock_jump(&self) -> Duration {
        self.state().jump
    }

    /// Whether the vCenter is away.
    #[must_use]
    pub fn vcenter_is_away(&self) -> bool {
        self.state()
            .vcenter_away
            .is_some_and(|u| Instant::now() < u)
    }

    /// Until when the API server is away, if it is.
    #[must_use]
    pub fn api_away_until(&self) -> Option<Instant> {
        self.state().api_away.filter(|u| Instant::now() < *u)
    }

    /// How much later than usual an event reaches the operator now.
    #[must_use]
    pub fn lag_now(&self) -> Duration {
        let lags = self.state().lag_until.is_some_and(|u| Instant::now() < u);
        if lags {
            Duration::from_secs(20)
        } else {
            Duration::ZERO
        }
    }

    /// How long an answer takes that usually takes `usual`.
    #[must_use]
    pub fn latency(&self, usual: Duration) -> Duration {
        let slow = self.state().slow_until.is_some_and(|u| Instant::now() < u);
        if slow { usual * 100 } else { usual }
    }
}

/// The operator's gate: every effect passes and is noted.
pub struct SimGate {
    /// Who is told.
    pub director: Director,
    /// Whose effects.
    pub life: Arc<Life>,
}

#[async_trait]
impl Gate for SimGate {
    async fn admit(&self, effect: &Effect) -> Result<(), Held> {
        alive(Some(&self.life)).await;
        self.director.admit(&self.life, effect);
        Ok(())
    }

    fn settled(&self, effect: &Effect, outcome: Settled) {
        if !self.life.is_dead() {
            self.director.line(|| {
                format!(
                    "[{}]   {} {} {outcome:?}",
                    self.life.number,
                    effect.kind.code(),
                    effect.key
                )
            });
        }
    }
}

/// A new life.
#[must_use]
pub fn life(number: u32) -> Arc<Life> {
    Arc::new(Life {
        number,
        dead: AtomicBool::new(false),
    })
}
