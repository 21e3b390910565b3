//! One run of a plan: a fresh world on a runtime of its own, with virtual time and nothing else.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    panic,
    sync::{Arc, Once},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use tokio::runtime::Builder;

use crate::{
    director::{Branch, Director, Outage},
    oracles,
    plan::{Fault, Plan, Point},
    rogue,
    workloads::{self, Rest, Run, Workload},
    world::World,
};

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The plan.
    pub plan: Plan,
    /// Why it failed; empty when all promises were kept.
    pub failures: Vec<String>,
    /// Every effect, in order.
    pub effects: Vec<(Duration, Point)>,
    /// When API server or vCenter did not serve the operator.
    pub outages: Vec<Outage>,
    /// The operator's actors at the end, by kind.
    pub actors: BTreeMap<String, usize>,
    /// Tasks alive at the end.
    pub tasks: usize,
    /// The pictures at rest.
    pub rests: Vec<Rest>,
    /// Planned faults that came about.
    pub hit: usize,
    /// Hash of everything that went over the wires.
    pub hash: u64,
    /// The trace.
    pub trace: Vec<String>,
    /// When what the workload is about began; what came before is another's.
    pub begins: Duration,
    /// When the workload was over and the silence began.
    pub ended: Duration,
    /// VMs that came into being.
    pub created: u32,
    /// VMs that vCenter's inventory lost, which may have been made anew.
    pub lost: u32,
    /// Virtual time.
    pub lasted: Duration,
    /// Real time.
    pub took: Duration,
}

/// What is left of an outcome where there are thousands, and what goes from one process to another.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Verdict {
    /// The plan.
    pub plan: Plan,
    /// Why it failed; empty when all promises were kept.
    pub failures: Vec<String>,
    /// Planned faults that came about.
    pub hit: usize,
    /// Hash of everything that went over the wires.
    pub hash: u64,
    /// The trace; a worker tells that of what failed only.
    pub trace: Vec<String>,
}

impl Outcome {
    /// In short.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        Verdict {
            plan: self.plan.clone(),
            failures: self.failures.clone(),
            hit: self.hit,
            hash: self.hash,
            trace: self.trace.clone(),
        }
    }
}

/// Time without any mutating call at the end (O6).
pub const SILENCE: Duration = Duration::from_secs(3600);
/// After that long what a crash left half-written is gone.
const LEFTOVERS: Duration = Duration::from_secs(4500);
/// Tasks that may be under way at the end by chance: a look at vCenter, a renewed watch.
const TASKS: usize = 12;
/// Calls that one more fetch of an ISO may cost: directory, upload, move, deletion of the lost one, and what the two pools
/// that share it write of all that.
const REFETCH: u32 = 8;
/// As often may a fault be the cause of one.
const REFETCHES: u32 = 2;
/// Calls that one more VM may cost, where vCenter had lost the first one.
const REMAKE: u32 = 25;
/// What follows an outage at once belongs to it.
const AFTER: Duration = Duration::from_secs(60);
/// By then its end has been told of: as long as the operator may take to be steady again.
const STEADY: Duration = Duration::from_secs(120);
/// Effects that keep a session or tell of something: they change nothing that anybody relies on.
const HOUSEKEEPING: &[&str] = &["V01", "V12", "V13", "K15", "K16"];

thread_local! {
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    static RUNNING: Cell<bool> = const { Cell::new(false) };
}

fn hear_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if RUNNING.get() {
                PANICS.with_borrow_mut(|all| all.push(info.to_string()));
            } else {
                usual(info);
            }
        }));
    });
}

/// Says what was kept to itself, where the caller will not: the run itself panics.
struct Silent;

impl Drop for Silent {
    fn drop(&mut self) {
        RUNNING.set(false);
        for what in PANICS.with_borrow_mut(std::mem::take) {
            eprintln!("{what}");
        }
    }
}

/// Runs `play` on a runtime of its own with virtual time and nothing else; the panics of all its tasks beside what it gives.
///
/// # Panics
/// The runtime cannot be built.
pub fn in_virtual_time<T>(play: impl Future<Output = T>) -> (T, Vec<String>) {
    hear_panics();
    PANICS.with_borrow_mut(Vec::clear);
    // No IO driver: whoever opens a socket learns it.
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    let runtime = runtime.unwrap_or_else(|e| panic!("{e}"));
    RUNNING.set(true);
    let silent = Silent;
    let result = runtime.block_on(play);
    drop(runtime);
    RUNNING.set(false);
    std::mem::forget(silent);
    (result, PANICS.with_borrow_mut(std::mem::take))
}

/// Runs a plan, and then listens for `silence`. `reference` is the run without faults that it is compared with.
///
/// # Panics
/// There is no such workload.
#[must_use]
pub fn run(plan: &Plan, reference: Option<&Outcome>, silence: Duration) -> Outcome {
    let workload =
        workloads::named(&plan.workload).unwrap_or_else(|| panic!("no workload {}", plan.workload));
    run_workload(workload, plan, reference, silence)
}

/// As [`run`], with a workload of the caller's own.
///
/// # Panics
/// The world does not start, which is a defect here.
#[must_use]
pub fn run_workload(
    workload: &Workload,
    plan: &Plan,
    reference: Option<&Outcome>,
    silence: Duration,
) -> Outcome {
    play(workload, plan, reference, |_| silence, None)
}

/// As [`run_workload`]; `branch` may let it go on under another plan, and `silence` is that of the plan that it ends under.
///
/// # Panics
/// As there.
#[must_use]
pub fn play(
    workload: &Workload,
    plan: &Plan,
    reference: Option<&Outcome>,
    silence: impl Fn(&Plan) -> Duration,
    branch: Option<Arc<dyn Branch>>,
) -> Outcome {
    let began = Instant::now();
    let (mut outcome, panics) = in_virtual_time(async {
        let director = Director::new(plan.clone()).branching(branch);
        let world = match World::under(director, workload.instances).await {
            Ok(world) => world,
            Err(e) => panic!("the world does not start: {e:#}"),
        };
        let mut run = Run::new(world);
        let mut failures = Vec::new();
        let done = (workload.run)(&mut run).await;
        let ended = run.world.director.now();
        let plan = run.world.director.settle();
        let silence = silence(&plan);
        match done {
            Ok(()) => {
                let director = &run.world.director;
                let before = director.effects().len();
                tokio::time::sleep(silence).await;
                let after = director.effects();
                let faulty = !plan.faults.is_empty();
                // Whoever had taken the Secret away took the hold on it away; it is looked at every five minutes.
                let unheld = plan.faults.iter().any(|(_, f)| *f == Fault::SecretGone);
                // A fault that lasts into the silence is told of, and so is its end.
                let late = director.last_fault();
                let told = match plan.lasts().max() {
                    Some(lasts) if late + lasts > ended => late + lasts + STEADY,
                    _ => ended,
                };
                let held_again = told + Duration::from_secs(360);
                let mut spoken: Vec<String> = Vec::new();
                let mut logins = 0;
                let mut cleared: Vec<&str> = Vec::new();
                for (at, point) in &after[before..] {
                    let quiet = match point.effect {
                        "V13" | "K16" => true,
                        // What a dead life left half-written is cleared away an hour later, and a file that retention lets go
                        // at the next look at the datastore, when its pool says it is off its list.
                        "V10" => {
                            cleared.push(&point.key);
                            faulty
                        }
                        "K14" => {
                            let of = cleared.iter().position(|key| *key == point.key);
                            faulty && of.map(|at| cleared.swap_remove(at)).is_some()
                        }
                        "K18" => unheld && *at < held_again,
                        // A session that was lost while nobody needed it is missed at the next look.
                        "V01" if *at >= told => {
                            logins += 1;
                            faulty && logins <= 2
                        }
                        _ => *at < told,
                    };
                    if !quiet && *at >= told {
                        spoken.push(format!("{point} at {at:?}"));
                    }
                }
                if !spoken.is_empty() {
                    failures.push(format!("O6 not silent: {spoken:?}"));
                }
                if silence >= LEFTOVERS {
                    failures.extend(oracles::left_over(&run.world));
                }
            }
            Err(e) => failures.push(format!("O9 {e:#}")),
        }
        failures.extend(oracles::lost(&run.world));
        failures.extend(rogue::touched(&run.world));
        let actors = run.world.actors().await;
        let tasks = tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks();
        let director = &run.world.director;
        failures.extend(director.violations());
        failures.extend(never_came(&plan, director.hit()));
        failures.extend(oracles::leaks(&run.world));
        failures.extend(oracles::strays(&run.world));
        Outcome {
            plan,
            failures,
            effects: director.effects(),
            outages: director.outages(),
            actors,
            tasks,
            rests: run.rests.clone(),
            hit: director.hit(),
            hash: director.hash(),
            trace: director.lines(),
            begins: run.begins,
            ended,
            created: director.created(),
            lost: director.lost(),
            lasted: director.now(),
            took: Duration::ZERO,
        }
    });
    outcome.took = began.elapsed();
    outcome
        .failures
        .extend(panics.into_iter().map(|p| format!("O12 panic: {p}")));
    if let Some(reference) = reference {
        let differs = compare(&outcome, reference, workload.exact);
        outcome.failures.extend(differs);
    }
    outcome
}

/// A plan none of whose faults came about has shown nothing: its points are another run's.
#[must_use]
pub fn never_came(plan: &Plan, hit: usize) -> Option<String> {
    let nothing = !plan.faults.is_empty() && hit == 0;
    nothing
        .then(|| "none of the planned faults came about: no effect has such a key here".to_owned())
}

/// Effects by kind, without housekeeping.
#[must_use]
pub fn counts(effects: &[(Duration, Point)]) -> BTreeMap<&'static str, u32> {
    let mut out = BTreeMap::new();
    for (_, point) in effects
        .iter()
        .filter(|(_, p)| !HOUSEKEEPING.contains(&p.effect))
    {
        *out.entry(point.effect).or_default() += 1;
    }
    out
}

fn compare(outcome: &Outcome, reference: &Outcome, exact: bool) -> Vec<String> {
    let mut failures = Vec::new();
    let made = reference.created..=reference.created + outcome.lost;
    if exact && outcome.failures.is_empty() && !made.contains(&outcome.created) {
        let only = if outcome.created < reference.created {
            "only "
        } else {
            ""
        };
        failures.push(format!(
            "O5 {only}{} VMs were made, {} without faults",
            outcome.created, reference.created
        ));
    }
    for (mine, theirs) in outcome.rests.iter().zip(&reference.rests) {
        let (mine_is, theirs_is) = (pictured(outcome, mine), pictured(outcome, theirs));
        if mine_is != theirs_is {
            let lacks = |all: &[String], line: &&String| !all.contains(line);
            let lost: Vec<_> = theirs_is.iter().filter(|l| lacks(&mine_is, l)).collect();
            let new: Vec<_> = mine_is.iter().filter(|l| lacks(&theirs_is, l)).collect();
            failures.push(format!(
                "O4 at {:?}: missing {lost:#?}, instead {new:#?}",
                mine.name
            ));
        }
    }
    failures.extend(thrift(outcome, reference, exact));
    // Fewer is no trouble: a process that was started at the end had no need of an ISO cache any more.
    let more = |(kind, count): (&String, &usize)| {
        *count > reference.actors.get(kind).copied().unwrap_or(0)
    };
    if outcome.failures.is_empty() && outcome.actors.iter().any(more) {
        failures.push(format!(
            "O11 actors at the end: {:?}, without faults {:?}",
            outcome.actors, reference.actors
        ));
    }
    if outcome.failures.is_empty() && outcome.tasks > reference.tasks + TASKS {
        failures.push(format!(
            "O11 {} tasks at the end, {} without faults",
            outcome.tasks, reference.tasks
        ));
    }
    failures
}

/// The picture of a rest, without the attempts of VMs that may have been made anew since vCenter had lost them.
fn pictured(outcome: &Outcome, rest: &Rest) -> Vec<String> {
    let masked = |line: &String| {
        let words = line
            .split(' ')
            .filter(|w| outcome.lost == 0 || !w.starts_with("attempt="));
        words.collect::<Vec<_>>().join(" ")
    };
    let mut lines: Vec<String> = rest.picture.iter().map(masked).collect();
    lines.sort();
    lines
}

/// Outages of one server that follow each other at once are one.
fn apart(outages: &[Outage]) -> Vec<Outage> {
    let mut all = outages.to_vec();
    all.sort_by_key(|o| (o.of_vcenter, o.from));
    let mut out: Vec<Outage> = Vec::new();
    for next in all {
        match out.last_mut() {
            Some(last) if last.of_vcenter == next.of_vcenter && next.from <= last.until + AFTER => {
                last.until = last.until.max(next.until);
            }
            _ => out.push(next),
        }
    }
    out
}

/// O7: few calls more than without faults, and in an outage only as many tries as its length explains.
fn thrift(outcome: &Outcome, reference: &Outcome, exact: bool) -> Vec<String> {
    let mut failures = Vec::new();
    let outages = apart(&outcome.outages);
    let hits = |outage: &Outage, (at, point): &(Duration, Point)| {
        outage.of_vcenter == point.effect.starts_with('V')
            && (outage.from..outage.until + AFTER).contains(at)
    };
    let usual: Vec<_> = outcome
        .effects
        .iter()
        .filter(|e| !outages.iter().any(|o| hits(o, e)))
        .cloned()
        .collect();
    let total = |effects: &[(Duration, Point)]| counts(effects).values().sum::<u32>();
    let faults = u32::try_from(outcome.plan.faults.len()).unwrap_or(u32::MAX);
    // Whoever died before the record of an ISO fetches it anew, and takes the lost one away.
    let fetched = |effects: &[(Duration, Point)]| counts(effects).get("V08").copied();
    let anew = fetched(&usual).unwrap_or(0);
    let anew = anew.saturating_sub(fetched(&reference.effects).unwrap_or(0));
    let anew = anew.min(REFETCHES * faults.max(1));
    // Whoever has a status says an outage, and its end.
    let statuses = reference.effects.iter().map(|(_, p)| p);
    let statuses = statuses.filter(|p| matches!(p.effect, "K06" | "K13"));
    let told: BTreeSet<&str> = statuses.map(|p| p.key.as_str()).collect();
    let told = u32::try_from(2 * told.len() * outages.len()).unwrap_or(u32::MAX);
    let remade = REMAKE * outcome.lost;
    // An Agent whose binding is delayed is told of by itself first: two writes where the reference has one.
    let arrivals = counts(&reference.effects).get("V02").copied().unwrap_or(0);
    let allowed = total(&reference.effects)
        + 3 * faults.max(1)
        + 9
        + arrivals
        + REFETCH * anew
        + told
        + remade;
    // Where something races, a late request may be work that the reference never had.
    if exact && total(&usual) > allowed {
        failures.push(format!(
            "O7 {} mutating calls, {} without faults: {:?}",
            total(&usual),
            total(&reference.effects),
            counts(&usual)
        ));
    }
    for outage in &outages {
        let mut tries: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        let counted = |p: &Point| p.effect == "V01" || !HOUSEKEEPING.contains(&p.effect);
        let during = outcome.effects.iter().filter(|e| hits(outage, e));
        for (_, point) in during.filter(|(_, p)| counted(p)) {
            *tries.entry((point.effect, &point.key)).or_default() += 1;
        }
        let seconds = (outage.until + AFTER - outage.from).as_secs();
        let most = |effect: &str| match effect {
            "V01" => 8 + seconds / 30,
            _ => 12 + seconds / 10,
        };
        for ((effect, key), count) in tries.into_iter().filter(|((e, _), n)| *n > most(e)) {
            failures.push(format!(
                "O7 {count} tries of {effect} for {key} in an outage and the minute after it, {seconds} s"
            ));
        }
    }
    failures
}
