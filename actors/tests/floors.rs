//! The floors of this crate: a room imports only from rooms on the floors below it.
//!
//! Why: a reader can learn the rooms from the bottom up, and a new capability cannot tie two rooms into a circle.
//! Tests and test helpers are left out: they may look at everything.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use syn::{
    Attribute, ItemUse, UseTree,
    visit::{self, Visit},
};

/// From the ground up. Rooms on one floor do not import each other.
const FLOORS: &[&[&str]] = &[
    &["domain"],
    &["ports"],
    &["migration"],
    &["runtime"],
    &["sessions", "placement"],
    &["iso"],
    &["context"],
    &["world"],
    &["demand", "nodes"],
    &["lifecycle"],
    &["guard", "report"],
    &["pool", "vm", "orphans", "news", "byoh"],
    &["supervisor"],
];

/// Directories and files that hold only test code.
const TEST_CODE: &[&str] = &["tests", "tests.rs", "testing", "testing.rs"];

fn floor(room: &str) -> Option<usize> {
    FLOORS.iter().position(|rooms| rooms.contains(&room))
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a directory of sources") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|n| n.to_str()).expect("a name");
        if TEST_CODE.contains(&name) {
            continue;
        }
        if path.is_dir() {
            sources(&path, found);
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
}

/// The rooms that one file names: the segment after `crate`.
#[derive(Default)]
struct Rooms(BTreeSet<String>);

impl Rooms {
    fn after_crate(&mut self, tree: &UseTree) {
        match tree {
            UseTree::Path(path) => {
                self.0.insert(path.ident.to_string());
            }
            UseTree::Name(name) => {
                self.0.insert(name.ident.to_string());
            }
            UseTree::Rename(rename) => {
                self.0.insert(rename.ident.to_string());
            }
            UseTree::Group(group) => group.items.iter().for_each(|t| self.after_crate(t)),
            UseTree::Glob(_) => {
                self.0.insert("*".to_owned());
            }
        }
    }
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|a| {
        a.path().is_ident("cfg")
            && a.meta
                .require_list()
                .is_ok_and(|l| l.tokens.to_string().contains("test"))
    })
}

/// A source without its tests.
fn product(file: &Path) -> syn::File {
    let text = fs::read_to_string(file).expect("a source");
    let mut parsed = syn::parse_file(&text).expect("Rust");
    parsed.items.retain(|item| match item {
        syn::Item::Mod(module) => !is_test(&module.attrs),
        syn::Item::Use(import) => !is_test(&import.attrs),
        _ => true,
    });
    parsed
}

impl<'ast> Visit<'ast> for Rooms {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if let UseTree::Path(path) = &item.tree
            && path.ident == "crate"
        {
            self.after_crate(&path.tree);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let mut segments = path.segments.iter();
        if segments.next().is_some_and(|s| s.ident == "crate")
            && let Some(room) = segments.next()
        {
            self.0.insert(room.ident.to_string());
        }
        visit::visit_path(self, path);
    }
}

#[test]
fn a_room_imports_only_from_floors_below_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    assert!(
        files.len() > 100,
        "the sources were not found: {}",
        files.len()
    );
    let mut wrong = Vec::new();
    for file in files {
        let inside = file.strip_prefix(&root).expect("inside");
        let first = inside
            .iter()
            .next()
            .and_then(|p| p.to_str())
            .expect("a room");
        let room = first.trim_end_matches(".rs");
        if room == "lib" {
            continue;
        }
        let Some(own) = floor(room) else {
            wrong.push(format!(
                "{}: the room {room:?} is on no floor; add it to FLOORS",
                inside.display()
            ));
            continue;
        };
        let mut rooms = Rooms::default();
        rooms.visit_file(&product(&file));
        rooms.0.remove(room);
        for other in rooms.0 {
            if floor(&other).is_none_or(|below| below >= own) {
                wrong.push(format!(
                    "{} imports {other:?}, which is not below {room:?}",
                    inside.display()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A module: the segments of its path after `crate`.
type Module = Vec<String>;

/// What one file names: paths from `crate`, `self` or `super` on.
#[derive(Default)]
struct Names(Vec<Vec<String>>);

impl Names {
    fn add(&mut self, tree: &UseTree, so_far: &[String]) {
        let with = |ident: &syn::Ident| [so_far, &[ident.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.add(&path.tree, &with(&path.ident)),
            UseTree::Name(name) => self.0.push(with(&name.ident)),
            UseTree::Rename(rename) => self.0.push(with(&rename.ident)),
            UseTree::Group(group) => group.items.iter().for_each(|t| self.add(t, so_far)),
            UseTree::Glob(_) => self.0.push(so_far.to_vec()),
        }
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.add(&item.tree, &[]);
    }

    /// `pub(super)` imports nothing.
    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments = path.segments.iter().map(|s| s.ident.to_string());
        self.0.push(segments.collect());
        visit::visit_path(self, path);
    }
}

/// The module of that file. `inside`: its path below `src`.
fn module(inside: &Path) -> Module {
    let segments = inside.iter().filter_map(|p| p.to_str());
    let segments = segments.map(|s| s.trim_end_matches(".rs").to_owned());
    segments.filter(|s| s != "mod").collect()
}

/// The module that a path leads to, from inside `own`. `None`: to another crate, or to nothing that has a file.
fn target(path: &[String], own: &Module, all: &BTreeSet<Module>) -> Option<Module> {
    let mut at = match path.first()?.as_str() {
        "crate" => Module::new(),
        "self" => own.clone(),
        "super" => own[..own.len() - 1].to_vec(),
        _ => return None,
    };
    for segment in &path[1..] {
        if segment == "super" {
            at.pop();
            continue;
        }
        let next = [at.as_slice(), std::slice::from_ref(segment)].concat();
        if !all.contains(&next) {
            break;
        }
        at = next;
    }
    all.contains(&at).then_some(at)
}

/// All modules to which that one leads.
fn reached(from: &Module, edges: &BTreeMap<Module, BTreeSet<Module>>) -> BTreeSet<Module> {
    let (mut seen, mut left) = (BTreeSet::new(), vec![from]);
    while let Some(module) = left.pop() {
        for next in edges.get(module).into_iter().flatten() {
            if seen.insert(next.clone()) {
                left.push(next);
            }
        }
    }
    seen
}

/// Why: in a circle of files no file can be read, or changed, without all others. Without one, a reader learns a room from the
/// bottom up.
#[test]
fn no_room_has_a_circle_of_imports() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let inside = |file: &PathBuf| module(file.strip_prefix(&root).expect("inside"));
    let all: BTreeSet<Module> = files.iter().map(inside).collect();
    let mut edges: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
    for file in &files {
        let own = inside(file);
        let mut names = Names::default();
        names.visit_file(&product(file));
        let targets = names.0.iter().filter_map(|path| target(path, &own, &all));
        let targets = targets.filter(|to| *to != own && to.first() == own.first());
        edges.insert(own.clone(), targets.collect());
    }
    let circle: Vec<String> = edges
        .keys()
        .filter(|module| reached(module, &edges).contains(*module))
        .map(|module| module.join("/"))
        .collect();
    assert!(circle.is_empty(), "import each other: {circle:?}");
}

/// The functions with a body in that text, as rustfmt writes it, and how many lines of code each has.
fn functions(text: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let words = ["pub ", "pub(super) ", "pub(crate) ", "const ", "async "];
        let named = words
            .iter()
            .fold(code, |code, word| code.strip_prefix(word).unwrap_or(code));
        let Some(name) = named.strip_prefix("fn ") else {
            continue;
        };
        let end = format!("{}}}", &line[..line.len() - code.len()]);
        let body = lines[at..].iter().take_while(|line| **line != end);
        let is_code =
            |line: &&&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
        let signature = lines[at..]
            .iter()
            .find(|line| line.ends_with([';', '{', '}']));
        if signature.is_some_and(|line| line.ends_with('{')) {
            let name = name.split(['(', '<']).next().unwrap_or_default();
            found.push((name.to_owned(), body.filter(is_code).count() + 1));
        }
    }
    found
}

/// Why: what does not fit on a screen is read in part, and what was not read is forgotten in the next change.
#[test]
fn files_and_functions_stay_short() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut long = BTreeSet::new();
    for file in &files {
        let inside = file.strip_prefix(&root).expect("inside").display();
        let text = fs::read_to_string(file).expect("a source");
        let marks = text.match_indices("#[cfg(test)]\n").map(|(at, _)| at);
        let mut tests = marks.filter(|at| {
            text[*at..]
                .lines()
                .nth(1)
                .is_some_and(|l| l.ends_with("mod tests {"))
        });
        let product = &text[..tests.next().unwrap_or(text.len())];
        if product.lines().count() > 400 {
            long.insert(inside.to_string());
        }
        let functions = functions(product);
        let above = functions.into_iter().filter(|(_, lines)| *lines > 60);
        long.extend(above.map(|(name, _)| format!("{inside}: {name}")));
    }
    assert!(
        long.is_empty(),
        "files above 400 lines, functions above 60: {long:?}"
    );
}

/// Live reads and looks at VMs outside the room `guard`, by file. None of them decides whether a dangerous call is sent: they
/// look for something, or come before a record. These numbers only fall.
const LIVE_READS: &[(&str, usize)] = &[
    // No VM and no host is ended by it. What it writes is decided from these reads.
    ("byoh.rs", 3),
    ("iso/content.rs", 1),
    ("iso/of_pool/fresh.rs", 1),
    ("orphans/remove.rs", 1),
    ("pool/act/perform.rs", 2),
    ("pool/provision.rs", 1),
    ("pool/secret_finalizers.rs", 1),
    ("vm/act/create.rs", 2),
    ("vm/act/find.rs", 3),
    ("vm/act/give_up.rs", 2),
    ("vm/act/power.rs", 1),
    ("vm/act/reassign.rs", 1),
    ("vm/act/record.rs", 3),
    ("vm/act/recycle.rs", 2),
    ("vm/act/release.rs", 6),
];

/// Counts the calls that read something live, and the permits that are issued.
#[derive(Default)]
struct Calls {
    reads: usize,
    permits: usize,
}

impl<'ast> Visit<'ast> for Calls {
    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let name = call.method.to_string();
        self.reads += usize::from(name.starts_with("live_") || name == "observe");
        visit::visit_expr_method_call(self, call);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let last: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        self.permits += usize::from(last.ends_with(&["Permit".to_owned(), "issue".to_owned()]));
        visit::visit_path(self, path);
    }
}

/// Why: what is proven in two places is forgotten in one of them.
#[test]
fn only_the_guard_proves_live_and_issues_permits() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let operator = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let of_actors = files.len();
    sources(&operator, &mut files);
    assert!(files.len() > of_actors + 50, "the operator's sources");
    let mut reads: BTreeMap<String, usize> = BTreeMap::new();
    let mut permits = BTreeSet::new();
    for file in &files {
        let mut calls = Calls::default();
        calls.visit_file(&product(file));
        let inside = file.strip_prefix(&root).ok();
        let inside = inside.map(|p| p.to_str().expect("a name").to_owned());
        if calls.permits > 0 {
            permits.insert(inside.clone().unwrap_or_else(|| file.display().to_string()));
        }
        let own = |path: &String| !path.starts_with("guard/") && !path.starts_with("ports/");
        if let Some(path) = inside.filter(own).filter(|_| calls.reads > 0) {
            reads.insert(path, calls.reads);
        }
    }
    let outside: Vec<&String> = permits
        .iter()
        .filter(|p| !p.starts_with("guard/"))
        .collect();
    assert!(
        outside.is_empty(),
        "only the guard issues permits: {outside:?}"
    );
    assert!(permits.len() > 2, "no permits are found: {permits:?}");
    let known = LIVE_READS.iter().map(|(file, n)| ((*file).to_owned(), *n));
    assert_eq!(reads, known.collect(), "live reads outside the guard");
}

/// Files that read rows of `status.waitingOn`, or the waits of an actor's own verdict. All of them tell something. A decision
/// reads what another actor found by `ManagedVm::obstacle`. (`vm/observed/facts.rs` reads what an older commit wrote of its own VM.) This
/// list only shrinks.
const WAITING_ROWS: &[&str] = &[
    "news/mod.rs",
    "orphans/mod.rs",
    "orphans/sight.rs",
    "pool/dry_run.rs",
    "pool/status.rs",
    "pool/status/gauges.rs",
    "pool/status/verdicts.rs",
    "pool/report.rs",
    "pool/report/waits.rs",
    "report/exports.rs",
    "report/vm.rs",
    "runtime/shell.rs",
    "vm/observed/facts.rs",
    "vm/publish.rs",
    "vm/status.rs",
];

#[derive(Default)]
struct Rows(bool);

impl<'ast> Visit<'ast> for Rows {
    fn visit_expr_field(&mut self, field: &'ast syn::ExprField) {
        let named = matches!(&field.member, syn::Member::Named(name) if name == "waiting_on");
        self.0 |= named;
        visit::visit_expr_field(self, field);
    }
}

/// Why: rows are cut, sorted and worded for people. A decision that reads them changes with a word.
#[test]
fn rows_for_people_decide_nothing() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let reads = |file: &PathBuf| {
        let mut rows = Rows::default();
        rows.visit_file(&product(file));
        let inside = file.strip_prefix(&root).expect("inside");
        rows.0.then(|| inside.to_str().expect("a name").to_owned())
    };
    let found: BTreeSet<String> = files.iter().filter_map(reads).collect();
    let known = WAITING_ROWS.iter().map(|file| (*file).to_owned());
    assert_eq!(found, known.collect(), "files that read rows of waitingOn");
}

/// The methods of that block, as rustfmt writes it.
fn methods(file: &str, block: &str) -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let text = fs::read_to_string(path).expect("a source");
    let from = text.find(block).expect("the block");
    let lines = text[from..].lines().take_while(|line| *line != "}");
    let names = lines.filter_map(|line| line.strip_prefix("    fn ")?.split(['(', '<']).next());
    names.map(str::to_owned).collect()
}

/// Why: the guard asks its own view what holds a VM. A method with a default that it does not answer shows nothing there, and that
/// hold is lost directly before the call.
#[test]
fn the_view_of_the_guard_answers_whatever_the_caches_do() {
    let mut asked = methods("src/ports/cluster.rs", "pub trait View");
    // Their defaults ask others of these methods.
    for derived in ["agent_machines_asking", "count_agents", "first_agent"] {
        assert!(asked.remove(derived), "{derived}");
    }
    let answered = methods("src/guard/live.rs", "impl View for LiveView");
    assert_eq!(answered, asked);
}

/// Calls of the Event, trace and metric ports that belong to `report::tell`.
#[derive(Default)]
struct Tells(bool);

impl<'ast> Visit<'ast> for Tells {
    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let of_metrics = matches!(call.receiver.as_ref(), syn::Expr::Field(field)
            if matches!(&field.member, syn::Member::Named(name) if name == "instruments"));
        let method = call.method.to_string();
        let hands_on = ["clone", "as_ref"].contains(&method.as_str());
        self.0 |=
            (of_metrics && !hands_on) || ["notify", "phase", "forget"].contains(&method.as_str());
        visit::visit_expr_method_call(self, call);
    }
}

/// Why: what is told of a machine is decided in one place, from what changed. An act that tells something by itself tells it in
/// passes that fail as well.
#[test]
fn pool_and_vm_tell_nothing_but_through_the_report() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    for room in ["pool", "vm"] {
        sources(&root.join(room), &mut files);
    }
    let tells = |file: &&PathBuf| {
        let mut tells = Tells::default();
        tells.visit_file(&product(file));
        tells.0
    };
    let found: Vec<&PathBuf> = files.iter().filter(tells).collect();
    assert!(found.is_empty(), "{found:?}");
}
