//! The floors of this crate: a room imports only from rooms on the floors below it.
//!
//! Why: a reader can learn the rooms from the bottom up, and a new capability cannot tie two rooms into a circle.
//! Tests and test helpers are left out: they may look at everything.

use std::{
    collections::BTreeSet,
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
    &["demand"],
    &["lifecycle"],
    &["pool", "vm", "orphans", "news"],
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

impl<'ast> Visit<'ast> for Rooms {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if let UseTree::Path(path) = &item.tree
            && path.ident == "crate"
            && !is_test(&item.attrs)
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
        let text = fs::read_to_string(&file).expect("a source");
        let mut rooms = Rooms::default();
        rooms.visit_file(&syn::parse_file(&text).expect("Rust"));
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
