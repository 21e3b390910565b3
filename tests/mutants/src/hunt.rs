//! Plays a case: its plan without the mutant, then with it.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use agent_forge_actors::mutants;
use agent_forge_sim::{
    call::Call,
    plan::Plan,
    run::{Outcome, run_workload},
};

use crate::{Mutant, cases::Case, workloads};

/// Silence after each run. It is longer than the interval in which the operator checks an ISO.
const LISTEN: Duration = Duration::from_secs(900);
/// The seed of all names and jitter in these runs.
const SEED: u64 = 1;

/// The result of a case.
pub struct Hunt {
    /// The case.
    pub case: Case,
    /// Its plan, with the object names of this seed.
    pub plan: Plan,
    /// The run of the operator as it is.
    pub without: Outcome,
    /// The run with the mutant.
    pub with: Outcome,
}

impl Hunt {
    /// What is wrong with the result. Empty when only the mutant fails, and the oracle of the table finds it.
    #[must_use]
    pub fn verdict(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        if !self.without.failures.is_empty() {
            wrong.push(format!(
                "fails without the mutant: {:#?}",
                self.without.failures
            ));
        }
        for (name, run) in [("without", &self.without), ("with", &self.with)] {
            if run.hit != self.plan.faults.len() {
                wrong.push(format!("the fault did not come about {name} the mutant"));
            }
        }
        if self.with.failures.is_empty() {
            wrong.push("the mutant is not found".to_owned());
        } else if !self
            .with
            .failures
            .iter()
            .any(|f| f.oracle == self.case.oracle)
        {
            wrong.push(format!(
                "oracle {} does not find the mutant. The run failed otherwise: {:#?}",
                self.case.oracle, self.with.failures
            ));
        }
        wrong
    }
}

/// The run of a workload without faults and mutants.
///
/// # Panics
/// There is no such workload.
#[must_use]
pub fn reference(workload: &str) -> Outcome {
    play(&Plan::without_faults(workload, SEED), None, None)
}

fn play(plan: &Plan, reference: Option<&Outcome>, mutant: Option<Mutant>) -> Outcome {
    let workload =
        workloads::named(&plan.workload).unwrap_or_else(|| panic!("no workload {}", plan.workload));
    mutants::set(mutant);
    let outcome = run_workload(workload, plan, reference, LISTEN);
    mutants::set(None);
    outcome
}

/// The plan of a case. Its fault hits the first occurrence of the effect, or of the guarding read, in the reference run.
///
/// # Panics
/// The call does not occur, or there is no such fault.
#[must_use]
pub fn plan(case: &Case, reference: &Outcome) -> Plan {
    let fault = case.fault.map(|text| {
        let (call, fault) = text.split_once('=').unwrap_or_else(|| panic!("{text}"));
        let call = Call::named(call).unwrap_or_else(|e| panic!("{e:#}"));
        // What comes before is about strangers.
        let points = reference.points().into_iter();
        let points = points.filter(|(at, _)| *at >= reference.begins);
        let mut points = points.map(|(_, p)| p).filter(|p| p.call == call);
        let point = points
            .next()
            .unwrap_or_else(|| panic!("{} does not occur in {}", call.name(), case.workload));
        let fault = fault.parse().unwrap_or_else(|e| panic!("{e:#}"));
        (point, fault)
    });
    Plan {
        faults: fault.into_iter().collect(),
        ..Plan::without_faults(case.workload, SEED)
    }
}

/// Plays a case.
#[must_use]
pub fn hunt(case: Case, reference: &Outcome) -> Hunt {
    let plan = plan(&case, reference);
    let without = if plan.faults.is_empty() {
        reference.clone()
    } else {
        play(&plan, Some(reference), None)
    };
    let with = play(&plan, Some(reference), Some(case.mutant));
    Hunt {
        case,
        plan,
        without,
        with,
    }
}

/// Plays cases on all cores. Returns the results in the order of the cases.
#[must_use]
pub fn hunt_all(cases: &[Case]) -> Vec<Hunt> {
    let mut names: Vec<&str> = cases.iter().map(|c| c.workload).collect();
    names.sort_unstable();
    names.dedup();
    let references = on_all_cores(&names, |name| reference(name));
    on_all_cores(cases, |case| {
        let at = names.iter().position(|n| *n == case.workload);
        hunt(*case, &references[at.unwrap_or_default()])
    })
}

fn on_all_cores<T: Sync, R: Send>(all: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let cores = thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(one) = all.get(at) else { break };
                    let result = work(one);
                    done.lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push((at, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}
