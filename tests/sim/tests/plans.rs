//! The operator with one thing going wrong at a time, and with several.
//!
//! By itself the suite runs every plan with a single fault of [`WORKLOADS`] and, whatever the workload, of
//! [`STORE_EFFECTS`], every n-th one of [`SAMPLED`] and of [`RESTORED`], of the rest those that give each effect each
//! fault, and random schedules of one to five faults of all workloads. `AGENT_FORGE_SIM_PLANS` runs that many single faults of all workloads, of every effect with every fault
//! one first; `all` runs every one.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
    path::Path,
    sync::OnceLock,
    time::Duration,
};

use agent_forge_actors::ports::effect::EffectKind;
use agent_forge_sim::{
    branches::{self, Planned},
    known,
    matrix::{self, Matrix},
    plan::{Fault, Plan, Point},
    run::{Outcome, SILENCE, Verdict, run},
    workloads,
};

/// That many plans have every effect with every fault.
const CELLS: usize = 1000;
/// Workloads all of whose plans run without being asked for.
const WORKLOADS: &[&str] = &["S1", "S7"];
/// What goes to a datastore or into a drive: all of it in every workload that is not [`SAMPLED`].
const STORE_EFFECTS: [&str; 6] = ["V07", "V08", "V09", "V10", "V11", "V15"];
/// Workloads every n-th of whose plans runs without being asked for, whatever its effect.
const SAMPLED: &[(&str, usize)] = &[
    ("S12", 40),
    ("S15s", 79),
    ("S15u", 79),
    ("S15r", 79),
    ("S15e", 79),
    ("S15d", 79),
    ("S15h", 79),
    ("S15p", 79),
    ("S15f", 79),
    ("S25", 79),
    ("S26", 79),
    ("S26a", 79),
    ("S27", 79),
    ("S28", 79),
    ("S29", 79),
    ("S30", 79),
    ("S31", 79),
    ("S32", 79),
];
/// Of the plans with that fault, whatever workload and effect, every n-th one: each is half an hour longer than others, and
/// one moment for it is much as another.
const RESTORED: (Fault, usize) = (Fault::VcenterRestored, 20);
/// At least that many plans with a single fault run without being asked for.
const SINGLES: usize = 4000;
/// Random schedules of one to five faults.
const SCHEDULES: usize = 500;
/// Listening after each run; the references listen for an hour.
const LISTEN: Duration = Duration::from_secs(900);
/// And longer after a fault on an ISO's way: only then it is asked what a dead process or a lost answer has left there.
const LISTEN_TO_ISOS: Duration = Duration::from_secs(80 * 60);
/// Directory, upload, move and deletion of an ISO.
const ISO_EFFECTS: [&str; 4] = ["V07", "V08", "V09", "V10"];

/// Listening after a plan with a single fault.
fn listening(plan: &Plan) -> Duration {
    let of_iso = |point: &Point| ISO_EFFECTS.contains(&point.effect);
    if plan.faults.len() == 1 && of_iso(&plan.faults[0].0) {
        LISTEN_TO_ISOS
    } else {
        LISTEN
    }
}

fn listened(plan: Plan) -> Planned {
    let silence = listening(&plan);
    (plan, silence)
}

fn worker() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_sim"))
}

fn plan(text: &str) -> Plan {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// The runs without faults, made once for all tests.
fn references() -> &'static [Outcome] {
    static REFERENCES: OnceLock<Vec<Outcome>> = OnceLock::new();
    REFERENCES.get_or_init(|| {
        let all = workloads::ALL.iter().map(|w| matrix::reference(w, 1));
        all.inspect(|r| {
            assert!(
                r.failures.is_empty(),
                "without any fault:\n{}",
                matrix::report(&r.verdict())
            );
        })
        .collect()
    })
}

/// Past the test harness, which keeps to itself what passing tests print: what ran is part of the result.
fn say(text: &str) {
    // Whoever closed the output does not want it.
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

/// Every plan with a single fault, by workload.
fn every(references: &[Outcome]) -> Vec<Vec<Plan>> {
    let of = |r| matrix::plans(r, Fault::ALL);
    references.iter().map(of).collect()
}

/// How many plans of that workload there are for one of the suite.
fn sampled(workload: &str) -> Option<usize> {
    let found = SAMPLED.iter().find(|(name, _)| *name == workload);
    found.map(|(_, nth)| *nth)
}

/// Every plan of [`WORKLOADS`] and [`STORE_EFFECTS`], every n-th of [`SAMPLED`] and [`RESTORED`], and one more for each
/// effect and fault that these have not.
fn suite(references: &[Outcome]) -> Vec<Vec<Plan>> {
    let cell = |p: &Plan| (p.faults[0].0.effect, p.faults[0].1);
    let mut plans = every(references);
    for (reference, plans) in references.iter().zip(&mut plans) {
        if let Some(nth) = sampled(&reference.plan.workload) {
            *plans = plans.iter().step_by(nth).cloned().collect();
        }
    }
    let is_restored = |p: &&Plan| p.faults[0].1 == RESTORED.0;
    let restored = plans.iter().flatten().filter(is_restored);
    let restored: BTreeSet<Plan> = restored.step_by(RESTORED.1).cloned().collect();
    let whole = |p: &Plan| {
        if sampled(&p.workload).is_some() {
            return true;
        }
        if is_restored(&p) {
            return restored.contains(p);
        }
        WORKLOADS.contains(&p.workload.as_str()) || STORE_EFFECTS.contains(&p.faults[0].0.effect)
    };
    let all = plans.iter().flatten();
    let mut seen: BTreeSet<_> = all.filter(|p| whole(p)).map(cell).collect();
    for plans in &mut plans {
        plans.retain(|p| whole(p) || seen.insert(cell(p)));
    }
    plans
}

/// Of every effect and fault one plan, then a second one, and so on.
fn spread(references: &[Outcome], count: usize) -> Vec<Vec<Plan>> {
    let mut all: Vec<(usize, Plan)> = every(references)
        .into_iter()
        .enumerate()
        .flat_map(|(i, plans)| plans.into_iter().map(move |p| (i, p)))
        .collect();
    fastrand::Rng::with_seed(1).shuffle(&mut all);
    let mut cells: BTreeMap<(&str, Fault), usize> = BTreeMap::new();
    let mut ranked: Vec<(usize, usize, Plan)> = all
        .into_iter()
        .map(|(i, p)| {
            let rank = cells
                .entry((p.faults[0].0.effect, p.faults[0].1))
                .or_default();
            *rank += 1;
            (*rank, i, p)
        })
        .collect();
    ranked.sort_by_key(|(rank, ..)| *rank);
    ranked.truncate(count);
    let mut out = vec![Vec::new(); references.len()];
    for (_, i, plan) in ranked {
        out[i].push(plan);
    }
    out
}

/// What failed, by one line each that plays it again, and the first one's trace.
fn judge(failed: &[Verdict]) {
    let told: Vec<String> = failed
        .iter()
        .map(|o| format!("{}\n  {}", matrix::replay(&o.plan), o.failures.join("\n  ")))
        .collect();
    let first = failed.first().map(matrix::report).unwrap_or_default();
    assert!(
        failed.is_empty(),
        "{} plans failed:\n{}\n{first}",
        failed.len(),
        told.join("\n")
    );
}

/// What came of plans of all workloads.
#[derive(Default)]
struct Tally {
    table: Matrix,
    failed: Vec<Verdict>,
    excused: BTreeMap<&'static str, Vec<String>>,
    by_workload: Vec<usize>,
}

impl Tally {
    fn of(plans: Vec<Vec<Plan>>) -> Self {
        let mut tally = Self {
            by_workload: plans.iter().map(Vec::len).collect(),
            ..Self::default()
        };
        let all: Vec<Planned> = plans.into_iter().flatten().map(listened).collect();
        let at_once = |v: &Verdict| {
            if !v.failures.is_empty() && known::excuse(v).is_none() {
                let what = v.failures.join("\n  ");
                say(&format!("FAILED {}\n  {what}", matrix::replay(&v.plan)));
            }
        };
        for verdict in branches::run_all(worker(), &all, at_once).expect("workers") {
            tally.table.count(&verdict);
            if verdict.failures.is_empty() {
                continue;
            }
            match known::excuse(&verdict) {
                Some(reason) => {
                    let all = tally.excused.entry(reason).or_default();
                    all.push(verdict.plan.to_string());
                }
                None => tally.failed.push(verdict),
            }
        }
        tally
    }

    fn tell(&self) {
        for (reason, plans) in &self.excused {
            say(&format!(
                "known ({reason}): {} plans, e.g. {}",
                plans.len(),
                plans[0]
            ));
        }
    }
}

#[test]
fn the_same_plan_gives_the_same_trace() {
    let once = plan("S3@1 V08:demo/w#1=m1 K14:demo/w#2=m2 V01:vcenter.example#2=m5");
    let all_watches = plan("S2@1 K13:demo/w#2=g11m K13:demo/x#1=g8 V02:demo/x-9e377-66296#1=g7");
    for plan in [&once, &all_watches] {
        let first = run(plan, None, LISTEN);
        assert_eq!(first.hit, 3, "all three faults came about");
        for _ in 0..3 {
            let again = run(plan, None, LISTEN);
            assert_eq!(first.hash, again.hash, "{}", difference(&first, &again));
            assert_eq!(first.effects, again.effects);
        }
    }
    let (plan, first) = (once.clone(), run(&once, None, LISTEN));
    let other = run(&Plan { seed: 2, ..plan }, None, LISTEN);
    assert_ne!(first.hash, other.hash, "another seed is another run");
}

/// Plans are played from where they part from the run without faults, and from each other.
#[test]
fn a_run_that_parts_from_another_is_the_run_that_is_played_alone() {
    let (vm, agent) = ("demo/w-9e377-66296", "V02:demo/w-9e377-66296#1");
    let plans = [
        format!("S1@1 {agent}=m1"),
        format!("S1@1 {agent}=m5"),
        // Parts from the one before at its second fault.
        format!("S1@1 {agent}=m5 V06:{vm}#1=m2"),
        format!("S1@1 {agent}=m5 V06:{vm}#1=m3"),
        // Never comes to its second fault.
        format!("S1@1 {agent}=m5 V06:{vm}#99=m3"),
        "S1@1 V01:vcenter.example#1=m4".to_owned(),
        format!("S1@1 V06:{vm}#1=g11m"),
    ];
    let plans: Vec<Planned> = plans.iter().map(|p| (plan(p), LISTEN)).collect();
    let verdicts = branches::run_all(worker(), &plans, |_| {}).expect("workers");
    assert_eq!(verdicts.len(), plans.len());
    let reference = references().iter().find(|r| r.plan.workload == "S1");
    for (verdict, (plan, silence)) in verdicts.iter().zip(&plans) {
        let alone = run(plan, reference, *silence).verdict();
        assert_eq!(verdict.plan, alone.plan);
        assert_eq!(verdict.failures, alone.failures, "{plan}");
        assert_eq!(
            (verdict.hit, verdict.hash),
            (alone.hit, alone.hash),
            "{plan}"
        );
    }
    assert_eq!(verdicts[2].hit, 2, "both faults came about");
}

/// Where a verdict is missing, nothing has passed.
#[test]
fn a_worker_that_ends_without_a_verdict_has_failed() {
    let plans = [(plan("S1@1 V02:demo/w#1=m1"), LISTEN)];
    let verdicts = branches::run_all(Path::new("true"), &plans, |_| {}).expect("workers");
    assert!(verdicts[0].failures[0].contains("without a verdict"));
}

fn difference(a: &Outcome, b: &Outcome) -> String {
    let pairs = a.trace.iter().zip(&b.trace);
    let at = pairs.take_while(|(x, y)| x == y).count();
    format!("line {at}: {:?} or {:?}", a.trace.get(at), b.trace.get(at))
}

#[test]
fn every_promise_holds_with_one_fault_anywhere() {
    let count = match std::env::var("AGENT_FORGE_SIM_PLANS").as_deref() {
        Ok("all") => Some(usize::MAX),
        Ok(number) => Some(
            number
                .parse()
                .expect("AGENT_FORGE_SIM_PLANS: a number or `all`"),
        ),
        Err(_) => None,
    };
    let plans = match count {
        Some(count) => spread(references(), count),
        None => suite(references()),
    };
    let there_are: usize = every(references()).iter().map(Vec::len).sum();
    let ran: usize = plans.iter().map(Vec::len).sum();
    let tally = Tally::of(plans);
    say(&tally.table.text(Fault::ALL));
    for (reference, plans) in references().iter().zip(&tally.by_workload) {
        say(&format!("{}: {plans} plans", reference.plan.workload));
    }
    say(&format!("{ran} of {there_are} plans with a single fault"));
    tally.tell();
    judge(&tally.failed);
    if count.is_none() {
        assert!(ran >= SINGLES, "only {ran} plans");
    }
    if count.is_none_or(|c| c >= CELLS) {
        let missing = tally.table.missing();
        assert!(
            missing.is_empty(),
            "cells without plan or reason: {missing:?}"
        );
    }
}

#[test]
fn every_promise_holds_with_several_faults() {
    let references = references();
    let plans = references.iter().enumerate().map(|(at, reference)| {
        let share = SCHEDULES / references.len() + usize::from(at < SCHEDULES % references.len());
        matrix::schedules(reference, share, 1)
    });
    let tally = Tally::of(plans.collect());
    say(&format!("{SCHEDULES} schedules of one to five faults"));
    tally.tell();
    judge(&tally.failed);
}

/// An effect that no workload has is an effect that is not tested.
#[test]
fn every_effect_occurs_in_some_workload() {
    let seen: BTreeSet<&str> = references()
        .iter()
        .flat_map(|r| r.effects.iter().map(|(_, p)| p.effect))
        .collect();
    for effect in EffectKind::ALL.iter().map(|e| e.code()) {
        assert!(seen.contains(effect), "{effect} occurs nowhere");
    }
}

/// Another instance leads within two seconds of the moment in which the leader is told to end, whatever that is at.
#[test]
fn who_is_told_to_end_is_followed_within_two_seconds() {
    for point in [
        "K04:{vm}#1",
        "V02:{vm}#1",
        "V04:{vm}#1",
        "K13:demo/w#3",
        "V06:{vm}#1",
    ] {
        let point = point.replace("{vm}", "demo/w-9e377-66296");
        let outcome = run(&plan(&format!("S13@1 {point}=g4")), None, LISTEN);
        assert_eq!(outcome.hit, 1, "{point}");
        let second = |line: &String| -> f64 {
            let first = line.split_whitespace().next().and_then(|t| t.parse().ok());
            first.unwrap_or_else(|| panic!("no time: {line}"))
        };
        let mut lines = outcome.trace.iter().skip_while(|l| !l.contains("<- g4"));
        let told = second(lines.next().expect("the fault"));
        // The one that stood by, or the one that comes in the first one's place.
        let takes = |l: &&String| l.contains("K16:") && !l.contains("[1] ");
        let first = lines.find(takes).expect("somebody takes the lease");
        let after = second(first) - told;
        assert!(after <= 2.0, "{point}: {after} s");
        assert!(
            !lines.any(|l| l.contains("[1] ")),
            "{point}: the first one goes on"
        );
    }
}

/// Found by `sim doubles`, each by what it says.
#[test]
fn what_two_faults_once_broke_is_kept() {
    for text in [
        // Each VM told of an outage by the name of whatever call had met it, another one with each try.
        "S2@1 V13:vcenter.example#3=g15 V04:demo/w-9e377-d624d#1=g10m",
        // What was left of a publish whose answer was lost went later, and its pool said so.
        "S2@1 V09:demo/w#1=m3s K06:demo/w-9e377-d624d#2=g10m",
        // The second outage came when all was at rest.
        "S6@1 K02:demo/w#1=g10m V13:vcenter.example#28=g10m",
    ] {
        let plan = plan(text);
        let of = |r: &&Outcome| r.plan.workload == plan.workload && r.plan.seed == plan.seed;
        let outcome = run(&plan, references().iter().find(of), LISTEN);
        assert_eq!(outcome.hit, 2, "{text}");
        let verdict = outcome.verdict();
        assert!(verdict.failures.is_empty(), "{}", matrix::report(&verdict));
    }
}

/// What was refused for a version that a lagging view still shows is not asked again; each of these made 20 calls more.
#[test]
fn what_a_lagging_view_decides_is_refused_once() {
    for text in [
        "S1@1 V06:demo/w-9e377-66296#1=g7",
        "S1@1 K09:demo/w-9e377-66296#1=g6",
    ] {
        let plan = plan(text);
        let reference = references().iter().find(|r| r.plan.workload == "S1");
        let outcome = run(&plan, reference, LISTEN);
        assert_eq!(outcome.hit, 1, "{text}");
        let verdict = outcome.verdict();
        assert!(verdict.failures.is_empty(), "{}", matrix::report(&verdict));
    }
}

/// What a dead process left half-written is gone after an hour; so is what arrives when its pool, or its namespace with the
/// Secret, is gone.
#[test]
fn a_half_written_iso_does_not_stay() {
    for text in [
        "S1@1 V09:demo/w#1=m1",
        "S5@1 V08:demo/w#1=m7",
        "S14@1 V08:demo/w#1=m7",
    ] {
        let plan = plan(text);
        let outcome = run(&plan, None, SILENCE + Duration::from_secs(1800));
        assert_eq!(outcome.hit, 1, "{text}");
        let verdict = outcome.verdict();
        assert!(verdict.failures.is_empty(), "{}", matrix::report(&verdict));
    }
}

/// Where the Agents went before the VsphereAgents that hold them, VMs of living Machines once went with them.
#[test]
fn a_namespace_goes_in_any_order() {
    let orders: Vec<Plan> = (2..10).map(|seed| plan(&format!("S14@{seed}"))).collect();
    let failed: Vec<Verdict> = orders
        .iter()
        .map(|plan| run(plan, None, LISTEN).verdict())
        .filter(|verdict| !verdict.failures.is_empty())
        .collect();
    judge(&failed);
}
