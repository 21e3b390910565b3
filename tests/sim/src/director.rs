//! Sits between the operator and its world. It counts effects and live reads, makes them go wrong where the plan asks for
//! it, and keeps the trace.
//!
//! Flow: the gate notes an effect ([`Director::admit`]). The request that carries the effect reaches a simulated server
//! right after, and takes the note ([`Director::arrived`]). From then on, the server handles the request as the plan
//! asks. A live read needs no note: the server reports it ([`Director::reads`]).
//! Guarantee: a mutating request without a note is a panic, so nothing writes around the gate.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use agent_forge_actors::{
    domain::names::ObjectKey,
    ports::effect::{Effect, EffectKind, Gate, Hold, Nature, Settled, Subject},
};
use async_trait::async_trait;
use tokio::{sync::mpsc, time::Instant};

use crate::{
    call::{Call, Read},
    kube::store::Kind,
    plan::{Fault, Plan, Point},
    promise::{Failure, Oracle},
    traffic::Traffic,
};

/// One life of the operator's process, from its start to its end.
#[derive(Debug)]
pub struct Life {
    /// Counted from 1.
    pub number: u32,
    dead: AtomicBool,
}

impl Life {
    /// Whether the process was killed. Then no request of it reaches the world, and no answer reaches it.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// Kills the process.
    pub fn kill(&self) {
        self.dead.store(true, Ordering::Relaxed);
    }
}

/// Waits for ever if the process was killed.
pub async fn alive(life: Option<&Arc<Life>>) {
    if life.is_some_and(|l| l.is_dead()) {
        std::future::pending::<()>().await;
    }
}

/// An effect whose request has not reached a server yet.
#[derive(Clone, Debug)]
pub struct Noted {
    /// The effect.
    pub effect: Effect,
    /// Which occurrence of it, counted from 1.
    pub nth: u32,
    /// What goes wrong with it.
    pub fault: Option<Fault>,
    /// Number of the process that it belongs to.
    pub life: u32,
}

impl Noted {
    /// The effect as a point of a plan.
    #[must_use]
    pub fn point(&self) -> Point {
        Point {
            call: Call::Effect(self.effect.kind),
            key: self.effect.subject.to_string(),
            nth: self.nth,
        }
    }
}

/// Decides whether a run continues under another plan (`branches.rs`).
pub trait Branch: Send + Sync {
    /// The plan that the run continues under from that point on, if it is another one. The director asks before it
    /// decides what goes wrong at the point.
    fn at(&self, point: &Point) -> Option<Plan>;
}

/// Work for the task that keeps the processes running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Kill the process and start another one.
    Crash,
    /// Carry out a fault around the point: which fault, for which object, in which process.
    Around(Fault, String, u32),
}

/// A time in which a server did not serve the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// vCenter did not serve. If false, the API server did not.
    pub of_vcenter: bool,
    /// Its start.
    pub from: Duration,
    /// Its end.
    pub until: Duration,
}

/// How long the operator may take to see a pause or a veto.
const HOLD_IS_SEEN: Duration = Duration::from_secs(5);

/// What a person holds back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forbidden {
    /// All changes.
    Everything,
    /// The removal of VMs and of what belongs to them.
    Removal,
    /// The same, and what interrupts a VM.
    Ends,
    /// To switch VMs on.
    PowerOn,
}

impl Forbidden {
    /// Whether the effect is part of it.
    fn includes(self, effect: EffectKind) -> bool {
        use EffectKind as E;
        match self {
            Self::Everything => matches!(effect.nature(), Nature::Cluster | Nature::Vcenter),
            Self::Removal => matches!(
                effect,
                E::DeleteChild
                    | E::PowerOff
                    | E::Destroy
                    | E::DeleteAgent
                    | E::RemoveChildFinalizer
            ),
            Self::Ends => Self::Removal.includes(effect) || matches!(effect, E::Renew | E::Reset),
            Self::PowerOn => effect == E::PowerOn,
        }
    }

    fn oracle(self) -> Oracle {
        match self {
            Self::Everything | Self::Ends => Oracle::PausesHold,
            Self::Removal | Self::PowerOn => Oracle::VetoesHold,
        }
    }
}

/// For what a person holds something back: pools with all their VMs, and single VMs by their VsphereAgents.
#[derive(Clone, Debug)]
pub struct Scope {
    /// Pools.
    pub pools: Vec<ObjectKey>,
    /// VsphereAgents.
    pub vms: Vec<ObjectKey>,
}

impl Scope {
    /// These pools.
    #[must_use]
    pub fn of_pools(pools: Vec<ObjectKey>) -> Self {
        let vms = Vec::new();
        Self { pools, vms }
    }

    /// The VMs of these VsphereAgents.
    #[must_use]
    pub fn of_vms(vms: Vec<ObjectKey>) -> Self {
        let pools = Vec::new();
        Self { pools, vms }
    }
}

/// What a person holds back for a while.
struct Held {
    what: Forbidden,
    of: Scope,
    /// From when on the operator knows it.
    from: Instant,
    until: Instant,
}

impl Held {
    fn holds(&self, effect: &Effect, forced: &BTreeSet<ObjectKey>) -> bool {
        let (pool, vm) = match &effect.subject {
            Subject::Pool(pool) => (Some(pool), None),
            Subject::Vm { key, pool } => (pool.as_ref(), Some(key)),
            Subject::Server(_) | Subject::Object(_) => (None, None),
        };
        let now = Instant::now();
        let concerned = pool.is_some_and(|pool| self.of.pools.contains(pool))
            || vm.is_some_and(|vm| self.of.vms.contains(vm));
        let overruled =
            self.what.oracle() == Oracle::PausesHold && vm.is_some_and(|vm| forced.contains(vm));
        self.what.includes(effect.kind)
            && concerned
            && !overruled
            && (self.from..self.until).contains(&now)
    }
}

#[derive(Default)]
struct State {
    counts: BTreeMap<(Call, String), u32>,
    plan: Plan,
    to_come: Vec<(Point, Fault)>,
    granted: Duration,
    /// The run stays under its plan: no more branching.
    settled: bool,
    on_their_way: VecDeque<Noted>,
    effects: Vec<(Duration, Point)>,
    reads: Vec<(Duration, Point)>,
    hit: usize,
    first: Vec<String>,
    last: VecDeque<String>,
    left_out: usize,
    hash: DefaultHasher,
    violations: Vec<Failure>,
    vcenter_away: Option<Instant>,
    api_away: Option<Instant>,
    disk_full: Option<Instant>,
    outages: Vec<Outage>,
    slow_until: Option<Instant>,
    held: Option<Held>,
    /// VsphereAgents whose deletion a person forces: no pause holds it.
    forced: BTreeSet<ObjectKey>,
    lag_until: Option<Instant>,
    /// The kinds whose watches hang, and until when.
    hung: Option<(Vec<Kind>, Instant)>,
    last_fault: Duration,
    jump: Duration,
    /// Draws the times of calls. `None` with the seed [`EVEN`].
    pace: Option<fastrand::Rng>,
    created: u32,
    lost: u32,
    mended: Option<Instant>,
    upstream_still: Option<Instant>,
    /// By hub: the process that acted last, and all that acted before it.
    acting: BTreeMap<u32, u32>,
    acted: BTreeSet<u32>,
    orders: Vec<mpsc::UnboundedSender<Order>>,
}

impl State {
    /// Keeps a line of the trace, and drops one from the middle when there are too many.
    fn keep(&mut self, line: String) {
        if self.first.len() < FIRST {
            self.first.push(line);
            return;
        }
        self.last.push_back(line);
        if self.last.len() > LAST {
            self.last.pop_front();
            self.left_out += 1;
        }
    }

    fn lines(&self) -> Vec<String> {
        let gap = (self.left_out > 0).then(|| format!("({} lines are left out)", self.left_out));
        let all = self.first.iter().cloned().chain(gap);
        all.chain(self.last.iter().cloned()).collect()
    }

    /// The next number of that call for that object.
    fn number(&mut self, call: Call, key: &str) -> u32 {
        let count = self.counts.entry((call, key.to_owned())).or_default();
        *count += 1;
        *count
    }

    /// What goes wrong at that point, if the plan asks for something. `branch` may change the plan first.
    fn meet(
        &mut self,
        branch: Option<&Arc<dyn Branch>>,
        now: Duration,
        point: &Point,
    ) -> Option<Fault> {
        let branch = branch.filter(|_| !self.settled);
        if let Some(plan) = branch.and_then(|b| b.at(point)) {
            self.to_come = plan.faults.clone();
            self.plan = plan;
        }
        let at = self.to_come.iter().position(|(p, _)| p == point)?;
        self.hit += 1;
        self.last_fault = now;
        Some(self.to_come.remove(at).1)
    }

    /// Notes which process acts. Returns true if another process has acted since this one last did. That breaks a
    /// promise: leadership never returns to a process that lost it.
    fn comes_back(&mut self, life: u32) -> bool {
        let before = self.acting.insert(hub(life), life);
        if before == Some(life) {
            return false;
        }
        self.acted.extend(before);
        self.acted.contains(&life)
    }
}

/// See the module's description. Cheap to clone.
#[derive(Clone)]
pub struct Director {
    /// Counts what the operator asks for.
    pub traffic: Traffic,
    began: Instant,
    branch: Option<Arc<dyn Branch>>,
    state: Arc<Mutex<State>>,
}

/// Processes of a second hub's operator have numbers from here on.
pub const ANOTHER_HUB: u32 = 1000;

/// The hub that a process belongs to.
#[must_use]
pub fn hub(life: u32) -> u32 {
    life / ANOTHER_HUB
}

/// Whether an effect changes something that lasts. A standby writes the lease too, and every read makes a session view:
/// both continue at rest, because the operator keeps looking for a VM that is missing.
#[must_use]
pub fn is_deed(point: &Point) -> bool {
    !point.is(EffectKind::Lease) && !point.is(EffectKind::SessionView)
}

/// The report of a failure contains at most this many lines from the beginning of the trace.
const FIRST: usize = 1000;
/// And at most this many from its end, where the failure is.
const LAST: usize = 3000;

/// With this seed, everything of one kind takes equally long.
const EVEN: u64 = 1;
/// The shortest and the longest time with other seeds, as multiples of the usual one.
const PACE: (f64, f64) = (0.5, 4.0);

impl Director {
    /// A director that plays `plan`.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        let state = State {
            to_come: plan.faults.clone(),
            pace: (plan.seed != EVEN).then(|| fastrand::Rng::with_seed(plan.seed)),
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

    /// The plan that the run is under now.
    #[must_use]
    pub fn plan(&self) -> Plan {
        self.state().plan.clone()
    }

    /// The plan that the run is under now. The run stays under it from now on.
    #[must_use]
    pub fn settle(&self) -> Plan {
        self.state().settled = true;
        self.plan()
    }

    /// Gives the operator this much more time for each planned fault, beyond the time that its cause lasts.
    pub fn grant(&self, each: Duration) {
        self.state().granted = each;
    }

    /// How long the causes of all planned faults last together, with the extra time of [`Self::grant`] for each.
    #[must_use]
    pub fn causes(&self) -> Duration {
        let state = self.state();
        let each = |lasts| lasts + state.granted;
        state.plan.lasts().map(each).sum()
    }

    /// The orders from now on, for the task that carries them out for one instance.
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
        state.keep(format!("{:>10.3} {text}", now.as_secs_f64()));
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
        self.state().lines()
    }

    /// Every effect so far, in order.
    #[must_use]
    pub fn effects(&self) -> Vec<(Duration, Point)> {
        self.state().effects.clone()
    }

    /// How often the operator has asked for that effect.
    #[must_use]
    pub fn times(&self, effect: EffectKind) -> usize {
        let state = self.state();
        state.effects.iter().filter(|(_, p)| p.is(effect)).count()
    }

    /// Every live read so far, in order.
    #[must_use]
    pub fn live_reads(&self) -> Vec<(Duration, Point)> {
        self.state().reads.clone()
    }

    /// How many effects there were that change something ([`is_deed`]).
    #[must_use]
    pub fn deeds(&self) -> usize {
        let state = self.state();
        let deeds = state.effects.iter().filter(|(_, p)| is_deed(p));
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

    /// Records a broken promise.
    pub fn violated(&self, failure: Failure) {
        self.line(|| format!("VIOLATED {failure}"));
        let mut state = self.state();
        if state.violations.len() < 20 && !state.violations.contains(&failure) {
            state.violations.push(failure);
        }
    }

    /// Broken promises.
    #[must_use]
    pub fn violations(&self) -> Vec<Failure> {
        self.state().violations.clone()
    }

    fn admit(&self, life: &Arc<Life>, effect: &Effect) {
        let now = self.now();
        let mut state = self.state();
        let nth = state.number(Call::Effect(effect.kind), &effect.subject.to_string());
        let mut noted = Noted {
            effect: effect.clone(),
            nth,
            fault: None,
            life: life.number,
        };
        let point = noted.point();
        state.effects.push((now, point.clone()));
        let fault = state.meet(self.branch.as_ref(), now, &point);
        noted.fault = fault;
        let held = state.held.as_ref();
        let held = held.filter(|h| h.holds(effect, &state.forced));
        let held = held.map(|h| h.what.oracle());
        state.on_their_way.push_back(noted);
        let two = !point.is(EffectKind::Lease) && state.comes_back(life.number);
        drop(state);
        if two {
            self.violated(Oracle::OneLeaderActs.broken(format!(
                "process {} does {point}, and another process has acted since it last did",
                life.number
            )));
        }
        if let Some(oracle) = held {
            self.violated(oracle.broken(format!("{point} while a person holds that back")));
        }
        self.line(|| {
            let what = fault.map(|f| format!(" <- {}: {}", f.name(), f.text()));
            format!("[{}] {point}{}", life.number, what.unwrap_or_default())
        });
        if let Some(fault) = fault.filter(|f| !f.at_request()) {
            self.order(Order::Around(
                fault,
                effect.subject.to_string(),
                life.number,
            ));
        }
    }

    /// The operator reads that live. Returns what goes wrong with the answer.
    pub fn reads(&self, life: &Life, read: Read, key: String) -> Option<Fault> {
        let now = self.now();
        let mut state = self.state();
        let call = Call::Read(read);
        let nth = state.number(call, &key);
        let point = Point { call, key, nth };
        state.reads.push((now, point.clone()));
        let fault = state.meet(self.branch.as_ref(), now, &point);
        drop(state);
        self.line(|| {
            let what = fault.map(|f| format!(" <- {}: {}", f.name(), f.text()));
            format!("[{}] {point}{}", life.number, what.unwrap_or_default())
        });
        fault
    }

    /// Sends an order to every instance. The instance that it is for recognises it.
    pub fn order(&self, order: Order) {
        // At the end of a run the receivers are gone.
        let mut state = self.state();
        state.orders.retain(|to| to.send(order.clone()).is_ok());
    }

    /// The process dies here. Nothing of it continues.
    pub fn crash(&self, life: &Life) {
        life.kill();
        self.line(|| format!("[{}] killed", life.number));
        self.forget_notes(life);
        self.order(Order::Crash);
    }

    /// Drops notes of effects whose requests will never come, because their process is gone.
    pub fn forget_notes(&self, life: &Life) {
        let mut state = self.state();
        state.on_their_way.retain(|n| n.life != life.number);
    }

    /// Takes the note of the effect that this request carries.
    ///
    /// # Panics
    /// A mutating request came without a note.
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
            self.violated(Oracle::ChangesPassTheGate.broken(format!(
                "{what} changes something and did not pass the gate (on their way: {waiting:?})"
            )));
            panic!("{what} did not pass the gate");
        };
        state
            .on_their_way
            .remove(at)
            .unwrap_or_else(|| unreachable!())
    }

    /// Makes vCenter unreachable for a while.
    pub fn take_vcenter(&self, lasting: Duration) {
        self.state().vcenter_away = Some(Instant::now() + lasting);
        self.outage(true, lasting);
    }

    /// Makes the API server unreachable for a while.
    pub fn take_api(&self, lasting: Duration) {
        self.state().api_away = Some(Instant::now() + lasting);
        self.outage(false, lasting);
    }

    /// Notes that one of the servers does not serve the operator for a while.
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

    /// Makes datastores refuse all bytes for a while.
    pub fn fill_disks(&self, lasting: Duration) {
        self.state().disk_full = Some(Instant::now() + lasting);
    }

    /// Whether datastores refuse bytes now.
    #[must_use]
    pub fn disks_are_full(&self) -> bool {
        self.state().disk_full.is_some_and(|u| Instant::now() < u)
    }

    /// Notes that a person holds that back for a while.
    pub fn hold(&self, what: Forbidden, of: Scope, lasting: Duration) {
        let now = Instant::now();
        self.line(|| format!("    somebody holds back {what:?} of {of:?}"));
        self.state().held = Some(Held {
            what,
            of,
            from: now + HOLD_IS_SEEN,
            until: now + lasting,
        });
    }

    /// Notes that the VsphereAgent on which alone a person held something back is gone.
    pub fn let_go_of(&self, vm: &ObjectKey) {
        let mut state = self.state();
        if state
            .held
            .as_ref()
            .is_some_and(|h| h.of.vms == [vm.clone()])
        {
            state.held = None;
        }
    }

    /// Notes that a person forces the deletion of that VsphereAgent (`force-delete`), which overrules pauses.
    pub fn force(&self, vm: ObjectKey) {
        self.state().forced.insert(vm);
    }

    /// Whether a person still holds something back.
    #[must_use]
    pub fn is_held(&self) -> bool {
        // Two timers for the same moment fire in either order, so one second is added.
        let last = Duration::from_secs(1);
        let state = self.state();
        state
            .held
            .as_ref()
            .is_some_and(|h| Instant::now() <= h.until + last)
    }

    /// Makes every answer slow for a while.
    pub fn slow_down(&self, lasting: Duration) {
        self.state().slow_until = Some(Instant::now() + lasting);
    }

    /// Makes the operator's watches lag for a while.
    pub fn lag(&self, lasting: Duration) {
        self.state().lag_until = Some(Instant::now() + lasting);
    }

    /// Lets the operator's watches of these kinds show nothing for a while.
    pub fn hang(&self, kinds: Vec<Kind>, lasting: Duration) {
        self.state().hung = Some((kinds, Instant::now() + lasting));
    }

    /// Whether the operator's watches of that kind show nothing now.
    #[must_use]
    pub fn hangs(&self, kind: &Kind) -> bool {
        let state = self.state();
        let hung = state.hung.as_ref();
        hung.is_some_and(|(kinds, until)| kinds.contains(kind) && Instant::now() < *until)
    }

    /// Notes that a VM was created.
    pub fn note_created(&self) {
        self.state().created += 1;
    }

    /// Number of VMs that were created.
    #[must_use]
    pub fn created(&self) -> u32 {
        self.state().created
    }

    /// Notes that the inventory lost VMs that run.
    pub fn note_lost(&self, vms: u32) {
        self.state().lost += vms;
    }

    /// Number of VMs that the inventory lost.
    #[must_use]
    pub fn lost(&self) -> u32 {
        self.state().lost
    }

    /// Notes that a person has something to correct, and finishes it after that time.
    pub fn mend(&self, lasting: Duration) {
        self.state().mended = Some(Instant::now() + lasting);
    }

    /// Whether no person has anything left to correct.
    #[must_use]
    pub fn is_mended(&self) -> bool {
        // Two timers for the same moment fire in either order, so one second is added.
        let last = Duration::from_secs(1);
        self.state()
            .mended
            .is_none_or(|u| Instant::now() > u + last)
    }

    /// Stops the controllers of upstream for that time, as a person does who restores a hub. When they continue, they
    /// have read all objects again.
    pub fn still_upstream(&self, lasting: Duration) {
        self.state().upstream_still = Some(Instant::now() + lasting);
    }

    /// Whether upstream's controllers are stopped now.
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

    /// Whether vCenter is unreachable now.
    #[must_use]
    pub fn vcenter_is_away(&self) -> bool {
        self.state()
            .vcenter_away
            .is_some_and(|u| Instant::now() < u)
    }

    /// The time until which the API server is unreachable, if it is.
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

    /// How long something takes in a world of this plan's seed if it usually takes `usual`. With seed 1 it always takes
    /// that long, so recorded plans keep their meaning. Other seeds draw a time in [`PACE`] for each call.
    #[must_use]
    pub fn paced(&self, usual: Duration) -> Duration {
        let drawn = self.state().pace.as_mut().map(fastrand::Rng::f64);
        drawn.map_or(usual, |at| usual.mul_f64(PACE.0 + (PACE.1 - PACE.0) * at))
    }

    /// How long an answer takes now if it usually takes `usual`.
    #[must_use]
    pub fn latency(&self, usual: Duration) -> Duration {
        let usual = self.paced(usual);
        let slow = self.state().slow_until.is_some_and(|u| Instant::now() < u);
        if slow { usual * 100 } else { usual }
    }
}

/// The operator's gate. It lets every effect pass and notes it.
pub struct SimGate {
    /// Notes the effects.
    pub director: Director,
    /// The process that the effects belong to.
    pub life: Arc<Life>,
}

#[async_trait]
impl Gate for SimGate {
    async fn admit(&self, effect: &Effect) -> Result<(), Hold> {
        alive(Some(&self.life)).await;
        self.director.admit(&self.life, effect);
        Ok(())
    }

    fn settled(&self, effect: &Effect, outcome: Settled) {
        if !self.life.is_dead() {
            let (process, kind) = (self.life.number, effect.kind.name());
            self.director
                .line(|| format!("[{process}]   {kind} {} {outcome:?}", effect.subject));
        }
    }
}

/// A new process with that number.
#[must_use]
pub fn life(number: u32) -> Arc<Life> {
    Arc::new(Life {
        number,
        dead: AtomicBool::new(false),
    })
}

#[cfg(test)]
mod tests {
    use agent_forge_actors::ports::effect::Subject;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_seed_draws_its_own_times_and_the_first_one_draws_none() {
        let usual = Duration::from_millis(100);
        let times = |seed| {
            let plan = Plan {
                seed,
                ..Plan::default()
            };
            let director = Director::new(plan);
            (0..50).map(|_| director.latency(usual)).collect::<Vec<_>>()
        };
        assert_eq!(times(1), [usual; 50]);
        assert_eq!(times(2), times(2), "the same again");
        assert_ne!(times(2), times(3));
        let different: BTreeSet<Duration> = times(2).into_iter().collect();
        assert!(different.len() > 40);
        let bounds = usual.mul_f64(PACE.0)..usual.mul_f64(PACE.1);
        assert!(different.iter().all(|time| bounds.contains(time)));
    }

    fn effect() -> Effect {
        Effect::new(
            EffectKind::Login,
            Subject::Server("vcenter.example".to_owned()),
        )
    }

    fn broken(director: &Director) -> Vec<Oracle> {
        director.violations().iter().map(|f| f.oracle).collect()
    }

    #[test]
    fn a_process_that_acts_after_its_successor_breaks_a_promise() {
        let director = Director::new(Plan::default());
        let (first, second) = (life(1), life(2));
        director.admit(&first, &effect());
        director.admit(&second, &effect());
        assert_eq!(broken(&director), []);
        director.admit(&first, &effect());
        assert_eq!(broken(&director), [Oracle::OneLeaderActs]);
    }

    #[test]
    fn a_request_that_did_not_pass_the_gate_breaks_a_promise() {
        let director = Director::new(Plan::default());
        director.admit(&life(1), &effect());
        let arrives = || director.arrived(&life(1), "a login", |e| e.kind == EffectKind::Login);
        assert_eq!(arrives().nth, 1);
        let again = std::panic::catch_unwind(std::panic::AssertUnwindSafe(arrives));
        assert!(again.is_err(), "a second request has no note");
        assert_eq!(broken(&director), [Oracle::ChangesPassTheGate]);
    }
}
