//! Names of workloads, faults, reads and oracles: each exists once, and the README lists them all.

use std::{collections::BTreeSet, fs, path::Path};

use agent_forge_sim::{
    call::{Call, Read},
    matrix,
    plan::Fault,
    promise::Oracle,
    tolerances, workloads,
};

#[test]
fn each_name_exists_once() {
    let of = [
        workloads::ALL.iter().map(|w| w.name).collect::<Vec<_>>(),
        Fault::ALL.iter().map(|f| f.name()).collect(),
        Call::all().map(Call::name).collect(),
        Oracle::ALL.iter().map(|o| o.name()).collect(),
    ];
    for names in of {
        let seen: BTreeSet<&str> = names.iter().copied().collect();
        assert_eq!(seen.len(), names.len(), "{names:?}");
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(names.iter().all(|n| n.chars().all(plain)), "{names:?}");
    }
}

#[test]
fn what_nothing_is_called_is_refused() {
    let error = Call::named("creat").expect_err("unknown").to_string();
    assert!(error.contains("`sim list`"), "{error}");
    assert!("creat".parse::<Fault>().is_err() && "creat".parse::<Oracle>().is_err());
}

#[test]
fn the_readme_lists_every_name() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = fs::read_to_string(root.join("README.md")).expect("tests/sim/README.md");
    let row = |name: &str, text: &str| format!("| `{name}` | {text} |");
    let workloads = workloads::ALL.iter().map(|w| row(w.name, w.text));
    let faults = Fault::ALL.iter().map(|f| row(f.name(), f.text()));
    let reads = Read::ALL.iter().map(|r| row(r.name(), r.text()));
    let oracles = Oracle::ALL.iter().map(|o| row(o.name(), o.text()));
    let ruled_out = matrix::RULED_OUT
        .iter()
        .map(|(of, fault, why)| format!("| `{of}` | `{fault}` | {why} |"));
    let rows = workloads.chain(faults).chain(reads).chain(oracles);
    let rows = rows.chain(ruled_out);
    let missing: Vec<String> = rows.filter(|row| !readme.contains(row)).collect();
    assert!(
        missing.is_empty(),
        "not in the README:\n{}",
        missing.join("\n")
    );
}

#[test]
fn the_readme_has_the_table_of_tolerances() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = fs::read_to_string(root.join("README.md")).expect("tests/sim/README.md");
    let table = tolerances::table();
    assert!(readme.contains(&table), "not in the README:\n{table}");
}
