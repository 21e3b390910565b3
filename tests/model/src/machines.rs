//! VM step and pool plan in the small world, as real passes of the product. Each step of a VM and each round of a pool
//! is a transition of its own, with at most one effect going wrong.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use agent_forge_actors::{
    context::{Context, NewsOfVms, Settings, SuspectVms},
    domain::names::ObjectKey,
    orphans::{self, OrphanScan},
    pool::{self, observe, observed::Observed, plan},
    ports::{effect::EffectKind, instruments::NoInstruments, nodes::NodeAccess, tracer::NoTracer},
    runtime::shell::Worker,
    vm::{
        arrival::Arrival,
        memory::Memory,
        observed::Observed as ObservedVm,
        ownership::Ownership,
        pass,
        step::{self, Step},
    },
    world::classify::{Demand, DemandReason, DemandState},
};
use agent_forge_crds::pool::VsphereAgentPool;
use kube::ResourceExt;
use stateright::{Model, Property};
use tokio::runtime::Runtime;

use crate::{
    binding,
    explore::{self, Spare},
    objects::{self, NAMESPACE, POOL},
    part::{self, Outcome},
    ports::{Blow, Ports},
    shared::Shared,
    upstream::{self, Deed},
    verdict::{self, Endings},
    world::{Fault, Stale, THEN, World, form::ageless},
};

/// How old a pass sees its memory: longer than the pause between two proofs of absence, shorter than any other timeout.
const SOON: Duration = Duration::from_secs(3);
/// The alternative: longer than any timeout.
const LONG: Duration = Duration::from_secs(1000);
/// When the last one of three orphan scans runs.
const LAST: Duration = Duration::from_secs(2000);

const fn age(long: bool) -> Duration {
    if long { LONG } else { SOON }
}

/// The greatest number of events that a watch may lag behind.
const LAG: u8 = 4;
/// How many missed events are distinguished.
const MOST_MISSED: u8 = LAG - 1;

thread_local! {
    static RUNTIME: Runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without threads");
}

/// What happens in a transition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Label {
    /// Another part of the world acts.
    Deed(Deed),
    /// One step of a VM actor.
    Vm(String, bool, Option<(EffectKind, Blow)>),
    /// One round of the pool actor: plan and actions.
    Pool(String, bool, Option<(EffectKind, Blow)>),
    /// The orphan scan.
    Scans,
    /// Another part acts after a pass looked, and right before that effect of it.
    Between(Box<Label>, EffectKind, Deed),
    /// The operator dies between two passes.
    Dies,
    /// A watch stops showing changes.
    Lags(&'static str),
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let blow = |f: &mut fmt::Formatter<'_>, blow: &Option<(EffectKind, Blow)>| match blow {
            Some((effect, blow)) => write!(f, ", {} {blow:?}", effect.name()),
            None => Ok(()),
        };
        let late = |late: &bool| if *late { "long after" } else { "soon" };
        match self {
            Self::Deed(deed) => deed.fmt(f),
            Self::Vm(name, l, b) => {
                write!(f, "VM actor {name}, {}", late(l))?;
                blow(f, b)
            }
            Self::Pool(name, l, b) => {
                write!(f, "pool actor {name}, {}", late(l))?;
                blow(f, b)
            }
            Self::Scans => write!(f, "the orphan scan"),
            Self::Between(pass, effect, deed) => {
                write!(f, "{pass}; before its {}: {deed}", effect.name())
            }
            Self::Dies => write!(f, "the operator dies, the other takes over"),
            Self::Lags(what) => write!(f, "the watch of {what} lags"),
        }
    }
}

/// A transition with the state that it leads to.
#[derive(Clone)]
pub struct Action {
    /// What happens.
    pub label: Label,
    next: World,
}

impl PartialEq for Action {
    fn eq(&self, other: &Self) -> bool {
        self.label == other.label && self.next == other.next
    }
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.label)
    }
}

/// The result of a pass.
#[derive(Debug, PartialEq)]
struct Ran {
    world: World,
    effects: Vec<EffectKind>,
}

/// The model.
pub struct Machines {
    /// The first state.
    pub start: World,
    /// What people may do.
    pub people: Vec<Deed>,
    /// How many hours may pass.
    pub hours: u8,
    /// Other parts also act between what a pass sees and each of its effects.
    pub interleaved: bool,
    /// A planted defect. `None` to check the product.
    pub planted: Option<Planted>,
    /// Records the arrows of the charts.
    pub draws: bool,
    /// Also runs each pass on the whole world, and compares ([`crate::part`]).
    pub verify: bool,
    pools: Vec<Arc<VsphereAgentPool>>,
    /// Digest of the pools: a remembered pass depends on them.
    setup: u64,
    endings: Endings,
    chart: Mutex<Arrows>,
    pool_chart: Mutex<Arrows>,
}

/// Pairs of a state and the next one.
pub type Arrows = BTreeSet<(String, String)>;

/// A planted defect of the product, to check that the oracles find what it does.
pub struct Planted {
    /// Tells it from other defects.
    pub number: usize,
    /// Switches it on for the thread that calls this.
    pub switch_on: Box<dyn Fn() + Send + Sync>,
}

impl Machines {
    /// These machines and faults. With `foreign`, somebody else's VM has the name of the first machine.
    pub fn new(
        names: &[&str],
        foreign: bool,
        people: Vec<Deed>,
        hours: u8,
        faults: &[Fault],
    ) -> Self {
        Self {
            start: World::new(names, foreign, faults),
            people,
            hours,
            interleaved: false,
            planted: None,
            draws: false,
            verify: false,
            pools: vec![Arc::new(objects::pool(POOL))],
            setup: 0,
            endings: Endings::default(),
            chart: Mutex::default(),
            pool_chart: Mutex::default(),
        }
    }

    /// The pools.
    pub fn pools(&self) -> &[Arc<VsphereAgentPool>] {
        &self.pools
    }

    /// Replaces the pools.
    pub fn set_pools(&mut self, pools: Vec<VsphereAgentPool>) {
        self.setup = explore::digest(&format!("{pools:?}"));
        self.pools = pools.into_iter().map(Arc::new).collect();
    }

    fn context(&self, ports: &Ports) -> Context {
        let (_, doubts) = tokio::sync::watch::channel(SuspectVms::default());
        let (_, news) = tokio::sync::watch::channel(NewsOfVms::default());
        Context {
            view: Arc::new(ports.clone()),
            cluster: Arc::new(ports.clone()),
            sessions: Arc::new(ports.clone()),
            placer: Arc::new(ports.clone()),
            nodes: NodeAccess {
                hosted: Arc::new(ports.clone()),
                waker: Arc::new(ports.clone()),
            },
            clock: Arc::new(ports.clone()),
            instruments: Arc::new(NoInstruments),
            tracer: Arc::new(NoTracer),
            doubts,
            news,
            settings: Settings {
                discovery_timeout: Duration::from_secs(1800),
                orphan_scan_interval: Duration::from_secs(600),
                datastore_floor: 0,
                secret_namespaces: Vec::new(),
            },
        }
    }

    /// The ports of a pass. Every pass begins here.
    fn ports(&self, w: &World, age: Duration, blow: Option<(usize, Blow)>) -> Ports {
        if let Some(planted) = &self.planted {
            (planted.switch_on)();
        }
        Ports::new(w.clone(), &self.pools, age, blow)
    }

    fn defect(&self) -> Option<usize> {
        self.planted.as_ref().map(|p| p.number)
    }

    fn run<T>(ports: &Ports, work: impl Future<Output = T>) -> Option<T> {
        RUNTIME.with(|runtime| {
            runtime.block_on(async {
                tokio::select! {
                    biased;
                    done = work => Some(done),
                    () = ports.died() => None,
                }
            })
        })
    }

    /// A pass of a VM actor, with at most that many steps. The returned function takes what goes wrong in it.
    fn vm<'a>(
        &'a self,
        w: &'a World,
        name: &'a str,
        long: bool,
        steps: usize,
    ) -> impl Fn(Option<(usize, Blow)>) -> Ran + 'a {
        let part = part::of_vm(w, name);
        move |blow| {
            let run = |w: &World| self.run_vm(w, name, steps, &self.ports(w, age(long), blow));
            let how = ("vm", name, long, steps, blow, (self.defect(), self.setup));
            let outcome = part::remembered(&part, &how, run);
            let after = part::after_vm(w, name, &part, &outcome);
            self.compared(Self::over(after, &outcome, blow), || run(w), blow)
        }
    }

    /// The result of a pass on its part of the world. With [`Self::verify`], a pass on the whole world has to give the
    /// same.
    fn compared(
        &self,
        ran: Ran,
        whole: impl FnOnce() -> Outcome,
        blow: Option<(usize, Blow)>,
    ) -> Ran {
        if self.verify {
            let whole = whole();
            let whole = Self::over(whole.world.clone(), &whole, blow);
            assert_eq!(ran, whole, "a pass depends on more than its part");
        }
        ran
    }

    fn run_vm(&self, w: &World, name: &str, steps: usize, ports: &Ports) -> Outcome {
        let memory = w.memory.get(name).map(Shared::as_ref_clone);
        let key = ObjectKey::new(NAMESPACE, name);
        let work = pass::run_at_most(steps, self.context(ports), key, memory.unwrap_or_default());
        let ended = Self::run(ports, work).map(|(memory, _)| memory);
        let (mut world, effects) = ports.end();
        let died = ended.is_none();
        if let Some(mut memory) = ended {
            ageless(&mut memory);
            world.memory.insert(name.to_owned(), Shared::new(memory));
        }
        Outcome {
            world,
            effects,
            died,
        }
    }

    /// What a VM actor decides next. `None` if its pass first has to look at the VM.
    fn decides(&self, w: &World, name: &str) -> Option<String> {
        let ports = self.ports(w, SOON, None);
        let context = self.context(&ports);
        let object = w.shown_children().iter().find(|c| c.name_any() == name)?;
        let known = w.memory.get(name).map(Shared::as_ref_clone);
        let mut memory = known.unwrap_or_default();
        let object = memory.status.newest(&object.arc());
        let observed = ObservedVm::gather(context.view.as_ref(), object);
        let overdue = matches!(observed.arrival(&context, &memory), Arrival::Overdue { .. });
        if overdue && !memory.looked_late {
            return None;
        }
        Some(match step::next(&observed.facts(&context, &memory)) {
            Step::Hold { reason, .. } => reason.to_string(),
            step => step.name().to_owned(),
        })
    }

    /// The arrows of the VM's chart that were met: a decision, and the decision after that one was carried out.
    pub fn chart(&self) -> Arrows {
        let chart = self.chart.lock();
        chart.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The arrows of the pool's chart that were met: how the pool sees an AgentMachine, before and after the next
    /// event.
    pub fn pool_chart(&self) -> Arrows {
        let chart = self.pool_chart.lock();
        chart.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What each AgentMachine needs, as the pool sees it.
    fn needs(&self, w: &World) -> BTreeMap<String, String> {
        let ports = self.ports(w, SOON, None);
        let named = |demand: &Demand| {
            let need = match &demand.state {
                DemandState::NotRequested(DemandReason::Deleting) => "Leaving".to_owned(),
                DemandState::NotRequested(why) | DemandState::NotNow { why, .. } => {
                    format!("{why:?}")
                }
                need => format!("{need:?}"),
            };
            let name = need.split('(').next().unwrap_or_default().to_owned();
            (demand.name(), name)
        };
        let plan = plan::plan(&Self::observed(&ports, w, POOL, false));
        plan.demands.iter().map(named).collect()
    }

    fn note_needs(&self, before: &World, after: &World) {
        let now = self.needs(after);
        let chart = self.pool_chart.lock();
        let mut chart = chart.unwrap_or_else(PoisonError::into_inner);
        for (name, need) in self.needs(before) {
            let then = now.get(&name).map_or("[*]", String::as_str);
            if then != need {
                chart.insert((need, then.to_owned()));
            }
        }
    }

    fn note(&self, before: &World, after: &World, name: &str) {
        let (Some(from), Some(to)) = (self.decides(before, name), self.decides(after, name)) else {
            return;
        };
        if from != to {
            let chart = self.chart.lock();
            let mut chart = chart.unwrap_or_else(PoisonError::into_inner);
            chart.insert((from, to));
        }
    }

    /// A round of the pool actor. The returned function takes what goes wrong in it.
    fn pool<'a>(
        &'a self,
        w: &'a World,
        name: &'a str,
        long: bool,
    ) -> impl Fn(Option<(usize, Blow)>) -> Ran + 'a {
        let part = part::of_pool(w);
        move |blow| {
            let run = |w: &World| self.run_pool(w, name, long, &self.ports(w, age(long), blow));
            let how = ("pool", name, long, blow, (self.defect(), self.setup));
            let outcome = part::remembered(&part, &how, run);
            let ran = Self::over(part::after_pool(w, &outcome), &outcome, blow);
            self.compared(ran, || run(w), blow)
        }
    }

    fn run_pool(&self, w: &World, name: &str, long: bool, ports: &Ports) -> Outcome {
        let context = self.context(ports);
        let observed = Self::observed(ports, w, name, long);
        let plan = plan::plan(&observed);
        let mut memory = pool::Memory::default();
        let work = pool::act::perform_all(&context, &observed, &plan.actions, &mut memory);
        let died = Self::run(ports, work).is_none();
        let (world, effects) = ports.end();
        Outcome {
            world,
            effects,
            died,
        }
    }

    fn observed(ports: &Ports, w: &World, name: &str, long: bool) -> Observed {
        // Long after: every timeout is over. Soon: the AgentMachine has waited longer than the debounce, a VM is on
        // offer since a moment, and the provider may still bind a free Agent.
        let now = THEN + if long { LONG } else { SOON };
        let waiting = w.agent_machines.iter().filter_map(|am| {
            let since = if long { THEN } else { now.saturating_sub(SOON) };
            Some((am.uid()?, since))
        });
        let spare = w.children.iter().filter_map(|c| {
            let since = if long { THEN } else { now };
            Some((c.uid()?, since))
        });
        let spare: BTreeMap<String, Duration> = spare.collect();
        let key = ObjectKey::new(NAMESPACE, name);
        let mut memory = pool::Memory {
            waiting_since: waiting.collect(),
            spare_since: spare,
            ..pool::Memory::default()
        };
        let observed = observe::observe(ports, ports, &key, &[], &mut memory);
        observed.expect("the pool is there")
    }

    /// The orphan scan: one scan finds an orphan VM, and a second one finds it again. Another part may act right before
    /// an effect of the last scan. Returns the world and the effects of the last scan.
    fn scan(&self, w: &World, between: Option<(usize, &Deed)>) -> Ran {
        let mut ran = Ran {
            world: w.clone(),
            effects: Vec::new(),
        };
        let mut memory = orphans::Memory::default();
        for age in [SOON, LONG, LAST] {
            let mut ports = self.ports(&ran.world, age, None);
            if let Some((at, deed)) = between.filter(|_| age == LAST) {
                ports = ports.between(at, deed.clone());
            }
            let (doubts, _) = tokio::sync::watch::channel(SuspectVms::default());
            let scan = OrphanScan {
                context: self.context(&ports),
                doubts: Arc::new(doubts),
            };
            let ended = Self::run(&ports, scan.pass(memory));
            memory = ended.map(|(memory, _)| memory).unwrap_or_default();
            (ran.world, ran.effects) = ports.end();
        }
        ran.world.settle();
        ran
    }

    fn over(mut world: World, outcome: &Outcome, blow: Option<(usize, Blow)>) -> Ran {
        if outcome.died {
            dies(&mut world);
        }
        if let Some((_, blow)) = blow {
            world.left.spend(blow.fault());
        }
        world.settle();
        Ran {
            world,
            effects: outcome.effects.clone(),
        }
    }

    /// A pass without a fault, and with each fault that is left at each of its effects. Returns its effects.
    fn pass(
        w: &World,
        all: &mut Vec<Action>,
        run: impl Fn(Option<(usize, Blow)>) -> Ran,
        label: impl Fn(Option<(EffectKind, Blow)>) -> Label,
    ) -> Vec<EffectKind> {
        let plain = run(None);
        // In a pass that changes nothing, a fault changes nothing either.
        let effects = if plain.world == *w {
            &[][..]
        } else {
            &plain.effects
        };
        for (n, effect) in effects.iter().enumerate() {
            for blow in Blow::ALL {
                let to_vcenter = effect.code().starts_with('V');
                if !w.left.has(blow.fault()) || blow == Blow::Late && !to_vcenter {
                    continue;
                }
                all.push(Action {
                    label: label(Some((*effect, blow))),
                    next: run(Some((n, blow))).world,
                });
            }
        }
        all.push(Action {
            label: label(None),
            next: plain.world,
        });
        plain.effects
    }

    /// A pass with each possible act of another part right before each of its effects.
    fn between(
        &self,
        w: &World,
        all: &mut Vec<Action>,
        label: &Label,
        (effects, long): (&[EffectKind], bool),
        run: impl Fn(&Ports) -> Outcome,
    ) {
        if !self.interleaved || effects.is_empty() {
            return;
        }
        for deed in upstream::possible(w, &self.people) {
            for (at, effect) in effects.iter().enumerate() {
                let ports = self.ports(w, age(long), None).between(at, deed.clone());
                let outcome = run(&ports);
                all.push(Action {
                    label: Label::Between(Box::new(label.clone()), *effect, deed.clone()),
                    next: Self::over(outcome.world.clone(), &outcome, None).world,
                });
            }
        }
    }

    /// The orphan scan, and the same with each possible act of another part right before each of its effects.
    fn scans(&self, w: &World, all: &mut Vec<Action>) {
        let plain = self.scan(w, None);
        if self.interleaved {
            for deed in upstream::possible(w, &self.people) {
                for (at, effect) in plain.effects.iter().enumerate() {
                    let label = Box::new(Label::Scans);
                    all.push(Action {
                        label: Label::Between(label, *effect, deed.clone()),
                        next: self.scan(w, Some((at, &deed))).world,
                    });
                }
            }
        }
        all.push(Action {
            label: Label::Scans,
            next: plain.world,
        });
    }

    /// All transitions that change something.
    pub fn successors(&self, w: &World) -> Vec<Action> {
        let mut all = Vec::new();
        for name in w.shown_children().iter().map(|c| c.name_any()) {
            let ages =
                |m: &Shared<Memory>| m.seen != Ownership::NotAsked || m.stuck_since.is_some();
            let ages: &[bool] = match w.memory.get(&name) {
                Some(memory) if ages(memory) => &[false, true],
                _ => &[false],
            };
            if self.draws && w.stale.is_none() {
                self.note(w, &self.vm(w, &name, false, 1)(None).world, &name);
            }
            for &long in ages {
                let label = |blow| Label::Vm(name.clone(), long, blow);
                let effects = Self::pass(w, &mut all, self.vm(w, &name, long, 1), label);
                let run = |ports: &Ports| self.run_vm(w, &name, 1, ports);
                self.between(w, &mut all, &label(None), (&effects, long), run);
            }
        }
        for pool in &self.pools {
            let name = pool.name_any();
            for long in [false, true] {
                let label = |blow| Label::Pool(name.clone(), long, blow);
                let effects = Self::pass(w, &mut all, self.pool(w, &name, long), label);
                let run = |ports: &Ports| self.run_pool(w, &name, long, ports);
                self.between(w, &mut all, &label(None), (&effects, long), run);
            }
        }
        let mut deeds = upstream::possible(w, &self.people);
        // A watch is never an hour behind.
        if w.hours < self.hours && w.stale.is_none() && upstream::waits_for_time(w) {
            deeds.push(Deed::Hour);
        }
        for deed in deeds {
            let mut next = w.clone();
            upstream::act(&mut next, &deed);
            next.settle();
            all.push(Action {
                label: Label::Deed(deed),
                next,
            });
        }
        if verdict::orphan(w).is_some() {
            self.scans(w, &mut all);
        }
        if w.left.has(Fault::Crash) && !w.memory.is_empty() {
            let mut next = w.clone();
            dies(&mut next);
            next.left.spend(Fault::Crash);
            all.push(Action {
                label: Label::Dies,
                next,
            });
        }
        for action in &mut all {
            action.next.lag_at_most(LAG, w);
            if self.draws && w.stale.is_none() && action.next.stale.is_none() {
                self.note_needs(w, &action.next);
            }
        }
        all.retain(|a| a.next != *w);
        // A watch begins to lag with a change that it does not show. Before that it is like any other.
        if w.left.has(Fault::Lag) && w.stale.is_none() {
            let lagging: Vec<Action> = all.iter().flat_map(|a| lags(w, a)).collect();
            all.extend(lagging);
        }
        // Long and soon often give the same state. There are only a dozen states, so a set would cost more than this
        // list.
        let mut seen = Vec::with_capacity(all.len());
        all.retain(|a| {
            let digest = explore::digest(&a.next);
            let new = !seen.contains(&digest);
            seen.push(digest);
            new
        });
        all
    }

    /// After the faults, each part does what it has to do. If that changes nothing, each does it again much later.
    pub fn round(&self, w: &World) -> World {
        let soon = self.round_at(w, false);
        if soon == *w {
            self.round_at(w, true)
        } else {
            soon
        }
    }

    fn round_at(&self, w: &World, long: bool) -> World {
        let mut w = w.clone();
        w.left = Default::default();
        let deeds = upstream::possible(&w, &[]);
        for deed in deeds {
            // An act may have made the next one impossible.
            if upstream::possible(&w, &[]).contains(&deed) {
                upstream::act(&mut w, &deed);
                w.settle();
            }
        }
        if verdict::orphan(&w).is_some() {
            w = self.scan(&w, None).world;
        }
        for pool in &self.pools {
            let pooled = self.pool(&w, &pool.name_any(), long)(None).world;
            w = pooled;
        }
        let names: Vec<String> = w.shown_children().iter().map(|c| c.name_any()).collect();
        for name in names {
            let stepped = self.vm(&w, &name, long, usize::MAX)(None).world;
            w = stepped;
        }
        w
    }
}

fn lags(before: &World, a: &Action) -> Vec<Action> {
    let mut all = Vec::new();
    let mut add = |what, changed: bool, stale: Stale| {
        if changed && a.next.stale.is_none() {
            let mut next = a.next.clone();
            next.stale = Some(stale);
            next.missed = 1;
            next.left.spend(Fault::Lag);
            next.settle();
            all.push(Action {
                label: Label::Lags(what),
                next,
            });
        }
    };
    let changed = before.children != a.next.children;
    add(
        "VsphereAgents",
        changed,
        Stale::Children(before.children.clone()),
    );
    let changed = before.agents != a.next.agents;
    add("Agents", changed, Stale::Agents(before.agents.clone()));
    let changed =
        before.agent_machines != a.next.agent_machines || before.machines != a.next.machines;
    let demand = Stale::Demand(before.agent_machines.clone(), before.machines.clone());
    add("AgentMachines and Machines", changed, demand);
    all
}

/// The leader dies and loses its memory. The other instance takes over, which is the same program.
fn dies(w: &mut World) {
    w.memory.clear();
}

impl Spare for Machines {
    /// The faults, and the events that a lagging watch may still miss.
    fn spare(&self, w: &World) -> u8 {
        let misses = if w.stale.is_some() {
            LAG.saturating_sub(w.missed).min(MOST_MISSED)
        } else {
            MOST_MISSED
        };
        w.left.bits() | ((1 << misses) - 1) << Fault::ALL.len()
    }

    fn print(&self, w: &World) -> u64 {
        w.print()
    }
}

impl Model for Machines {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![self.start.clone()]
    }

    fn actions(&self, w: &World, actions: &mut Vec<Action>) {
        // States after a broken promise show nothing new.
        if w.harm.is_none() {
            actions.extend(self.successors(w));
        }
    }

    fn next_state(&self, _: &World, action: Action) -> Option<World> {
        Some(action.next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(verdict::NO_LEAK, |_, w| verdict::leak(w).is_none()),
            Property::always(verdict::NO_DOUBLE, |_, w| verdict::double(w).is_none()),
            Property::always(verdict::NO_HARM, |_, w: &World| w.harm.is_none()),
            Property::always(verdict::ENDS, |m: &Machines, w| m.endings.ends(m, w)),
            Property::sometimes("a machine is served", |_, w| verdict::served(w)),
            Property::sometimes("a machine is gone with all that was its", |_, w| {
                verdict::someone_left(w)
            }),
            Property::sometimes(binding::SERVES_AGAIN, |_, w| binding::serves_again(w)),
            Property::sometimes(binding::CHANGED_HANDS, |_, w| binding::changed_hands(w)),
        ]
    }
}
