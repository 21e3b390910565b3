//! Names and codes of workloads, faults, effects and oracles: each exists once, and the README lists them all.

use std::{collections::BTreeSet, fs, path::Path};

use agent_forge_sim::{
    call::{Call, Read},
    plan::Fault,
    promise::Oracle,
    tolerances, workloads,
};

/// Name and code of everything that people type into a command, by kind.
fn all() -> [Vec<(&'static str, &'static str)>; 4] {
    let calls = Call::all().map(|c| (c.name(), c.code()));
    [
        workloads::ALL.iter().map(|w| (w.name, w.code)).collect(),
        Fault::ALL.iter().map(|f| (f.name(), f.code())).collect(),
        calls.collect(),
        Oracle::ALL.iter().map(|o| (o.name(), o.code())).collect(),
    ]
}

#[test]
fn each_name_and_each_code_exists_once() {
    for of_one_kind in all() {
        let mut seen = BTreeSet::new();
        for text in of_one_kind.iter().flat_map(|(name, code)| [name, code]) {
            assert!(seen.insert(text), "{text} is there twice");
        }
        for (name, _) in of_one_kind {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(name.chars().all(plain), "{name} is not snake_case");
        }
    }
}

/// `ApiServerDown5m` as `api_server_down_5m`.
fn snake_case(variant: &str) -> String {
    let mut out = String::new();
    let mut before = ' ';
    for c in variant.chars() {
        let begins = c.is_ascii_uppercase() || c.is_ascii_digit() && !before.is_ascii_digit();
        if begins && !out.is_empty() {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
        before = c;
    }
    out
}

#[test]
fn code_and_output_use_the_same_name() {
    for fault in Fault::ALL {
        assert_eq!(fault.name(), snake_case(&format!("{fault:?}")));
    }
    for oracle in Oracle::ALL {
        assert_eq!(oracle.name(), snake_case(&format!("{oracle:?}")));
        let stored = serde_json::to_value(oracle).expect("a name");
        assert_eq!(stored, oracle.name());
    }
}

#[test]
fn a_name_and_its_code_mean_the_same() {
    for workload in workloads::ALL {
        let by_code = workloads::named(workload.code).map(|w| w.name);
        assert_eq!(by_code, Some(workload.name));
    }
    for fault in Fault::ALL {
        assert_eq!(fault.code().parse::<Fault>().ok(), Some(*fault));
        assert_eq!(fault.name().parse::<Fault>().ok(), Some(*fault));
    }
    for call in Call::all() {
        assert_eq!(Call::named(call.code()).ok(), Some(call));
        assert_eq!(Call::named(call.name()).ok(), Some(call));
    }
    for oracle in Oracle::ALL {
        assert_eq!(oracle.code().parse::<Oracle>().ok(), Some(*oracle));
        assert_eq!(oracle.name().parse::<Oracle>().ok(), Some(*oracle));
    }
    let error = Call::named("creat").expect_err("unknown").to_string();
    assert!(error.contains("`sim list`"), "{error}");
}

#[test]
fn the_readme_lists_every_name() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = fs::read_to_string(root.join("README.md")).expect("tests/sim/README.md");
    let row = |name: &str, code: &str, text: &str| format!("| `{name}` | {code} | {text} |");
    let workloads = workloads::ALL.iter().map(|w| row(w.name, w.code, w.text));
    let faults = Fault::ALL.iter();
    let faults = faults.map(|f| row(f.name(), f.code(), f.text()));
    let reads = Read::ALL.iter();
    let reads = reads.map(|r| row(r.name(), r.code(), r.text()));
    let oracles = Oracle::ALL.iter();
    let oracles = oracles.map(|o| row(o.name(), o.code(), o.text()));
    let rows = workloads.chain(faults).chain(reads).chain(oracles);
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
