//! Programs of this workspace, built by Cargo, for callers that do not get their path from Cargo.

use std::{path::PathBuf, process::Stdio};

use anyhow::{Context as _, Result, ensure};

/// Path of the program `name` of `package` in the given Cargo profile. It is built if it is out of date.
///
/// Integration tests of the root package use `env!("CARGO_BIN_EXE_agent-forge")` instead.
///
/// # Errors
/// Cargo cannot be run or the build failed. Compiler messages are printed on stderr.
pub fn built(package: &str, name: &str, profile: &str) -> Result<PathBuf> {
    let output = super::cargo()
        .args(["build", "--quiet", "--package", package, "--bin", name])
        .args(["--profile", profile])
        .args(["--message-format", "json-render-diagnostics"])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("run cargo build for {name}"))?;
    let status = output.status;
    ensure!(
        status.success(),
        "cargo build of {name} failed ({status}): see its messages above"
    );
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| {
            message["reason"] == "compiler-artifact" && message["target"]["name"] == name
        })
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .with_context(|| format!("cargo build named no program {name}"))
}
