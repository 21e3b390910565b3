//! `lab dist`: makes the files of a release in one folder, without a network.
//!
//! Guarantee: equal commits, arguments and tools give equal files, whatever the folders are called. `SHA256SUMS` has the
//! digests.
//!
//! What this machine lacks is left out, and a line that begins with SKIPPED says so.

mod image;
mod origin;
mod program;

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
    tools::{kubectl, repository},
};
use program::Program;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Folders below `config/`, and what each of them becomes.
const MANIFESTS: [(&str, &str); 9] = [
    ("crd", "crds.yaml"),
    ("default", "install.yaml"),
    ("overlays/monitoring", "install-monitoring.yaml"),
    ("overlays/namespaced", "install-namespaced.yaml"),
    ("overlays/openshift", "install-openshift.yaml"),
    ("overlays/predecessor", "install-predecessor.yaml"),
    ("overlays/proxy", "install-proxy.yaml"),
    ("overlays/single-replica", "install-single-replica.yaml"),
    ("overlays/web", "install-web.yaml"),
];
/// Charts below `config/`, and their names.
const CHARTS: [(&str, &str); 2] = [("chart", "agent-forge"), ("chart-crds", "agent-forge-crds")];
/// The digests of the other files.
const SUMS: &str = "SHA256SUMS";
/// Make the files of a release.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// Folder for the files. Those of an earlier run in it go, by its SHA256SUMS.
    #[arg(long, default_value = "target/dist")]
    pub out: PathBuf,
    /// The image in the manifests, for example `registry.example.com/agent-forge`. It gets the digest of the image that is
    /// made here, unless it has one. Without it, the manifests name `agent-forge` with the version.
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// A file with public certificate roots, for the image.
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/etc/ssl/certs/ca-certificates.crt"
    )]
    pub roots: PathBuf,
    /// A program for amd64 that is built already. Then none is built, not for arm64 either.
    #[arg(long, value_name = "FILE", conflicts_with = "no_program")]
    pub program: Option<PathBuf>,
    /// Leave out the programs and the image.
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
    // Until all files are made, what was there stays.
    earlier(&args.out)?;
    let staged = tempfile::tempdir()?;
    let out = staged.path();
    let programs = match &args.program {
        _ if args.no_program => Vec::new(),
        Some(program) => vec![Program::of_amd64(program)],
        None => program::build()?,
    };
    let digest = image::make(&programs, &args.roots, out)?;
    let image = args.image.as_ref().map(|image| match &digest {
        Some(digest) if !image.contains('@') => format!("{image}@{digest}"),
        _ => image.clone(),
    });
    for (folder, file) in MANIFESTS {
        let text = manifest(folder, image.as_deref())?;
        fs::write(out.join(file), text)?;
    }
    for (folder, name) in CHARTS {
        chart(folder, name, image.as_deref(), out)?;
    }
    bundle(image.as_deref(), out)?;
    docs(out)?;
    program::archives(&programs, out)?;
    origin::bill_of_materials(out)?;
    origin::licences(out)?;
    let made = sums(out)?;
    // Of a program that was built elsewhere nothing is known.
    if args.program.is_none() {
        origin::provenance(&made, out)?;
    }
    let made = sums(out)?;
    for file in earlier(&args.out)? {
        fs::remove_file(&file).with_context(|| format!("remove {}", file.display()))?;
    }
    // First the list, so that the next run knows what one that ends here left.
    let names = fs::read_dir(out)?.map(|entry| Ok(entry?.file_name()));
    let mut names = names.collect::<Result<Vec<_>>>()?;
    names.sort_by_key(|name| name != SUMS);
    for name in names {
        let to = args.out.join(&name);
        fs::copy(out.join(&name), &to).with_context(|| format!("write {}", to.display()))?;
    }
    Ok(made)
}

/// A chart as an archive. Its values name the image.
fn chart(folder: &str, name: &str, image: Option<&str>, out: &Path) -> Result<()> {
    let staged = tempfile::tempdir()?;
    let copied = staged.path().join(name);
    copy(&repository().join("config").join(folder), &copied)?;
    let values = copied.join("values.yaml");
    if let Some(image) = image.filter(|_| folder == "chart") {
        let text = fs::read_to_string(&values)?;
        let placeholder = "  repository: agent-forge\n";
        ensure!(text.contains(placeholder), "config/chart names no image");
        let (repository, version) = match (image.split_once('@'), image.rsplit_once(':')) {
            (Some((repository, digest)), _) => (repository, Some(("digest", digest))),
            (None, Some((repository, tag))) if !tag.contains('/') => {
                (repository, Some(("tag", tag)))
            }
            _ => (image, None),
        };
        let mut text = text.replace(placeholder, &format!("  repository: {repository}\n"));
        if let Some((key, value)) = version {
            let empty = format!("  {key}: \"\"\n");
            ensure!(text.contains(&empty), "config/chart has no image.{key}");
            text = text.replacen(&empty, &format!("  {key}: \"{value}\"\n"), 1);
        }
        fs::write(values, text)?;
    }
    pack(
        staged.path(),
        &[name],
        &out.join(format!("{name}-{VERSION}.tgz")),
    )
}

/// The bundle for OLM, as the folder from which its image is made.
fn bundle(image: Option<&str>, out: &Path) -> Result<()> {
    let staged = tempfile::tempdir()?;
    let copied = staged.path().join("bundle");
    copy(&repository().join("config/olm"), &copied)?;
    let file = copied.join(format!(
        "manifests/agent-forge.v{VERSION}.clusterserviceversion.yaml"
    ));
    if let Some(image) = image {
        let text = fs::read_to_string(&file)?;
        let placeholder = format!("registry.example.com/agent-forge:{VERSION}");
        ensure!(
            text.contains(&placeholder),
            "config/olm does not name the image {placeholder}"
        );
        fs::write(&file, text.replace(&placeholder, image))?;
    }
    pack(
        staged.path(),
        &["bundle"],
        &out.join(format!("agent-forge-bundle-{VERSION}.tgz")),
    )
}

/// The pages, and the site made of them where mdbook is installed.
fn docs(out: &Path) -> Result<()> {
    let staged = tempfile::tempdir()?;
    let pages = staged.path().join("docs");
    copy(&repository().join("docs"), &pages)?;
    let made = Command::new("mdbook")
        .arg("build")
        .arg(&pages)
        .arg("--dest-dir")
        .arg(staged.path().join("site"))
        .output();
    let mut what = vec!["docs"];
    match made {
        Ok(made) if made.status.success() => what.push("site"),
        Ok(made) => skipped(&format!(
            "the site of the docs: {}",
            String::from_utf8_lossy(&made.stderr)
        )),
        Err(_) => {
            skipped("the site of the docs: mdbook is not on PATH (docs/how-to/build-this-site.md)")
        }
    }
    pack(
        staged.path(),
        &what,
        &out.join(format!("agent-forge-docs-{VERSION}.tgz")),
    )
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let done = Command::new("cp")
        .arg("-R")
        .arg(from)
        .arg(to)
        .status()
        .context("run cp")?;
    ensure!(done.success(), "{} was not copied", from.display());
    Ok(())
}

/// What an earlier run made in that folder, which is made if it is not there. Other files are an error.
fn earlier(out: &Path) -> Result<BTreeSet<PathBuf>> {
    fs::create_dir_all(out).with_context(|| format!("make {}", out.display()))?;
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
    Ok(there)
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

/// An archive whose bytes depend on names and contents only.
fn pack(folder: &Path, what: &[&str], to: &Path) -> Result<()> {
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
    files.retain(|file| !file.ends_with(SUMS));
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
