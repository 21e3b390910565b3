//! Tests that sources and documents agree: named files exist, and listed reasons are used.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use agent_forge_actors::ports::vcenter;

/// Folders of the repository with texts for people, and (`KINDS`) the kinds of files.
const FOLDERS: [&str; 6] = ["actors", "config", "crds", "docs", "src", "tests"];
const KINDS: [&str; 5] = ["rs", "go", "md", "yaml", "toml"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn is_kind(path: &Path, kinds: &[&str]) -> bool {
    let extension = path.extension().and_then(|e| e.to_str());
    extension.is_some_and(|e| kinds.contains(&e))
}

/// All files below `at` of these kinds, by their path in the repository.
fn files(at: &str, kinds: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from(at)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let path = folder.join(entry.file_name());
            let kind = entry.file_type().unwrap();
            if kind.is_dir() && entry.file_name() != "target" {
                folders.push(path);
            } else if kind.is_file() && is_kind(&path, kinds) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Words that look like a path of a file, from the root of the repository or of a crate.
fn named(text: &str) -> impl Iterator<Item = &str> {
    let between = |c: char| !(c.is_ascii_alphanumeric() || "_-./".contains(c));
    text.split(between)
        .map(|word| word.trim_end_matches('.'))
        .filter(|word| {
            let first = word.split('/').next().unwrap_or_default();
            word.contains('/') && FOLDERS.contains(&first) && is_kind(Path::new(word), &KINDS)
        })
}

/// Whether a file named in `from` exists, relative to the repository or to a folder above `from`.
fn is_there(from: &Path, name: &str) -> bool {
    let mut seen_from = from.ancestors().skip(1);
    seen_from.any(|folder| root().join(folder).join(name).is_file())
}

#[test]
fn files_that_are_named_exist() {
    let mut all = vec![PathBuf::from("README.md"), PathBuf::from("CHANGELOG.md")];
    for folder in FOLDERS {
        all.extend(files(folder, &KINDS));
    }
    // The examples in this file are not real paths.
    all.retain(|path| path != Path::new("tests/sources.rs"));
    let (mut seen, mut missing) = (0, Vec::new());
    for path in &all {
        for name in named(&read(path)) {
            seen += 1;
            // A tool runs in another folder there.
            let elsewhere = name == "tests/alerts.yaml";
            if !elsewhere && !is_there(path, name) {
                missing.push(format!("{}: {name}", path.display()));
            }
        }
    }
    assert!(seen > 100, "only {seen} names in {} files", all.len());
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn a_name_is_told_from_other_words() {
    let text = "See `src/run.rs`, tests/it/main.rs. Not a/b.rs, src/vsphere, https://x/docs or agent_forge::src.";
    let found: Vec<_> = named(text).collect();
    assert_eq!(found, ["src/run.rs", "tests/it/main.rs"]);
    let here = Path::new("crds/src/pool.rs");
    assert!(is_there(here, "tests/wire/predecessor.rs"));
    assert!(!is_there(here, "tests/predecessor.rs"));
}

/// Folders with modules that documents name as a path.
const MODULES: [&str; 3] = ["actors/src", "src", "tests/it"];

/// Whether `path` (`a::b::c`) leads from `folder` through modules, and perhaps to a function in the last one.
fn is_module(folder: &str, path: &str) -> bool {
    let (mut at, mut text) = (PathBuf::from(folder), String::new());
    path.split("::").all(|part| {
        let below = at.join(part);
        let files = [below.with_extension("rs"), below.join("mod.rs")];
        if let Some(file) = files.iter().find(|f| root().join(f).is_file()) {
            text = read(file);
            at = below;
            return true;
        }
        let inside = [format!("mod {part} {{"), format!("fn {part}(")];
        inside.iter().any(|item| text.contains(item))
    })
}

#[test]
fn modules_that_are_named_exist() {
    let mut all = files("docs", &["md"]);
    all.push(PathBuf::from("CONTRIBUTING.md"));
    let between = |c: char| !(c.is_ascii_alphanumeric() || "_:".contains(c));
    let snake = |name: &&str| name.contains("::") && !name.contains(char::is_uppercase);
    let (mut seen, mut missing) = (0, Vec::new());
    for path in &all {
        let text = read(path);
        let words = text.split(between).map(|word| word.trim_matches(':'));
        for name in words.filter(snake) {
            seen += 1;
            if !MODULES.iter().any(|folder| is_module(folder, name)) {
                missing.push(format!("{}: {name}", path.display()));
            }
        }
    }
    assert!(seen > 15, "only {seen} names");
    assert!(missing.is_empty(), "{missing:#?}");
}

/// A reason that is never used would make people look for something that cannot happen.
#[test]
fn reasons_that_are_listed_are_given() {
    let list = read(Path::new("crds/src/conditions/reasons.rs"));
    let product: Vec<String> = ["actors/src", "src"]
        .iter()
        .flat_map(|folder| files(folder, &["rs"]))
        .filter(|path| !path.ends_with("tests.rs"))
        .map(|path| read(&path))
        .collect();
    let (mut module, mut listed, mut unused) = ("", 0, Vec::new());
    for line in list.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("pub mod ") {
            module = name.trim_end_matches([' ', '{']);
        }
        let constant = line.strip_prefix("pub const ");
        if let Some(name) = constant.and_then(|c| c.split(':').next()) {
            listed += 1;
            let given = format!("{module}::{name}");
            let is_given = |source: &String| {
                let mut uses = source.split(&given).skip(1);
                uses.any(|rest| !rest.starts_with(|c: char| c == '_' || c.is_ascii_alphanumeric()))
            };
            if !product.iter().any(is_given) {
                unused.push(given);
            }
        }
    }
    assert!(listed > 50, "only {listed} constants");
    assert!(unused.is_empty(), "{unused:#?}");
}

/// The code right before a reason, without white space.
const BEFORE_A_REASON: [&str; 3] = ["hold(", "ask(", "reason:"];
const TROUBLES: [&str; 2] = [
    "ReconcileError::blocked(ErrorSource::",
    "ReconcileError::transient(ErrorSource::",
];
/// Reasons of good states.
const GOOD_NEWS: [&str; 7] = [
    "Reconciled",
    "Observed",
    "Available",
    "Satisfied",
    "Ready",
    "ISOReady",
    "VMCreated",
];

/// The text literal at the start of `code`, if it may be a reason.
fn literal(code: &str) -> Option<&str> {
    let (text, _) = code.strip_prefix('"')?.split_once('"')?;
    let camel = text.starts_with(|c: char| c.is_ascii_uppercase());
    (camel && text.chars().all(|c| c.is_ascii_alphanumeric())).then_some(text)
}

/// The reasons that are text literals in a source, without its tests.
fn reasons_in(source: &str) -> BTreeSet<String> {
    let product = source.split("#[cfg(test)]\nmod tests").next();
    let code: String = product.unwrap_or_default().split_whitespace().collect();
    let held = BEFORE_A_REASON.iter().flat_map(|b| code.split(b).skip(1));
    let troubles = TROUBLES.iter().flat_map(|b| code.split(b).skip(1));
    let of_side = troubles.filter_map(|rest| Some(rest.split_once(',')?.1));
    held.chain(of_side)
        .filter_map(literal)
        .map(str::to_owned)
        .collect()
}

/// Every reason why something does not happen.
fn reasons_to_wait() -> BTreeSet<String> {
    let aside = |path: &Path| {
        let name = path.to_string_lossy();
        path.ends_with("tests.rs")
            || path.ends_with("edges.rs")
            || name.contains("/tests/")
            || name.contains("/testing")
    };
    let sources = ["actors/src", "src"]
        .iter()
        .flat_map(|folder| files(folder, &["rs"]))
        .filter(|path| !aside(path));
    let mut all: BTreeSet<String> = sources.flat_map(|path| reasons_in(&read(&path))).collect();
    let list = read(Path::new("crds/src/conditions/reasons.rs"));
    let listed = list.split("pub mod vm_reason").next().unwrap_or_default();
    let named = listed
        .lines()
        .filter(|line| line.trim().starts_with("pub const "));
    let values = named.filter_map(|line| line.split('"').nth(1));
    all.extend(values.map(str::to_owned));
    let of_vcenter = vcenter::error::REASONS.iter().chain(&vcenter::error::AWAY);
    all.extend(of_vcenter.map(|reason| (*reason).to_owned()));
    all
}

/// Runbooks refer to docs/reference/reasons.md for the remedy of a reason.
#[test]
fn each_reason_to_wait_has_its_remedy() {
    let told = ["docs/reference/reasons.md", "docs/explanation/iso-cache.md"]
        .map(|path| read(Path::new(path)));
    let words: BTreeSet<&str> = told
        .iter()
        .flat_map(|text| text.split(|c: char| !c.is_ascii_alphanumeric()))
        .collect();
    let all = reasons_to_wait();
    assert!(all.len() > 70, "only {} reasons: {all:?}", all.len());
    let missing: Vec<&String> = all
        .iter()
        .filter(|reason| !GOOD_NEWS.contains(&reason.as_str()))
        .filter(|reason| !words.contains(reason.as_str()))
        .collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn a_reason_is_told_from_other_texts() {
    let source = r#"
        hold("NoTime", "a sentence", None);
        ReconcileError::blocked(
            ErrorSource::Vsphere,
            "NoRoom",
            format!("{why}"),
        );
        ReconcileError { side, reason: "NoWay".to_owned(), message: "Never".to_owned() }
        say("Nothing");
    "#;
    let tests = "#[cfg(test)]\nmod tests { fn f() { hold(\"NoMore\") } }";
    let found = reasons_in(&format!("{source}{tests}"));
    let found: Vec<&str> = found.iter().map(String::as_str).collect();
    assert_eq!(found, ["NoRoom", "NoTime", "NoWay"]);
}
