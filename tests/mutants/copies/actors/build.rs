//! Copies `actors/src` and plants the defects of `tests/mutants/defects` in the copy, which this package compiles.

#[path = "../../src/defects.rs"]
mod defects;

use std::{
    collections::BTreeSet,
    env, fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use defects::Defects;

const PRODUCT: &str = "../../../../actors/src";
const PAGES: &str = "../../defects";

fn main() -> ExitCode {
    for path in ["build.rs", "../../src/defects.rs", PRODUCT, PAGES] {
        println!("cargo::rerun-if-changed={path}");
    }
    let wrong = match plant() {
        Ok(wrong) => wrong,
        Err(e) => vec![e.to_string()],
    };
    for what in &wrong {
        for line in what.lines() {
            println!("cargo::error={line}");
        }
    }
    if wrong.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn plant() -> io::Result<Vec<String>> {
    let mut wrong = Vec::new();
    let mut defects = Defects::default();
    for page in files(Path::new(PAGES))? {
        let text = fs::read_to_string(Path::new(PAGES).join(&page))?;
        wrong.extend(defects.add(&page, &text).err());
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let copy = out.join("src");
    if copy.exists() {
        fs::remove_dir_all(&copy)?;
    }
    let sources = files(Path::new(PRODUCT))?;
    for file in &sources {
        let source = fs::read_to_string(Path::new(PRODUCT).join(file))?;
        let planted = defects.plant(file, &source).unwrap_or_else(|these| {
            wrong.extend(these);
            String::new()
        });
        let path = copy.join(file);
        fs::create_dir_all(path.parent().unwrap_or(&copy))?;
        // A file that is included has no documentation of its own.
        let planted = match file.as_str() {
            "lib.rs" => without_inner_docs(&planted),
            _ => planted,
        };
        fs::write(path, planted)?;
    }
    fs::write(out.join("mutants.rs"), defects.list())?;
    wrong.extend(defects.flaws(&sources));
    Ok(wrong)
}

fn without_inner_docs(source: &str) -> String {
    let lines = source.split_inclusive('\n');
    lines.filter(|line| !line.starts_with("//!")).collect()
}

/// All files below `root`, seen from there.
fn files(root: &Path) -> io::Result<BTreeSet<String>> {
    let (mut found, mut folders) = (BTreeSet::new(), vec![String::new()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let path = format!("{folder}{}", entry.file_name().to_string_lossy());
            if entry.file_type()?.is_dir() {
                folders.push(format!("{path}/"));
            } else {
                found.insert(path);
            }
        }
    }
    Ok(found)
}
