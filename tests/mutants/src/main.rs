//! `cargo run -p agent-forge-mutants`: plays the cases by hand.

#![allow(clippy::print_stdout, reason = "a command for people")]

use std::process::ExitCode;

use agent_forge_mutants::{
    Mutant,
    cases::{CASES, Case},
    docs,
    hunt::{found_with_faults, hunt_all},
    modelled,
};
use agent_forge_sim::matrix::report;

/// Plays plans with one fault beside strangers with each mutant, and prints which promises break.
fn print_found() {
    let all = found_with_faults(Mutant::ALL);
    for (mutant, found) in &all {
        match found {
            Some((plan, failure)) => println!("{mutant:?}: {} in {plan}", failure.oracle),
            None => println!("{mutant:?}: not found"),
        }
    }
    let found = all.iter().filter(|(_, found)| found.is_some()).count();
    println!("{found} of {} are found", all.len());
}

/// Explores each small world with each mutant, and prints which promises break.
fn model() {
    for mutant in Mutant::ALL {
        for world in modelled::WORLDS {
            let broken = modelled::hunt(*mutant, world, &[]);
            if !broken.is_empty() {
                println!("{mutant:?} in {:?}: {broken:?}", world.name);
            }
        }
    }
}

/// Without arguments: plays all cases. `table`: prints the table of tests/mutants/README.md. `model`: what the model
/// checker finds. `faults`: what plans with one fault find beside strangers. Names of mutants: plays their cases and
/// prints the traces of both runs.
fn main() -> ExitCode {
    let named: Vec<String> = std::env::args().skip(1).collect();
    if named == ["table"] {
        print!("{}", docs::table());
        return ExitCode::SUCCESS;
    }
    if named == ["faults"] {
        print_found();
        return ExitCode::SUCCESS;
    }
    if named == ["model"] {
        model();
        return ExitCode::SUCCESS;
    }
    let cases: Vec<&'static Case> = CASES
        .iter()
        .filter(|c| named.is_empty() || named.contains(&format!("{:?}", c.mutant)))
        .collect();
    let mut good = !cases.is_empty();
    for hunt in hunt_all(&cases) {
        let wrong = hunt.verdict();
        good &= wrong.is_empty();
        let took = (hunt.without.took, hunt.with.took);
        println!(
            "{:?} ({}), played by {} in {took:?}",
            hunt.case.mutant,
            hunt.case.mutant.text(),
            hunt.plan
        );
        for failure in &hunt.with.failures {
            let short: String = failure.to_string().chars().take(240).collect();
            println!("    found: {}", short.replace('\n', " "));
        }
        for what in &wrong {
            println!("    WRONG: {what}");
        }
        if !named.is_empty() {
            println!(
                "{}\n{}",
                report(&hunt.without.verdict()),
                report(&hunt.with.verdict())
            );
        }
    }
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
