//! The plan and the oracle that tests/mutants/README.md names find every known fault. Without the fault, the same plan
//! passes. No row of the lists is missing.

use std::{collections::BTreeSet, fs, path::Path};

use agent_forge_mutants::{
    Mutant,
    cases::{CASES, Case, WITHOUT, rows},
    docs,
    hunt::hunt_all,
    modelled,
};
use agent_forge_sim::promise::Oracle;

#[test]
fn each_mutant_is_found_and_only_the_mutant() {
    let cases: Vec<&'static Case> = CASES.iter().collect();
    let mut missed = Vec::new();
    for hunt in hunt_all(&cases) {
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
fn each_mutant_has_a_case_and_each_row_a_mutant_or_a_reason() {
    for mutant in Mutant::ALL {
        let of_it = CASES.iter().filter(|c| c.mutant == *mutant).count();
        assert!(of_it > 0, "{mutant:?} has no case");
    }
    let (stood_for, reasons): (Vec<&str>, Vec<&str>) = (
        CASES.iter().flat_map(|c| c.rows.iter().copied()).collect(),
        WITHOUT.iter().map(|(row, _)| *row).collect(),
    );
    let told: BTreeSet<&str> = stood_for.iter().chain(&reasons).copied().collect();
    let all = rows();
    let all: BTreeSet<&str> = all.iter().map(String::as_str).collect();
    assert_eq!(told, all);
    let both: Vec<&&str> = reasons.iter().filter(|r| stood_for.contains(r)).collect();
    assert!(both.is_empty(), "a mutant and a reason for none: {both:?}");
}

/// The worlds of the model checker break no promise without a mutant: tests/model/tests/all/machines.rs.
#[test]
fn the_model_checker_finds_its_mutants() {
    for (mutant, world, promise) in modelled::CASES {
        let broken = modelled::hunt(*mutant, modelled::named(world), &[promise]);
        assert!(
            broken.contains(promise),
            "{mutant:?} in {world}: {broken:?}"
        );
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
    for oracle in Oracle::ALL {
        let finds = CASES.iter().any(|c| c.oracle == *oracle);
        let by_unit_tests = BROKEN_BY_UNIT_TESTS.contains(oracle);
        assert!(finds != by_unit_tests, "{oracle} is never seen to fail");
    }
}

#[test]
fn the_docs_have_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let text = fs::read_to_string(path).expect("tests/mutants/README.md");
    let (_, rest) = text.split_once(docs::BEGIN).expect("its begin");
    let (shown, _) = rest.split_once(docs::END).expect("its end");
    assert_eq!(
        shown,
        docs::table(),
        "cargo run -p agent-forge-mutants -- table"
    );
}

#[test]
fn the_product_has_no_trace_of_them() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut folders = vec![root.join("actors/src"), root.join("src")];
    let mut read = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).expect("a source");
            read += 1;
            assert!(!text.contains("Mutant"), "{}", path.display());
        }
    }
    assert!(read > 100, "only {read} sources");
}

/// The copies compile the same sources with the same crates. This test finds a dependency that is missing in a copy or
/// has other features.
#[test]
fn the_copies_depend_on_what_their_originals_do() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let dependencies = |path: &str| -> BTreeSet<String> {
        let text = fs::read_to_string(root.join(path)).expect(path);
        let (_, rest) = text.split_once("\n[dependencies]\n").expect("dependencies");
        rest.lines()
            .take_while(|line| !line.starts_with('['))
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            // Members have the same names in originals and copies.
            .filter(|line| !line.contains("path =") && !line.starts_with("agent-forge"))
            .map(str::to_owned)
            .collect()
    };
    for (original, copy) in [
        ("actors/Cargo.toml", "actors"),
        ("Cargo.toml", "operator"),
        ("tests/model/Cargo.toml", "model"),
        ("tests/sim/Cargo.toml", "sim"),
    ] {
        let copied = dependencies(&format!("tests/mutants/copies/{copy}/Cargo.toml"));
        assert_eq!(dependencies(original), copied, "{original} and {copy}");
    }
}
