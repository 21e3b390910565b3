//! Where test data is.

use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// Root of the workspace.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A directory of the shared data. `None`, after a message on stderr that `test` is skipped, if it does not exist.
///
/// The data is beside the workspace. `AGENT_FORGE_SHARED` names another place.
pub fn shared(directory: &str, test: &str) -> Option<PathBuf> {
    let root = env::var_os("AGENT_FORGE_SHARED")
        .map_or_else(|| workspace().join("../shared"), PathBuf::from);
    let path = root.join(directory);
    if path.is_dir() {
        return Some(path);
    }
    // Directly to stderr: the output of print macros stays hidden while a test passes.
    let _ = writeln!(
        std::io::stderr(),
        "SKIPPED {test}: there is no directory {}; set AGENT_FORGE_SHARED to its parent",
        path.display()
    );
    None
}

/// One YAML document as JSON.
pub fn yaml(path: &Path) -> Value {
    let text =
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A fixture of these tests.
pub fn fixture(name: &str) -> Value {
    yaml(
        &Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/fixtures")
            .join(name),
    )
}

/// The YAML files directly in a directory, sorted.
pub fn yaml_files(directory: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "yaml")
        })
        .collect();
    files.sort();
    files
}

/// Schema of one version of a definition.
pub fn schema<'a>(definition: &'a Value, version: &str) -> &'a Value {
    versions(definition)
        .find(|(name, _)| *name == version)
        .map(|(_, schema)| schema)
        .unwrap_or_else(|| panic!("no version {version}"))
}

/// Name and schema of each version of a definition.
pub fn versions(definition: &Value) -> impl Iterator<Item = (&str, &Value)> {
    definition["spec"]["versions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|version| {
            (
                version["name"].as_str().unwrap(),
                &version["schema"]["openAPIV3Schema"],
            )
        })
}

/// A definition as JSON.
pub fn json(value: &impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap()
}
