//! What is in a release and where it comes from: the SBOM, the licences of the dependencies, and the provenance.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::{VERSION, output, skipped};
use crate::tools::{cargo, repository};

/// The program's dependencies in the format CycloneDX, by cargo-cyclonedx.
///
/// # Errors
/// The tool fails.
pub(super) fn bill_of_materials(out: &Path) -> Result<()> {
    if output(cargo().args(["cyclonedx", "--help"])).is_err() {
        skipped("there is no cargo-cyclonedx, so there is no SBOM");
        return Ok(());
    }
    // It writes beside each Cargo.toml, so it gets a copy.
    let copy = tempfile::tempdir()?;
    let listed = output(
        Command::new("git")
            .arg("-C")
            .arg(repository())
            .args(["ls-files", "-z"]),
    )?;
    for name in listed.split_terminator('\0') {
        let (from, to) = (repository().join(name), copy.path().join(name));
        // Git still lists what was removed and not committed.
        if from.is_file() {
            fs::create_dir_all(to.parent().context("a folder")?)?;
            fs::copy(from, to).with_context(|| format!("copy {name}"))?;
        }
    }
    output(
        cargo()
            .current_dir(copy.path())
            .env("SOURCE_DATE_EPOCH", "0")
            .args(["cyclonedx", "--format", "json", "--spec-version", "1.5"])
            .args(["--describe", "crate", "--no-build-deps", "--target"])
            .arg("x86_64-unknown-linux-musl"),
    )?;
    let text = fs::read_to_string(copy.path().join("agent-forge.cdx.json"))?;
    let folder = copy.path().canonicalize()?;
    let text = text.replace(&*folder.to_string_lossy(), "/agent-forge");
    fs::write(out.join(format!("agent-forge-{VERSION}.cdx.json")), text)?;
    Ok(())
}

/// Which licence which crate has, by cargo-deny.
///
/// # Errors
/// The tool fails.
pub(super) fn licences(out: &Path) -> Result<()> {
    if output(cargo().args(["deny", "--version"])).is_err() {
        skipped("there is no cargo-deny, so there is no list of licences");
        return Ok(());
    }
    let list = output(cargo().current_dir(repository()).args([
        "deny", "--color", "never", "--locked", "list", "--format", "human",
    ]))?;
    fs::write(out.join("LICENCES-of-dependencies.txt"), list)?;
    Ok(())
}

/// A statement in the format of in-toto (SLSA provenance v1): of which commit and with which tools the files were made. It
/// says no time and no machine.
///
/// # Errors
/// git or rustc fails.
pub(super) fn provenance(sums: &str, out: &Path) -> Result<()> {
    let git = |args: &[&str]| {
        let mut command = Command::new("git");
        output(command.arg("-C").arg(repository()).args(args))
    };
    let commit = git(&["rev-parse", "HEAD"])?;
    let changed = !git(&["status", "--porcelain"])?.is_empty();
    if changed {
        skipped("files differ from the commit, so there is no provenance");
        return Ok(());
    }
    let subject: Vec<Value> = sums
        .lines()
        .filter_map(|line| line.split_once("  "))
        .map(|(digest, name)| json!({"name": name, "digest": {"sha256": digest}}))
        .collect();
    let home = env!("CARGO_PKG_REPOSITORY");
    let rustc = output(Command::new("rustc").arg("--version"))?;
    let statement = json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subject,
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": format!("{home}/blob/v{VERSION}/docs/reference/release-checklist.md"),
                "externalParameters": {"command": "cargo lab dist"},
                "internalParameters": {"rustc": rustc.trim()},
                "resolvedDependencies": [
                    {"uri": format!("git+{home}"), "digest": {"gitCommit": commit.trim()}},
                ],
            },
            "runDetails": {"builder": {"id": format!("{home}/blob/v{VERSION}/tests/lab/src/dist.rs")}},
        },
    });
    let text = format!("{statement}\n");
    fs::write(out.join("provenance.intoto.jsonl"), text)?;
    Ok(())
}
