//! The static program for each architecture, its archives, and the manifest for krew.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use super::{VERSION, digest, output, pack, skipped};
use crate::tools::{cargo, repository};

/// Architectures as images name them, and what Rust calls them. An image of a static program needs nothing beside it.
const TARGETS: [(&str, &str); 2] = [
    ("amd64", "x86_64-unknown-linux-musl"),
    ("arm64", "aarch64-unknown-linux-musl"),
];
/// What builds for both, whatever this machine is. zig has the C compiler and the C library.
const TOOLS: [(&str, &[&str]); 3] = [
    ("cargo-zigbuild", &["--version"]),
    ("cargo", &["auditable", "--help"]),
    ("python3", &["-m", "ziglang", "version"]),
];

/// A program of one architecture.
pub(super) struct Program {
    pub arch: &'static str,
    pub file: PathBuf,
}

impl Program {
    pub(super) fn of_amd64(file: &Path) -> Self {
        Self {
            arch: TARGETS[0].0,
            file: file.to_owned(),
        }
    }
}

/// Builds the programs so that no folder of this machine is in them. Each one has the list of its dependencies inside
/// (`cargo audit bin`).
///
/// # Errors
/// A build fails.
pub(super) fn build() -> Result<Vec<Program>> {
    let missing = |(tool, args): &&(&str, &[&str])| {
        let found = Command::new(tool).args(*args).output();
        !found.is_ok_and(|done| done.status.success())
    };
    if let Some((tool, args)) = TOOLS.iter().find(missing) {
        let asked = args.join(" ");
        skipped(&format!(
            "{tool} {asked} does not answer, so there is no program and no image"
        ));
        return Ok(Vec::new());
    }
    let mut made = Vec::new();
    for (arch, target) in TARGETS {
        let found =
            output(Command::new("rustc").args(["--print", "target-libdir", "--target", target]));
        if found.is_ok_and(|path| Path::new(path.trim()).exists()) {
            made.push(Program {
                arch,
                file: build_for(target)?,
            });
        } else {
            skipped(&format!(
                "the target {target} is not installed, so there is nothing for {arch}"
            ));
        }
    }
    Ok(made)
}

fn build_for(target: &str) -> Result<PathBuf> {
    let (root, home) = (repository(), env::var("CARGO_HOME").ok());
    let home = home.or_else(|| Some(format!("{}/.cargo", env::var("HOME").ok()?)));
    let home = home.context("neither CARGO_HOME nor HOME is set")?;
    let from = root.display();
    // Beside other builds, whose flags differ.
    let into = root.join("target/dist-build");
    let done = cargo()
        .args(["auditable", "zigbuild", "--release", "--locked"])
        .args(["--bin", "agent-forge", "--target", target, "--target-dir"])
        .arg(&into)
        .env(
            "RUSTFLAGS",
            format!("--remap-path-prefix={from}=/agent-forge --remap-path-prefix={home}=/cargo"),
        )
        .env(
            "CFLAGS",
            format!("-ffile-prefix-map={home}=/cargo -ffile-prefix-map={from}=/agent-forge"),
        )
        .status()
        .context("run cargo")?;
    ensure!(done.success(), "no program for {target} was built");
    Ok(into.join(target).join("release/agent-forge"))
}

/// For each program an archive, in which it is a plugin for kubectl too, with completions and man pages; and the manifest
/// for krew.
///
/// # Errors
/// The first program does not run, or a file cannot be made.
pub(super) fn archives(programs: &[Program], out: &Path) -> Result<()> {
    if programs.is_empty() {
        return Ok(());
    }
    // Completions and man pages do not depend on the architecture. This machine runs the program of its own only.
    let here = match env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let own = programs.iter().find(|program| program.arch == here);
    let own = own.with_context(|| format!("no program runs on this machine ({here})"))?;
    let mut platforms = String::new();
    for program in programs {
        let staged = tempfile::tempdir()?;
        let name = format!("agent-forge-{VERSION}-linux-{}", program.arch);
        let inside = staged.path().join(&name);
        fs::create_dir_all(inside.join("completions"))?;
        fs::create_dir_all(inside.join("man"))?;
        fs::copy(&program.file, inside.join("agent-forge"))
            .with_context(|| format!("copy {}", program.file.display()))?;
        std::os::unix::fs::symlink("agent-forge", inside.join("kubectl-agent_forge"))?;
        fs::copy(repository().join("LICENSE"), inside.join("LICENSE"))?;
        for shell in ["bash", "fish", "zsh"] {
            let text = output(Command::new(&own.file).args(["completion", shell]))?;
            fs::write(inside.join("completions").join(shell), text)?;
        }
        output(Command::new(&own.file).arg("man").arg(inside.join("man")))?;
        let file = out.join(format!("{name}.tar.gz"));
        pack(staged.path(), &[&name], &file)?;
        platforms += &platform(program.arch, &name, &digest(&file)?);
    }
    fs::write(out.join("krew.yaml"), krew(&platforms))?;
    Ok(())
}

fn krew(platforms: &str) -> String {
    let home = env!("CARGO_PKG_REPOSITORY");
    format!(
        "apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: agent-forge
spec:
  version: v{VERSION}
  homepage: {home}
  shortDescription: Explain and check worker hosts on vSphere
  description: |
    Shows what agent-forge does for the workers of OpenShift Hosted Control Planes on vSphere: why a machine waits, what a
    change would do, and whether the operator has what it needs.
  platforms:
{platforms}"
    )
}

fn platform(arch: &str, name: &str, sha256: &str) -> String {
    let home = env!("CARGO_PKG_REPOSITORY");
    format!(
        "  - selector:
      matchLabels:
        os: linux
        arch: {arch}
    uri: {home}/releases/download/v{VERSION}/{name}.tar.gz
    sha256: {sha256}
    files:
    - from: {name}/agent-forge
      to: .
    - from: {name}/LICENSE
      to: .
    bin: agent-forge
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_for_krew_says_from_where_the_archive_comes() {
        let manifest = krew(&platform("arm64", "agent-forge-9-linux-arm64", "0123"));
        let address = format!(
            "uri: https://github.com/containeroo/agent-forge-operator/releases/download/v{VERSION}/agent-forge-9-linux-arm64.tar.gz\n"
        );
        assert!(manifest.contains(&address), "{manifest}");
    }
}
