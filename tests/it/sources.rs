//! Tests that sources and documents agree: named files exist, and listed reasons are used.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use agent_forge_crds::conditions::Reason;

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
    all.retain(|path| path != Path::new("tests/it/sources.rs"));
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
    let product: Vec<String> = ["actors/src", "src"]
        .iter()
        .flat_map(|folder| files(folder, &["rs"]))
        .filter(|path| !path.ends_with("tests.rs"))
        .map(|path| read(&path))
        .collect();
    let mut listed: Vec<String> = Reason::ALL
        .iter()
        .map(|reason| format!("Reason::{reason:?}"))
        .collect();
    for module in ["action", "event"] {
        let list = read(Path::new(&format!("crds/src/conditions/{module}.rs")));
        let constants = list
            .lines()
            .filter_map(|line| line.strip_prefix("pub const "));
        let names = constants.filter_map(|constant| constant.split(':').next());
        listed.extend(names.map(|name| format!("{module}::{name}")));
    }
    let is_given = |name: &str, source: &String| {
        let mut uses = source.split(name).skip(1);
        uses.any(|rest| !rest.starts_with(|c: char| c == '_' || c.is_ascii_alphanumeric()))
    };
    // A fault of vCenter gives the reason with its own name.
    let faults = read(Path::new("actors/src/ports/vcenter/error.rs"));
    let is_fault = |name: &str| {
        let word = name.trim_start_matches("Reason::");
        faults.contains(&format!("=> \"{word}\","))
    };
    listed.retain(|name| !is_fault(name) && !product.iter().any(|s| is_given(name, s)));
    assert!(listed.is_empty(), "{listed:#?}");
}

/// A cell without Markdown, and with links from the root of the repository.
fn plain(cell: &str) -> String {
    let mut text = String::new();
    let mut rest = cell.trim();
    while let Some((before, link)) = rest.split_once('[') {
        let (name, after) = link.split_once("](").unwrap();
        let (to, after) = after.split_once(')').unwrap();
        let to = match to.strip_prefix("../") {
            Some(above) => format!("docs/{above}"),
            None => format!("docs/reference/{to}"),
        };
        text += &format!("{before}{name} ({to})");
        rest = after;
    }
    (text + rest).replace('`', "")
}

/// Whoever is called at night begins with what explains itself.
#[test]
fn each_runbook_begins_its_check_with_a_command_of_ours() {
    let runbooks = files("docs/runbooks", &["md"]);
    assert!(runbooks.len() > 15, "{runbooks:?}");
    for path in runbooks {
        let page = read(&path);
        let (_, check) = page.split_once("## Check\n").expect("a check");
        let block = check.trim_start().strip_prefix("```\n");
        let block = block.unwrap_or_else(|| panic!("{}: no commands first", path.display()));
        let mut lines = block.lines().filter(|line| !line.starts_with("NS="));
        let first = lines.next().unwrap_or_default();
        let ours = ["explain va/", "doctor", "orphans"];
        let begins = |word: &&str| first.starts_with(&format!("agent-forge {word}"));
        assert!(ours.iter().any(begins), "{}: {first}", path.display());
    }
}

/// `agent-forge explain` says what the page says, and the page explains each reason once. Runbooks refer to it for the
/// remedy. In its tables of reasons, a first cell with code is a message.
#[test]
fn the_page_and_the_table_of_reasons_agree() {
    let page = read(Path::new("docs/reference/reasons.md"));
    let (mut section, mut of_reasons, mut explained) = (String::new(), false, Vec::new());
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            let kept = title.to_lowercase().replace(' ', "-");
            let kept: String = kept
                .chars()
                .filter(|c| c.is_alphanumeric() || *c == '-')
                .collect();
            section = format!("docs/reference/reasons.md#{kept}");
        }
        let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
        let first = cells[0].trim();
        of_reasons = line.starts_with('|') && (of_reasons || first.starts_with("Reason"));
        if !of_reasons || first.starts_with("Reason") || first.contains(['-', '`']) {
            continue;
        }
        for word in first.split(", ") {
            let reason = Reason::from(word);
            let about = reason.about();
            assert_eq!(about.meaning, plain(cells[1]), "{reason}");
            let remedy = cells.get(2).map_or("None.".to_owned(), |cell| plain(cell));
            assert_eq!(about.remedy, remedy, "{reason}");
            assert_eq!(about.section.page(), section, "{reason}");
            explained.push(word);
        }
    }
    let mut all: Vec<&str> = Reason::ALL.iter().map(Reason::as_str).collect();
    explained.sort_unstable();
    all.sort_unstable();
    assert_eq!(explained, all, "each once, and no other");
}

/// The role in the documents is the one that `agent-forge privileges` prints.
#[test]
fn the_documents_tell_the_role_that_the_command_prints() {
    use agent_forge::commands::privileges::ROLE;
    let page = read(Path::new("docs/reference/vsphere.md"));
    for privilege in ROLE {
        let cell = format!("`{}`", privilege.id);
        let row = page.lines().find(|line| line.contains(&cell));
        let row = row.unwrap_or_else(|| panic!("{cell} is not on the page"));
        let on = row.split('|').nth(2).unwrap_or(row);
        let words = privilege.on.words();
        let listed = row.starts_with('|') && on.trim() == words;
        let told = !row.starts_with('|') && row.contains(words);
        assert!(listed || told, "{cell}: {row}");
    }
    let page = read(Path::new("docs/how-to/credentials-and-privileges.md"));
    let command = page.split("govc role.create agent-forge").nth(1).unwrap();
    let command = command.split("govc ").next().unwrap();
    let mut told: Vec<&str> = command
        .split_whitespace()
        .filter(|word| *word != "\\")
        .collect();
    let always = ROLE.iter().filter(|p| p.feature.is_none()).map(|p| p.id);
    let mut always: Vec<&str> = always.collect();
    told.sort_unstable();
    always.sort_unstable();
    assert_eq!(told, always);
    for privilege in ROLE.iter().filter(|p| p.feature.is_some()) {
        assert!(
            page.contains(&format!("`{}`", privilege.id)),
            "{}",
            privilege.id
        );
    }
}

/// The crates that have tests: name and folder.
const CRATES: [(&str, &str); 8] = [
    ("agent-forge", ""),
    ("agent-forge-crds", "crds"),
    ("agent-forge-actors", "actors"),
    ("agent-forge-fuzz", "tests/fuzz"),
    ("agent-forge-lab", "tests/lab"),
    ("agent-forge-model", "tests/model"),
    ("agent-forge-mutants", "tests/mutants"),
    ("agent-forge-sim", "tests/sim"),
];

/// What a test command in a document asks for.
#[derive(Debug, Default, PartialEq)]
struct TestCommand<'a> {
    krate: Option<&'a str>,
    target: Option<&'a str>,
    lib: bool,
    filters: Vec<&'a str>,
}

impl<'a> TestCommand<'a> {
    /// Reads what follows `cargo test`.
    fn read(words: &'a str) -> Self {
        let mut command = Self::default();
        let mut words = words.split_whitespace();
        while let Some(word) = words.next() {
            match word {
                "-p" | "--package" => command.krate = words.next(),
                "--test" => command.target = words.next(),
                "--features" | "--profile" => _ = words.next(),
                "--lib" => command.lib = true,
                flag if flag.starts_with('-') => {}
                filter => command.filters.push(filter),
            }
        }
        command
    }

    /// The root files of the targets that it builds.
    fn roots(&self) -> Vec<PathBuf> {
        let wanted = self.krate.or(self.target.map(|_| "agent-forge"));
        let folders = CRATES
            .iter()
            .filter(|(name, _)| wanted.is_none_or(|wanted| wanted == *name));
        let mut roots = Vec::new();
        for (_, folder) in folders {
            let folder = Path::new(folder);
            if self.target.is_none() {
                roots.extend(["src/lib.rs", "src/main.rs"].map(|file| folder.join(file)));
            }
            if self.lib {
                continue;
            }
            for entry in fs::read_dir(root().join(folder).join("tests"))
                .into_iter()
                .flatten()
            {
                let path = folder.join("tests").join(entry.unwrap().file_name());
                let name = path.file_stem().unwrap().to_str().unwrap();
                if self.target.is_none_or(|target| target == name) {
                    roots.extend([path.clone(), path.join("main.rs")]);
                }
            }
        }
        roots.retain(|path| is_kind(path, &["rs"]) && root().join(path).is_file());
        roots
    }

    /// Whether it selects a test.
    fn selects(&self) -> bool {
        let picks = |test: &String| {
            self.filters.is_empty() || self.filters.iter().any(|filter| test.contains(filter))
        };
        self.roots()
            .iter()
            .any(|root| tests_of(root).iter().any(picks))
    }
}

/// The tests of the target with this root file: module and function. Modules inside a file are left out.
fn tests_of(target: &Path) -> Vec<String> {
    let text = read(target);
    let declared = text.lines().filter_map(|line| {
        let line = line.strip_prefix("pub ").unwrap_or(line);
        line.strip_prefix("mod ")?.strip_suffix(';')
    });
    let folder = target.parent().unwrap();
    let mut sources = vec![(String::new(), target.to_owned())];
    for module in declared {
        let inside = folder.join(module);
        let below = if root().join(&inside).is_dir() {
            files(inside.to_str().unwrap(), &["rs"])
        } else {
            Vec::new()
        };
        let own = folder.join(module).with_extension("rs");
        let own = root().join(&own).is_file().then_some(own);
        sources.extend(own.into_iter().chain(below).map(|path| {
            let name = path.strip_prefix(folder).unwrap().with_extension("");
            let parts: Vec<_> = name.iter().filter_map(|part| part.to_str()).collect();
            (parts.join("::").replace("::mod", "") + "::", path)
        }));
    }
    let mut tests = Vec::new();
    for (module, path) in sources {
        let text = read(&path);
        let mut marked = false;
        for line in text.lines().map(str::trim) {
            marked |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
            let name = line.trim_start_matches("async ").strip_prefix("fn ");
            if let Some(name) = name.filter(|_| marked) {
                let name = name.split('(').next().unwrap_or_default();
                tests.push(format!("{module}{name}"));
                marked = false;
            }
        }
    }
    tests
}

/// A command that selects no test succeeds, and proves nothing.
#[test]
fn each_test_command_in_a_document_selects_a_test() {
    let mut all = files("docs", &["md"]);
    all.extend(files("tests", &["md"]));
    all.extend(["README.md", "CONTRIBUTING.md", "SECURITY.md"].map(PathBuf::from));
    let (mut seen, mut empty) = (0, Vec::new());
    for path in &all {
        for rest in read(path).split("cargo test").skip(1) {
            let end = rest.find(['`', '\n', '|', '#']).unwrap_or(rest.len());
            let words = &rest[..end];
            seen += 1;
            if !TestCommand::read(words).selects() {
                empty.push(format!("{}: cargo test{words}", path.display()));
            }
        }
    }
    assert!(seen > 30, "only {seen} commands");
    assert!(empty.is_empty(), "{empty:#?}");
}

#[test]
fn a_test_command_is_read_as_cargo_reads_it() {
    let command = TestCommand::read(" --test it storm -- --nocapture");
    let expected = TestCommand {
        target: Some("it"),
        filters: vec!["storm"],
        ..TestCommand::default()
    };
    assert_eq!(command, expected);
    assert!(command.selects());
    assert!(!TestCommand::read(" --test it no_such_test").selects());
    assert!(TestCommand::read(" -p agent-forge-actors --lib vm::").selects());
    assert!(!TestCommand::read(" -p agent-forge-crds --lib vm::").selects());
}
