//! The copies are the product while no defect is on, and no defect is on unless a test of this package says so.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    thread,
};

use agent_forge_actors::mutants;
use agent_forge_mutants::{Mutant, defects::Defects, same::is_same};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All Rust sources below that folder.
fn sources(folder: &str) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![root().join(folder)]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(path);
            }
        }
    }
    assert!(found.len() > 10, "{folder}");
    found
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn all_defects() -> Defects {
    let mut defects = Defects::default();
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("defects");
    for page in fs::read_dir(pages).expect("the pages") {
        let page = page.expect("a page").path();
        let name = page.file_name().unwrap_or_default().to_string_lossy();
        let added = defects.add(&name, &text(&page));
        added.unwrap_or_else(|e| panic!("{e}"));
    }
    defects
}

/// Each change is planted alone, with its defect off, and compared as Rust. A form that this test cannot prove has to be
/// written otherwise (tests/mutants/src/same.rs).
#[test]
fn with_all_defects_off_the_copy_is_the_products_text() {
    let defects = all_defects();
    let mut wrong = Vec::new();
    for change in &defects.changes {
        let product = text(&root().join("actors/src").join(&change.file));
        let alone = Defects {
            all: defects.all.clone(),
            changes: vec![change.clone()],
        };
        let copy = alone.plant(&change.file, &product);
        let copy = copy.unwrap_or_else(|e| panic!("{e:?}"));
        let same = is_same(&product, &copy);
        if !same.unwrap_or_else(|e| panic!("{}: {e}", change.file)) {
            wrong.push(format!("{} in {}", change.defect, change.file));
        }
    }
    assert!(wrong.is_empty(), "with the defect off: {wrong:#?}");
    assert!(defects.changes.len() > 50, "{}", defects.changes.len());
}

#[test]
fn every_defect_is_off_until_a_test_of_this_package_switches_it_on() {
    let on = || Mutant::ALL.iter().any(|m| mutants::on(*m)) || mutants::any(Mutant::ALL);
    let fresh = thread::spawn(move || {
        let before = on();
        mutants::set(Some(Mutant::ALL[0]));
        let (here, elsewhere) = (on(), thread::spawn(on).join());
        (before, here, elsewhere.expect("an answer"))
    });
    assert_eq!(fresh.join().expect("an answer"), (false, true, false));
    for folder in ["actors/src", "src", "crds/src", "tests"] {
        for path in sources(folder) {
            let is_ours = path.starts_with(root().join("tests/mutants"));
            let names = text(&path).contains("mutants::") || text(&path).contains("Mutant");
            assert!(is_ours || !names, "{}", path.display());
        }
    }
}

/// The copies compile the same sources with the same crates. This test finds a dependency that is missing in a copy or
/// has other features.
#[test]
fn the_copies_depend_on_what_their_originals_do() {
    let dependencies = |path: &str| -> BTreeSet<String> {
        let text = text(&root().join(path));
        let (_, rest) = text.split_once("\n[dependencies]\n").expect("dependencies");
        rest.lines()
            .take_while(|line| !line.starts_with('['))
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            // Members have the same names in originals and copies.
            .filter(|line| !line.contains("path =") && !line.starts_with("agent-forge"))
            .map(str::to_owned)
            .collect()
    };
    for (original, copy) in [("actors/Cargo.toml", "actors"), ("Cargo.toml", "operator")] {
        let copied = dependencies(&format!("tests/mutants/copies/{copy}/Cargo.toml"));
        assert_eq!(dependencies(original), copied, "{original} and {copy}");
    }
}
