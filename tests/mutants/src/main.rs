//! `cargo run -p agent-forge-mutants`: plays the cases by hand.

#![allow(clippy::print_stdout, reason = "a command for people")]

use std::process::ExitCode;

use agent_forge_mutants::{
    cases::{self, Case},
    hunt::hunt_all,
    modelled,
};
use agent_forge_sim::matrix::report;

/// Without arguments: plays all cases. Names of mutants: plays their cases and prints the traces of both runs.
fn main() -> ExitCode {
    let named: Vec<String> = std::env::args().skip(1).collect();
    let is_asked = |mutant| named.is_empty() || named.contains(&format!("{mutant:?}"));
    let mut plans = cases::plans();
    plans.retain(|c: &Case| is_asked(c.mutant));
    let mut worlds = cases::modelled();
    worlds.retain(|c| is_asked(c.mutant));
    let mut good = !plans.is_empty() || !worlds.is_empty();
    for hunt in hunt_all(&plans) {
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
    for case in &worlds {
        let broken = modelled::hunt(case);
        good &= broken.contains(case.promise);
        println!("{:?} in {:?}: {broken:?}", case.mutant, case.world);
    }
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
