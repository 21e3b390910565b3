//! Cargo, as a person starts it.

use std::{env, process::Command};

/// A command that runs Cargo in the root of the repository.
///
/// `cargo run` tells its program of its own package by variables. Build scripts of libraries look at the same names, and would
/// take another value for a change: half of the workspace would be compiled again, and once more by the next Cargo that
/// a person starts.
#[must_use]
pub fn cargo() -> Command {
    let program = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(super::repository());
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(is_about_a_package) {
            command.env_remove(name);
        }
    }
    command
}

fn is_about_a_package(name: &str) -> bool {
    let begins = ["CARGO_PKG_", "CARGO_MANIFEST_"];
    let is = [
        "CARGO_BIN_NAME",
        "CARGO_CRATE_NAME",
        "CARGO_PRIMARY_PACKAGE",
    ];
    begins.iter().any(|b| name.starts_with(b)) || is.contains(&name)
}
