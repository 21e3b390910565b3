//! Plays the operator with one fault at a time, and with several.
//!
//! Of the plans with a single fault a sample runs ([`agent_forge_sim::sample`]). `cargo lab soak` runs all of them, and
//! more random schedules. `AGENT_FORGE_SIM_SEED` repeats the sample of another run.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
    path::Path,
    sync::OnceLock,
    time::Duration,
};

use agent_forge_actors::ports::effect::EffectKind;
use agent_forge_sim::{
    branches::{self, Planned, planned},
    call::{Call, Read},
    known,
    matrix::{self, Matrix},
    plan::{Fault, Plan},
    run::{LISTEN, Outcome, SILENCE, Verdict, run},
    sample, workloads,
};

/// Random schedules of one to five faults.
const SCHEDULES: usize = 150;

fn worker() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_sim"))
}

fn plan(text: &str) -> Plan {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// The runs without faults. All tests share them.
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

/// Prints to the real output. The test harness hides what passing tests print, but the list of plans is part of the
/// result.
fn say(text: &str) {
    // The output may be closed.
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

/// Every plan with a single fault, by workload.
fn every(references: &[Outcome]) -> Vec<Vec<Plan>> {
    let of = |r| matrix::plans(r, Fault::ALL);
    references.iter().map(of).collect()
}

/// Fails with a summary of each failed plan and the trace of the first one.
fn judge(failed: &[Verdict]) {
    let told: Vec<String> = failed.iter().map(matrix::summary).collect();
    let first = failed.first().map(matrix::report).unwrap_or_default();
    assert!(
        failed.is_empty(),
        "{} plans failed:\n{}\n{first}",
        failed.len(),
        told.join("\n")
    );
}

/// The results of plans of all workloads.
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
        let all: Vec<Planned> = plans.into_iter().flatten().map(planned).collect();
        let at_once = |v: &Verdict| {
            if !v.failures.is_empty() && known::excuse(v).is_none() {
                say(&format!("FAILED: {}", matrix::summary(v)));
            }
        };
        for verdict in branches::run_all(worker(), &all, at_once).expect("workers") {
            tally.table.count(&verdict.plan);
            match known::excuse(&verdict) {
                _ if verdict.failures.is_empty() => {}
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
    let once = plan(
        "scale_up_and_down@1 upload:demo/w#1=crash_before_request iso_status:demo/w#2=crash_after_effect login:vcenter.example#2=reply_lost",
    );
    let all_watches = plan(
        "two_pools@1 pool_status:demo/w#2=api_server_down_5m pool_status:demo/x#1=watches_expire create:demo/x-9e377-66296#1=process_killed_watches_lag",
    );
    let reads = plan(
        "one_machine@1 list_agents:demo#2=request_lost read_vm:demo/w-9e377-66296#2=answer_slow_15s destroy:demo/w-9e377-66296#1=vm_switched",
    );
    for plan in [&once, &all_watches, &reads] {
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

/// The suite forks a run where plans differ. Such a run has to equal a run of its own.
#[test]
fn a_run_that_parts_from_another_is_the_run_that_is_played_alone() {
    let (vm, agent) = ("demo/w-9e377-66296", "create:demo/w-9e377-66296#1");
    let plans = [
        format!("one_machine@1 {agent}=crash_before_request"),
        format!("one_machine@1 {agent}=reply_lost"),
        // Differs from the plan before at its second fault.
        format!("one_machine@1 {agent}=reply_lost destroy:{vm}#1=crash_after_effect"),
        format!("one_machine@1 {agent}=reply_lost destroy:{vm}#1=refused"),
        // Never reaches its second fault.
        format!("one_machine@1 {agent}=reply_lost destroy:{vm}#99=refused"),
        "one_machine@1 login:vcenter.example#1=request_lost".to_owned(),
        format!("one_machine@1 destroy:{vm}#1=api_server_down_5m"),
        format!("one_machine@1 read_vm:{vm}#3=server_error"),
        format!("one_machine@1 read_vm:{vm}#3=answer_stale_10s destroy:{vm}#1=vm_switched"),
        format!(
            "one_machine@1 fence_agent:demo/w-9e377-66296#1=object_touched read_vm:{vm}#3=request_lost"
        ),
    ];
    let plans: Vec<Planned> = plans.iter().map(|p| (plan(p), LISTEN)).collect();
    let verdicts = branches::run_all(worker(), &plans, |_| {}).expect("workers");
    assert_eq!(verdicts.len(), plans.len());
    let reference = references()
        .iter()
        .find(|r| r.plan.workload == "one_machine");
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

/// A missing verdict counts as a failure.
#[test]
fn a_worker_that_ends_without_a_verdict_has_failed() {
    let plans = [(
        plan("one_machine@1 create:demo/w#1=crash_before_request"),
        LISTEN,
    )];
    let verdicts = branches::run_all(Path::new("true"), &plans, |_| {}).expect("workers");
    assert!(verdicts[0].failures[0].what.contains("without a verdict"));
}

fn difference(a: &Outcome, b: &Outcome) -> String {
    let pairs = a.trace.iter().zip(&b.trace);
    let at = pairs.take_while(|(x, y)| x == y).count();
    format!("line {at}: {:?} or {:?}", a.trace.get(at), b.trace.get(at))
}

#[test]
fn every_promise_holds_with_one_fault_anywhere() {
    let seed = sample::seed();
    say(&format!("plans are chosen by {}={seed}", sample::VARIABLE));
    let all: Vec<Plan> = every(references()).into_iter().flatten().collect();
    let chosen = sample::choose(&all, &seed);
    let (there_are, ran) = (all.len(), chosen.len());
    let plans = references().iter().map(|reference| {
        let of_it = |p: &&Plan| p.workload == reference.plan.workload;
        chosen.iter().filter(of_it).cloned().collect()
    });
    let plans: Vec<Vec<Plan>> = plans.collect();
    let tally = Tally::of(plans);
    for (reference, plans) in references().iter().zip(&tally.by_workload) {
        say(&format!("{}: {plans} plans", reference.plan.workload));
    }
    say(&format!("{ran} of {there_are} plans with a single fault"));
    tally.tell();
    judge(&tally.failed);
    let missing = tally.table.missing();
    assert!(
        missing.is_empty(),
        "cells without plan or reason: {missing:?}"
    );
}

/// A listed plan that keeps its promises would hide the next failure there.
#[test]
fn each_known_failure_still_occurs() {
    let listed = known::ALL.iter().flat_map(|k| k.plans);
    let all: Vec<Planned> = listed.map(|text| planned(plan(text))).collect();
    for verdict in branches::run_all(worker(), &all, |_| {}).expect("workers") {
        let text = verdict.plan.to_string();
        let entry = known::ALL.iter().find(|k| k.plans.contains(&text.as_str()));
        let told = matrix::summary(&verdict);
        assert_eq!(known::excuse(&verdict), entry.map(|k| k.reason), "{told}");
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

/// A read that guards an effect in no workload is not tested.
#[test]
fn every_read_guards_an_effect_in_some_workload() {
    let points = references().iter().flat_map(Outcome::points);
    let seen: BTreeSet<Call> = points.map(|(_, p)| p.call).collect();
    for read in Read::ALL {
        let guards = seen.contains(&Call::Read(*read));
        assert!(guards, "{} guards nothing", read.name());
    }
}

/// An effect that occurs in no workload is not tested.
#[test]
fn every_effect_occurs_in_some_workload() {
    for effect in EffectKind::ALL {
        let mut all = references().iter().flat_map(|r| &r.effects);
        let occurs = all.any(|(_, point)| point.is(*effect));
        assert!(occurs, "{} occurs nowhere", effect.name());
    }
}

/// When the leader is asked to end, at any effect, another instance leads within two seconds.
#[test]
fn who_is_told_to_end_is_followed_within_two_seconds() {
    for point in [
        "record_identity:{vm}#1",
        "create:{vm}#1",
        "power_on:{vm}#1",
        "pool_status:demo/w#3",
        "destroy:{vm}#1",
    ] {
        let point = point.replace("{vm}", "demo/w-9e377-66296");
        let plan = plan(&format!(
            "two_instances_one_lease@1 {point}=process_terminated"
        ));
        let outcome = run(&plan, None, LISTEN);
        assert_eq!(outcome.hit, 1, "{point}");
        let second = |line: &String| -> f64 {
            let first = line.split_whitespace().next().and_then(|t| t.parse().ok());
            first.unwrap_or_else(|| panic!("no time: {line}"))
        };
        let mut lines = outcome
            .trace
            .iter()
            .skip_while(|l| !l.contains("<- process_terminated"));
        let told = second(lines.next().expect("the fault"));
        // Either the standby takes the lease, or the next process of the first instance.
        let takes = |l: &&String| l.contains(" lease:") && !l.contains("[1] ");
        let first = lines.find(takes).expect("somebody takes the lease");
        let after = second(first) - told;
        assert!(after <= 2.0, "{point}: {after} s");
        assert!(
            !lines.any(|l| l.contains("[1] ")),
            "{point}: the first one goes on"
        );
    }
}

/// Former defects, each by a plan that showed it.
#[test]
fn what_plans_once_broke_is_kept() {
    let long = SILENCE + Duration::from_secs(1800);
    for (text, silence) in [
        // `sim doubles` found the next three. Each VM reported an outage with the name of the call that had failed, so each
        // retry wrote another status.
        (
            "two_pools@1 session_view:vcenter.example#3=answers_slow_1m power_on:demo/w-9e377-d624d#1=vcenter_down_5m",
            LISTEN,
        ),
        // The operator removed the file of a publish whose answer was lost only later, and its pool wrote the status
        // again.
        (
            "two_pools@1 publish:demo/w#1=server_error record_observation:demo/w-9e377-d624d#2=vcenter_down_5m",
            LISTEN,
        ),
        // The second outage came when everything was at rest.
        (
            "guest_never_registers@1 pin_selector:demo/w-9e377-66296#1=vcenter_down_5m session_view:vcenter.example#28=vcenter_down_5m",
            LISTEN,
        ),
        // A write that was refused for an old version was repeated while a lagging watch still showed that version: 20
        // calls more.
        (
            "one_machine@1 destroy:demo/w-9e377-66296#1=process_killed_watches_lag",
            LISTEN,
        ),
        (
            "one_machine@1 delete_agent:demo/w-9e377-66296#1=watches_lag_20s",
            LISTEN,
        ),
        // After an hour the operator has removed the half-written files of a dead process. The same holds for a late upload
        // that arrives after its pool, or its namespace with the Secret, is gone.
        ("one_machine@1 publish:demo/w#1=crash_before_request", long),
        (
            "node_pool_and_pool_deletion@1 upload:demo/w#1=effect_late",
            long,
        ),
        ("namespace_deletion@1 upload:demo/w#1=effect_late", long),
    ] {
        let plan = plan(text);
        let of = |r: &&Outcome| r.plan.workload == plan.workload;
        let outcome = run(&plan, references().iter().find(of), silence);
        assert_eq!(outcome.hit, plan.faults.len(), "{text}");
        let verdict = outcome.verdict();
        assert!(verdict.failures.is_empty(), "{}", matrix::report(&verdict));
    }
}

/// A former defect: when Agents were deleted before their VsphereAgents, the VMs of living Machines were destroyed too.
#[test]
fn a_namespace_goes_in_any_order() {
    let orders = (2..10).map(|seed| Plan::without_faults("namespace_deletion", seed));
    let mut verdicts: Vec<Verdict> = orders.map(|p| run(&p, None, LISTEN).verdict()).collect();
    verdicts.retain(|verdict| !verdict.failures.is_empty());
    judge(&verdicts);
}
