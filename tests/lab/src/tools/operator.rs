//! The operator itself, built by Cargo, for callers that do not get its path from Cargo.

use std::{path::PathBuf, process::Stdio};

use anyhow::{Context as _, Result, bail};

/// Path of the operator program `agent-forge` in the given Cargo profile. It is built if it is out of date.
///
/// Integration tests of the root package use `env!("CARGO_BIN_EXE_agent-forge")` instead.
///
/// # Errors
/// Cargo cannot be run or the build failed. Compiler messages are printed on stderr.
pub fn operator(profile: &str) -> Result<PathBuf> {
    let output = super::cargo()
        .args([
            "build",
            "--quiet",
            "--package",
            "agent-forge",
            "--bin",
            "agent-forge",
        ])
        .args([
            "--profile",
            profile,
            "--message-format",
            "json-render-diagnostics",
        ])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("run cargo build for the operator")?;
    if !output.status.success() {
        bail!(
            "cargo build of the operator failed ({}): see its messages above",
            output.status
        );
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| {
            message["reason"] == "compiler-artifact" && message["target"]["name"] == "agent-forge"
        })
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .context("cargo build named no program agent-forge")
}
