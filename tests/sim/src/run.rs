//! One run of a plan: a fresh world on a runtime of its own, with virtual time only.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    panic,
    sync::{Arc, Once},
    time::{Duration, Instant},
};

use agent_forge_actors::ports::effect::EffectKind;
use serde::{Deserialize, Serialize};
use tokio::runtime::Builder;

use crate::{
    call,
    director::{Branch, Director, Outage},
    kube::kind,
    oracles,
    plan::{Fault, Plan, Point},
    promise::{Failure, Oracle},
    recovery,
    strangers::Strangers,
    tolerances::{
        self, AFTER, AT_LEAST, ATTEMPTS, CLEARED, FEWER_ACTORS, FOR_EACH_FAULT, FOR_EACH_VM,
        GOES_ON, HELD_AGAIN, LOGIN_TRIES, LOGINS, RACES, REFETCH, REFETCHES, REMADE, REMAKE,
        REPORTS, STEADY, TASKS, TRIES,
    },
    workloads::{self, Rest, Run, Workload},
    world::World,
};

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The plan.
    pub plan: Plan,
    /// The broken promises. Empty when the run kept all of them.
    pub failures: Vec<Failure>,
    /// Every effect, in order.
    pub effects: Vec<(Duration, Point)>,
    /// Every live read, in order.
    pub reads: Vec<(Duration, Point)>,
    /// When the API server or vCenter did not serve the operator.
    pub outages: Vec<Outage>,
    /// The operator's actors at the end, by kind.
    pub actors: BTreeMap<String, usize>,
    /// Tasks alive at the end.
    pub tasks: usize,
    /// The state at each rest.
    pub rests: Vec<Rest>,
    /// Planned faults that came about.
    pub hit: usize,
    /// When the last of them came about.
    pub struck: Duration,
    /// What the operator did only because of the only fault ([`recovery::points`]). Empty without a reference run.
    pub recovery: Vec<Point>,
    /// What anybody wrote of VsphereAgents, in order.
    pub vsphere_agents: Vec<Arc<serde_json::Value>>,
    /// Hash of everything that was sent.
    pub hash: u64,
    /// The trace.
    pub trace: Vec<String>,
    /// When the workload's own part began. Faults hit only what comes after that.
    pub begins: Duration,
    /// When the workload was over and the silence began.
    pub ended: Duration,
    /// Number of VMs that were created.
    pub created: u32,
    /// Number of VMs that vCenter's inventory lost. The operator may have made them again.
    pub lost: u32,
    /// Virtual time that the run took.
    pub lasted: Duration,
    /// Real time that the run took.
    pub took: Duration,
}

/// A short result, for thousands of plans and for the way between processes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Verdict {
    /// The plan.
    pub plan: Plan,
    /// A part of the plan that breaks the same promise (`shrink.rs`). The failures and the trace are of this part.
    pub shrunk: Option<Plan>,
    /// The broken promises. Empty when the run kept all of them.
    pub failures: Vec<Failure>,
    /// Planned faults that came about.
    pub hit: usize,
    /// Hash of everything that was sent.
    pub hash: u64,
    /// What the operator did only because of the only fault ([`recovery::points`]).
    pub recovery: Vec<Point>,
    /// The trace. A worker sends only the traces of failed plans.
    pub trace: Vec<String>,
}

impl Verdict {
    /// The plan that people read, and that the failures are of.
    #[must_use]
    pub fn shown(&self) -> &Plan {
        self.shrunk.as_ref().unwrap_or(&self.plan)
    }
}

impl Outcome {
    /// Where something can go wrong in this run: its effects, and the reads that guard one, in order.
    #[must_use]
    pub fn points(&self) -> Vec<(Duration, Point)> {
        let mut all = self.effects.clone();
        all.extend(call::guards(&self.effects, &self.reads));
        all.sort_by_key(|(at, _)| *at);
        all
    }

    /// Whether that effect or read came about.
    #[must_use]
    pub fn came(&self, point: &Point) -> bool {
        let mut all = self.effects.iter().chain(&self.reads);
        all.any(|(_, p)| p == point)
    }

    /// The short form of this result.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        Verdict {
            plan: self.plan.clone(),
            shrunk: None,
            failures: self.failures.clone(),
            hit: self.hit,
            hash: self.hash,
            recovery: self.recovery.clone(),
            trace: self.trace.clone(),
        }
    }
}

/// Time at the end in which the operator may change nothing (`silent_at_rest`).
pub const SILENCE: Duration = Duration::from_secs(3600);

/// Silence after a run with faults, if no other one is named.
pub const LISTEN: Duration = Duration::from_secs(900);
/// Longer silence after a fault on an ISO. Only then the operator checks what a dead process or a lost answer has left
/// there.
const LISTEN_TO_ISOS: Duration = Duration::from_secs(80 * 60);
/// Directory, upload, move and deletion of an ISO.
const ISO_EFFECTS: [EffectKind; 4] = [
    EffectKind::MakeDirectory,
    EffectKind::Upload,
    EffectKind::Publish,
    EffectKind::DeleteFile,
];

/// How long a run of that plan listens at the end. All commands and suites use it, so that a plan that is replayed is the
/// plan that ran.
#[must_use]
pub fn silence_after(plan: &Plan) -> Duration {
    match plan.faults.as_slice() {
        [] => SILENCE,
        [(point, _)] if ISO_EFFECTS.iter().any(|e| point.is(*e)) => LISTEN_TO_ISOS,
        _ => LISTEN,
    }
}
/// After this time, the half-written files of a crashed process are gone.
const LEFTOVERS: Duration = Duration::from_secs(4500);
/// Effects that keep a session or report something. They change nothing that other parts rely on.
const HOUSEKEEPING: &[EffectKind] = &[
    EffectKind::Login,
    EffectKind::Logout,
    EffectKind::SessionView,
    EffectKind::Event,
    EffectKind::Lease,
];

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

/// Prints the collected panics when the run itself panics and its caller cannot print them.
struct Silent;

impl Drop for Silent {
    fn drop(&mut self) {
        RUNNING.set(false);
        for what in PANICS.with_borrow_mut(std::mem::take) {
            eprintln!("{what}");
        }
    }
}

/// Runs `play` on a runtime of its own with virtual time only. Returns its result, and the panics of all its tasks.
///
/// # Panics
/// The runtime cannot be built.
pub fn in_virtual_time<T>(play: impl Future<Output = T>) -> (T, Vec<String>) {
    hear_panics();
    PANICS.with_borrow_mut(Vec::clear);
    // There is no IO driver: code that opens a socket fails at once.
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

/// Runs a plan, and then listens for `silence`. The result is compared with `reference`, the run without faults.
///
/// # Panics
/// There is no such workload.
#[must_use]
pub fn run(plan: &Plan, reference: Option<&Outcome>, silence: Duration) -> Outcome {
    let workload =
        workloads::named(&plan.workload).unwrap_or_else(|| panic!("no workload {}", plan.workload));
    run_workload(workload, plan, reference, silence)
}

/// Like [`run`], with a workload of the caller's own.
///
/// # Panics
/// The world does not start, which is a defect of the simulation.
#[must_use]
pub fn run_workload(
    workload: &Workload,
    plan: &Plan,
    reference: Option<&Outcome>,
    silence: Duration,
) -> Outcome {
    play(workload, plan, reference, |_| silence, None)
}

/// Like [`run_workload`]. `branch` may continue the run under another plan, and `silence` gives the silence of the plan
/// that the run ends under.
///
/// # Panics
/// As [`run_workload`].
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
                // The fault that removed the Secret removed its finalizer too. The operator checks the finalizer every
                // five minutes.
                let mut faults = plan.faults.iter();
                let unheld = faults.any(|(_, f)| *f == Fault::SecretMissing2m);
                // When a fault lasts into the silence, the operator reports its start and its end.
                let late = director.last_fault();
                let told = match plan.lasts().max() {
                    Some(lasts) if late + lasts > ended => late + lasts + STEADY.allows,
                    _ => ended,
                };
                let held_again = told + HELD_AGAIN.allows;
                let mut spoken: Vec<String> = Vec::new();
                let mut logins = 0;
                let mut cleared: Vec<&str> = Vec::new();
                for (at, point) in &after[before..] {
                    let Some(effect) = point.call.effect() else {
                        continue;
                    };
                    let quiet = match effect {
                        _ if GOES_ON.allows.contains(&effect) => true,
                        // Files are deleted late in two cases. The operator removes a half-written file of a dead
                        // process after an hour. It also deletes a file that retention drops when it next looks at the
                        // datastore, and the pool's status then drops the file too.
                        EffectKind::DeleteFile => {
                            cleared.push(&point.key);
                            CLEARED.lets(faulty)
                        }
                        EffectKind::IsoStatus => {
                            let of = cleared.iter().position(|key| *key == point.key);
                            CLEARED.lets(faulty && of.map(|at| cleared.swap_remove(at)).is_some())
                        }
                        EffectKind::Event => {
                            let strangers = &run.world.strangers;
                            let told_again = |s: &Strangers| s.is_reported(&point.key);
                            *at < told || strangers.as_ref().is_some_and(told_again)
                        }
                        EffectKind::HoldSecret => unheld && *at < held_again,
                        // The operator notices a lost session only when it next looks at vCenter.
                        EffectKind::Login if *at >= told => {
                            logins += 1;
                            faulty && logins <= LOGINS.allows
                        }
                        _ => *at < told,
                    };
                    if !quiet && *at >= told {
                        spoken.push(format!("{point} at {at:?}"));
                    }
                }
                if !spoken.is_empty() {
                    failures.push(Oracle::SilentAtRest.broken(format!("{spoken:?}")));
                }
                if silence >= LEFTOVERS {
                    failures.extend(oracles::left_over(&run.world));
                }
            }
            Err(e) => failures.push(Oracle::ConvergesInTime.broken(format!("{e:#}"))),
        }
        failures.extend(oracles::lost(&run.world));
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
            reads: director.live_reads(),
            outages: director.outages(),
            actors,
            tasks,
            rests: run.rests.clone(),
            hit: director.hit(),
            struck: director.last_fault(),
            recovery: Vec::new(),
            vsphere_agents: run.world.api.read(|s| s.written(&kind("vsphereagents"))),
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
    let panics = panics.into_iter().map(|p| format!("panic: {p}"));
    let panics = panics.map(|p| Oracle::ProblemsAreExplained.broken(p));
    outcome.failures.extend(panics);
    if let Some(reference) = reference {
        let differs = compare(&outcome, reference, workload.exact);
        outcome.failures.extend(differs);
        if outcome.plan.faults.len() == 1 && outcome.hit == 1 {
            outcome.recovery = recovery::points(&outcome, reference);
        }
    }
    outcome
}

/// A plan is invalid when none of its faults came about: its points belong to another run.
#[must_use]
pub fn never_came(plan: &Plan, hit: usize) -> Option<Failure> {
    let nothing = !plan.faults.is_empty() && hit == 0;
    let what =
        "none of the planned faults came about: no effect or read of this run is such a point";
    nothing.then(|| Oracle::PlanFitsTheRun.broken(what))
}

/// Number of effects by kind, without [`HOUSEKEEPING`].
#[must_use]
pub fn counts(effects: &[(Duration, Point)]) -> BTreeMap<EffectKind, u32> {
    let mut out = BTreeMap::new();
    let kinds = effects.iter().filter_map(|(_, p)| p.call.effect());
    for effect in kinds.filter(|e| !HOUSEKEEPING.contains(e)) {
        *out.entry(effect).or_default() += 1;
    }
    out
}

/// [`counts`], with the names of the effects.
#[must_use]
pub fn counts_by_name(effects: &[(Duration, Point)]) -> String {
    let all = counts(effects).into_iter();
    let all = all.map(|(effect, count)| format!("{} {count}", effect.name()));
    all.collect::<Vec<_>>().join(", ")
}

/// Whether it is a call to vCenter. The others are calls to the API server.
fn is_of_vcenter(point: &Point) -> bool {
    let effect = point.call.effect();
    effect.is_some_and(|e| e.code().starts_with('V'))
}

fn compare(outcome: &Outcome, reference: &Outcome, exact: bool) -> Vec<Failure> {
    let mut failures = Vec::new();
    let made = reference.created..=reference.created + REMADE.allows * outcome.lost;
    let races = RACES.lets(!exact);
    if !races && outcome.failures.is_empty() && !made.contains(&outcome.created) {
        let only = if outcome.created < reference.created {
            "only "
        } else {
            ""
        };
        failures.push(Oracle::SameNumberOfVms.broken(format!(
            "{only}{} VMs were made, {} without faults",
            outcome.created, reference.created
        )));
    }
    for (mine, theirs) in outcome.rests.iter().zip(&reference.rests) {
        let (mine_is, theirs_is) = (pictured(outcome, mine), pictured(outcome, theirs));
        if mine_is != theirs_is {
            let lacks = |all: &[String], line: &&String| !all.contains(line);
            let lost: Vec<_> = theirs_is.iter().filter(|l| lacks(&mine_is, l)).collect();
            let new: Vec<_> = mine_is.iter().filter(|l| lacks(&theirs_is, l)).collect();
            failures.push(Oracle::SameFinalState.broken(format!(
                "at {:?}: missing {lost:#?}, instead {new:#?}",
                mine.name
            )));
        }
    }
    failures.extend(slow(outcome, reference));
    failures.extend(thrift(outcome, reference, races));
    let more = |(kind, count): (&String, &usize)| {
        !FEWER_ACTORS.lets(*count <= reference.actors.get(kind).copied().unwrap_or(0))
    };
    if outcome.failures.is_empty() && outcome.actors.iter().any(more) {
        failures.push(Oracle::NoExtraActorsOrTasks.broken(format!(
            "actors at the end: {:?}, without faults {:?}",
            outcome.actors, reference.actors
        )));
    }
    if outcome.failures.is_empty() && outcome.tasks > reference.tasks + TASKS.allows {
        failures.push(Oracle::NoExtraActorsOrTasks.broken(format!(
            "{} tasks at the end, {} without faults",
            outcome.tasks, reference.tasks
        )));
    }
    failures
}

/// The state at a rest. When vCenter lost VMs, the operator may have made them again, so the numbers of their attempts
/// are left out.
fn pictured(outcome: &Outcome, rest: &Rest) -> Vec<String> {
    let masked = |line: &String| {
        let words = line
            .split(' ')
            .filter(|w| !ATTEMPTS.lets(outcome.lost > 0 && w.starts_with("attempt=")));
        words.collect::<Vec<_>>().join(" ")
    };
    let mut lines: Vec<String> = rest.picture.iter().map(masked).collect();
    lines.sort();
    lines
}

/// Joins outages of one server that follow each other at once.
fn apart(outages: &[Outage]) -> Vec<Outage> {
    let mut all = outages.to_vec();
    all.sort_by_key(|o| (o.of_vcenter, o.from));
    let mut out: Vec<Outage> = Vec::new();
    for next in all {
        match out.last_mut() {
            Some(last)
                if last.of_vcenter == next.of_vcenter && next.from <= last.until + AFTER.allows =>
            {
                last.until = last.until.max(next.until);
            }
            _ => out.push(next),
        }
    }
    out
}

/// Checks `converges_in_time` against the run without faults: no step takes longer than the causes of the faults and
/// [`tolerances::recovery`] explain.
fn slow(outcome: &Outcome, reference: &Outcome) -> Vec<Failure> {
    let causes: Duration = outcome.plan.lasts().sum();
    let more = causes + tolerances::recovery(&outcome.plan);
    let steps = outcome.rests.iter().zip(&reference.rests);
    let late = steps.filter(|(mine, theirs)| mine.took > theirs.took + more);
    let tell = |(mine, theirs): (&Rest, &Rest)| {
        Oracle::ConvergesInTime.broken(format!(
            "{:?} took {:?}, {:?} without faults: {:?} more is allowed",
            mine.name, mine.took, theirs.took, more
        ))
    };
    late.map(tell).collect()
}

/// Checks `few_extra_calls`: few calls more than without faults, and in an outage only as many tries as its length
/// explains.
fn thrift(outcome: &Outcome, reference: &Outcome, races: bool) -> Vec<Failure> {
    let mut failures = Vec::new();
    let outages = apart(&outcome.outages);
    let hits = |outage: &Outage, (at, point): &(Duration, Point)| {
        outage.of_vcenter == is_of_vcenter(point)
            && (outage.from..outage.until + AFTER.allows).contains(at)
    };
    let mut usual = outcome.effects.clone();
    usual.retain(|e| !outages.iter().any(|o| hits(o, e)));
    let total = |effects: &[(Duration, Point)]| counts(effects).values().sum::<u32>();
    let faults = u32::try_from(outcome.plan.faults.len()).unwrap_or(u32::MAX);
    // A process that died before it recorded an ISO downloads it again and deletes the lost file.
    let count = |effects: &[(Duration, Point)], of| counts(effects).get(&of).copied().unwrap_or(0);
    let anew = count(&usual, EffectKind::Upload);
    let anew = anew.saturating_sub(count(&reference.effects, EffectKind::Upload));
    let anew = anew.min(REFETCHES.allows * faults.max(1));
    // Each object with a status reports an outage and its end. The same is true of a pause and of a veto.
    let statuses = reference.effects.iter().map(|(_, p)| p);
    let statuses =
        statuses.filter(|p| p.is(EffectKind::RecordObservation) || p.is(EffectKind::PoolStatus));
    let told: BTreeSet<&str> = statuses.map(|p| p.key.as_str()).collect();
    let faults_of_it = outcome.plan.faults.iter();
    let holds = faults_of_it.filter(|(_, fault)| fault.is_hold());
    let told = told.len() * (outages.len() + holds.count());
    let told = REPORTS.allows * u32::try_from(told).unwrap_or(u32::MAX);
    let arrivals = count(&reference.effects, EffectKind::CreateVm);
    let allowed = total(&reference.effects)
        + FOR_EACH_FAULT.allows * faults.max(1)
        + AT_LEAST.allows
        + FOR_EACH_VM.allows * arrivals
        + REFETCH.allows * anew
        + told
        + REMAKE.allows * outcome.lost;
    if !races && total(&usual) > allowed {
        failures.push(Oracle::FewExtraCalls.broken(format!(
            "{} mutating calls, {} without faults: {:?}",
            total(&usual),
            total(&reference.effects),
            counts_by_name(&usual)
        )));
    }
    for outage in &outages {
        let mut tries: BTreeMap<(EffectKind, &str), u64> = BTreeMap::new();
        let counted = |e: &EffectKind| *e == EffectKind::Login || !HOUSEKEEPING.contains(e);
        let during = outcome.effects.iter().filter(|e| hits(outage, e));
        for (_, point) in during {
            if let Some(effect) = point.call.effect().filter(counted) {
                *tries.entry((effect, &point.key)).or_default() += 1;
            }
        }
        let lasted = outage.until + AFTER.allows - outage.from;
        let too_many = |effect, count| {
            let allowed = if effect == EffectKind::Login {
                LOGIN_TRIES
            } else {
                TRIES
            };
            count > allowed.within(lasted)
        };
        for ((effect, key), count) in tries.into_iter().filter(|((e, _), n)| too_many(*e, *n)) {
            failures.push(Oracle::FewExtraCalls.broken(format!(
                "{count} tries of {} for {key} in an outage and the minute after it, {} s",
                effect.name(),
                lasted.as_secs()
            )));
        }
    }
    failures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_whose_faults_never_come_about_fits_no_run() {
        let plan: Plan = "one_machine@1 create:nobody#1=refused"
            .parse()
            .expect("plan");
        let failure = never_came(&plan, 0).expect("a failure");
        assert_eq!(failure.oracle, Oracle::PlanFitsTheRun);
        assert_eq!(never_came(&plan, 1), None);
        assert_eq!(never_came(&Plan::default(), 0), None);
    }
}
