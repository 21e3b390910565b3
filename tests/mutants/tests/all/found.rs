//! What the page of a known fault names finds it. Without the fault, the same plan passes.

use std::collections::BTreeSet;

use agent_forge_model::verdict;
use agent_forge_mutants::{
    Mutant,
    cases::{self, Case, SAFETY},
    hunt::hunt_all,
    modelled,
};
use agent_forge_sim::promise::Oracle;

#[test]
fn each_planted_defect_is_found_and_without_it_the_same_plan_passes() {
    let mut missed = Vec::new();
    for hunt in hunt_all(&cases::plans()) {
        let wrong = hunt.verdict();
        println!(
            "{:?} by {} in {:?} and {:?}",
            hunt.case.mutant, hunt.plan, hunt.without.took, hunt.with.took
        );
        if !wrong.is_empty() {
            let replay = format!("cargo run -p agent-forge-mutants -- {:?}", hunt.case.mutant);
            missed.push(format!("{replay}\n  {}", wrong.join("\n  ")));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn the_model_checker_finds_its_planted_defects() {
    for case in cases::modelled() {
        let broken = modelled::hunt(&case);
        assert!(broken.contains(case.promise), "{case:?}: {broken:?}");
    }
}

/// An oracle that cannot fail proves nothing. No defect of a decision can break these three; unit tests of the simulation
/// break them.
const BROKEN_BY_UNIT_TESTS: [Oracle; 3] = [
    Oracle::OneLeaderActs,
    Oracle::ChangesPassTheGate,
    Oracle::PlanFitsTheRun,
];

#[test]
fn each_oracle_finds_a_planted_violation() {
    let plans = cases::plans();
    for oracle in Oracle::ALL {
        let finds = plans.iter().filter(|c| c.oracle == *oracle).count();
        let by_unit_tests = BROKEN_BY_UNIT_TESTS.contains(oracle);
        assert_eq!(finds == 0, by_unit_tests, "{oracle} is never seen to fail");
    }
    let found: BTreeSet<&str> = cases::modelled().iter().map(|c| c.promise).collect();
    // tests/model/tests/all/machines.rs breaks the fourth.
    assert_eq!(found.len(), verdict::PROMISES.len() - 1, "{found:?}");
}

/// A defect whose only sign is that something does not end costs a run and protects nothing. One for each other oracle
/// shows that the oracle can fail.
#[test]
fn a_planted_defect_breaks_safety_or_is_the_only_one_of_its_oracle() {
    let plans = cases::plans();
    for mutant in Mutant::ALL {
        let is_of = |c: &&Case| c.mutant == *mutant;
        let mut of_it = plans.iter().filter(is_of).map(|c| c.oracle);
        let modelled = cases::modelled();
        let mut in_model = modelled.iter().filter(|c| c.mutant == *mutant);
        let only = |oracle: Oracle| plans.iter().filter(|c| c.oracle == oracle).count() == 1;
        assert!(
            of_it.any(|o| SAFETY.contains(&o) || only(o))
                || in_model.any(|c| c.promise != verdict::ENDS),
            "{mutant:?} breaks no safety"
        );
    }
}
