//! `lab dist`: makes the files of a release in one folder, without a network.
//!
//! Guarantee: equal commits and arguments give equal files, whatever the folders are called. The program is the exception
//! where `--program` names one that was built in another way. `SHA256SUMS` has the digests.
//!
//! What this machine lacks is left out, and a line that begins with SKIPPED says so.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args as ClapArgs;
use sha2::{Digest as _, Sha256};

use crate::{
    bench::say,
    tools::{cargo, kubectl, repository},
};

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Folders below `config/`, and what each of them becomes.
const MANIFESTS: [(&str, &str); 8] = [
    ("crd", "crds.yaml"),
    ("default", "install.yaml"),
    ("overlays/monitoring", "install-monitoring.yaml"),
    ("overlays/namespaced", "install-namespaced.yaml"),
    ("overlays/openshift", "install-openshift.yaml"),
    ("overlays/predecessor", "install-predecessor.yaml"),
    ("overlays/proxy", "install-proxy.yaml"),
    ("overlays/single-replica", "install-single-replica.yaml"),
];
/// Charts below `config/`, and their names.
const CHARTS: [(&str, &str); 2] = [("chart", "agent-forge"), ("chart-crds", "agent-forge-crds")];
/// The digests of the other files.
const SUMS: &str = "SHA256SUMS";
/// A static program: an image needs nothing beside it.
const TARGET: &str = "x86_64-unknown-linux-musl";

/// Make the files of a release.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// Folder for the files. Those of an earlier run in it go, by its SHA256SUMS.
    #[arg(long, default_value = "target/dist")]
    pub out: PathBuf,
    /// The image in the manifests, for example `registry.example.com/agent-forge@sha256:…`.
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// A program that is built already. Otherwise it is built.
    #[arg(long, value_name = "FILE", conflicts_with = "no_program")]
    pub program: Option<PathBuf>,
    /// Leave out the archive of the program.
    #[arg(long)]
    pub no_program: bool,
}

/// Makes the files and prints their digests.
///
/// # Errors
/// A file cannot be made.
pub async fn run(args: Args) -> Result<()> {
    let made = tokio::task::spawn_blocking(move || make(&args)).await??;
    say(&made)
}

/// Makes the files. The result is the content of `SHA256SUMS`. It blocks.
///
/// # Errors
/// A file cannot be made.
pub fn make(args: &Args) -> Result<String> {
    let out = &args.out;
    fs::create_dir_all(out).with_context(|| format!("make {}", out.display()))?;
    clear(out)?;
    for (folder, file) in MANIFESTS {
        let text = manifest(folder, args.image.as_deref())?;
        fs::write(out.join(file), text)?;
    }
    for (folder, name) in CHARTS {
        let to = out.join(format!("{name}-{VERSION}.tgz"));
        let renamed = format!("s,^{folder},{name},");
        pack(&repository().join("config"), &[folder], Some(&renamed), &to)?;
    }
    if !args.no_program {
        let program = match &args.program {
            Some(program) => program.clone(),
            None => build()?,
        };
        archive(&program, out)?;
    }
    sums(out)
}

/// Removes what an earlier run made. If there are other files, nothing is removed.
fn clear(out: &Path) -> Result<()> {
    let text = fs::read_to_string(out.join(SUMS)).unwrap_or_default();
    let made = text.lines().filter_map(|line| line.split("  ").nth(1));
    let made: BTreeSet<PathBuf> = made.chain([SUMS]).map(|name| out.join(name)).collect();
    let there: BTreeSet<PathBuf> = fs::read_dir(out)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    if let Some(other) = there.difference(&made).next() {
        bail!(
            "{} is not among the files that {SUMS} names: move it away, or name another folder with --out",
            other.display()
        );
    }
    for file in there {
        fs::remove_file(&file).with_context(|| format!("remove {}", file.display()))?;
    }
    Ok(())
}

fn manifest(folder: &str, image: Option<&str>) -> Result<String> {
    let path = repository().join("config").join(folder);
    let text = output(Command::new(kubectl()?).arg("kustomize").arg(path))?;
    let Some(image) = image.filter(|_| folder != "crd") else {
        return Ok(text);
    };
    let placeholder = format!("image: agent-forge:{VERSION}\n");
    ensure!(
        text.contains(&placeholder),
        "config/{folder} does not name the image agent-forge:{VERSION}"
    );
    Ok(text.replace(&placeholder, &format!("image: {image}\n")))
}

/// The program, built so that no folder of this machine is in it.
fn build() -> Result<PathBuf> {
    let (root, home) = (repository(), std::env::var("CARGO_HOME").ok());
    let home = home.or_else(|| Some(format!("{}/.cargo", std::env::var("HOME").ok()?)));
    let mut flags = format!("--remap-path-prefix={}=/agent-forge", root.display());
    let home = home.context("neither CARGO_HOME nor HOME is set")?;
    flags += &format!(" --remap-path-prefix={home}=/cargo");
    let installed =
        output(Command::new("rustc").args(["--print", "target-libdir", "--target", TARGET]));
    let is_there = installed.is_ok_and(|path| Path::new(path.trim()).exists());
    let mut command = cargo();
    command.args(["build", "--release", "--locked", "--bin", "agent-forge"]);
    command.env("RUSTFLAGS", flags);
    // Beside other builds, whose flags differ.
    let target = root.join("target/dist-build");
    command.arg("--target-dir").arg(&target);
    let built = if is_there {
        command.args(["--target", TARGET]);
        target.join(TARGET).join("release/agent-forge")
    } else {
        skipped(&format!(
            "the target {TARGET} is not installed, so the program needs the C library of this machine"
        ));
        target.join("release/agent-forge")
    };
    let done = command.status().context("run cargo")?;
    ensure!(done.success(), "the program was not built");
    Ok(built)
}

/// Program, plugin for kubectl, completions and man pages in one archive, with a manifest for krew.
fn archive(program: &Path, out: &Path) -> Result<()> {
    let staged = tempfile::tempdir()?;
    let name = format!("agent-forge-{VERSION}-linux-amd64");
    let inside = staged.path().join(&name);
    fs::create_dir_all(inside.join("completions"))?;
    fs::create_dir_all(inside.join("man"))?;
    fs::copy(program, inside.join("agent-forge"))
        .with_context(|| format!("copy {}", program.display()))?;
    std::os::unix::fs::symlink("agent-forge", inside.join("kubectl-agent_forge"))?;
    fs::copy(repository().join("LICENSE"), inside.join("LICENSE"))?;
    for shell in ["bash", "fish", "zsh"] {
        let text = output(Command::new(program).args(["completion", shell]))?;
        fs::write(inside.join("completions").join(shell), text)?;
    }
    output(Command::new(program).arg("man").arg(inside.join("man")))?;
    let file = out.join(format!("{name}.tar.gz"));
    pack(staged.path(), &[&name], None, &file)?;
    fs::write(out.join("krew.yaml"), krew(&name, &digest(&file)?))?;
    Ok(())
}

fn krew(name: &str, sha256: &str) -> String {
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
  - selector:
      matchLabels:
        os: linux
        arch: amd64
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

/// An archive whose bytes depend on names and contents only.
fn pack(folder: &Path, what: &[&str], renamed: Option<&str>, to: &Path) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.args([
        "--sort=name",
        "--format=gnu",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "--mtime=@0",
    ]);
    tar.args(["--mode=u=rwX,go=rX", "-C"]).arg(folder);
    tar.args(renamed.map(|pattern| format!("--transform={pattern}")));
    let mut packing = tar
        .arg("-cf")
        .arg("-")
        .args(what)
        .stdout(Stdio::piped())
        .spawn()
        .context("run tar")?;
    let from = packing.stdout.take().context("tar's output")?;
    let file = fs::File::create(to).with_context(|| format!("make {}", to.display()))?;
    let zipped = Command::new("gzip")
        .args(["-9", "-n"])
        .stdin(from)
        .stdout(file)
        .status()
        .context("run gzip")?;
    ensure!(
        packing.wait()?.success() && zipped.success(),
        "{} was not packed",
        to.display()
    );
    Ok(())
}

fn sums(out: &Path) -> Result<String> {
    let mut files: Vec<PathBuf> = fs::read_dir(out)?
        .map(|e| Ok(e?.path()))
        .collect::<Result<_>>()?;
    files.sort();
    let mut text = String::new();
    for file in files {
        let name = file.file_name().and_then(OsStr::to_str).context("a name")?;
        text += &format!("{}  {name}\n", digest(&file)?);
    }
    fs::write(out.join(SUMS), &text)?;
    Ok(text)
}

fn digest(file: &Path) -> Result<String> {
    Ok(hex::encode(Sha256::digest(fs::read(file)?)))
}

fn output(command: &mut Command) -> Result<String> {
    let done = command
        .output()
        .with_context(|| format!("run {command:?}"))?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{command:?}: {said}");
    String::from_utf8(done.stdout).context("its output")
}

fn skipped(what: &str) {
    // If stderr is closed, there is no other place to report to.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_for_krew_says_from_where_the_archive_comes() {
        let manifest = krew("agent-forge-9-linux-amd64", "0123");
        let address = format!(
            "uri: https://github.com/containeroo/agent-forge-operator/releases/download/v{VERSION}/agent-forge-9-linux-amd64.tar.gz\n"
        );
        assert!(manifest.contains(&address), "{manifest}");
    }
}
