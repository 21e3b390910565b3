//! Builds a Go program with visible progress.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use super::{
    cache::{self, progress},
    sources,
    versions::OLDEST_GO,
};

/// How often a running build reports that it still runs.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Path of `file`, which `build` makes from the module in `tests/lab/<folder>`, once for each release (if it has one) and
/// each state of its sources. What others of that folder left goes.
pub(super) fn entry(
    folder: &str,
    release: &str,
    file: &str,
    build: impl FnOnce(&Path, &Path) -> Result<()>,
) -> Result<PathBuf> {
    let module = super::repository().join("tests/lab").join(folder);
    let digest = sources::digest(&module, "", is_source)?;
    let parts = [folder, release, &digest].into_iter();
    let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    let key = parts.join("-");
    cache::entry(&key, file, |into| {
        build(&module, into)?;
        cache::forget_old(&format!("{folder}-"), &key);
        Ok(())
    })
}

/// One `go build`.
pub(super) struct Build<'a> {
    /// What is built, for people.
    pub what: &'a str,
    /// How long it takes without a cache, for people.
    pub takes: &'a str,
    /// What a user without Go can do instead, or what will be missing.
    pub without_go: &'a str,
    /// Directory of the `go.mod`.
    pub module: &'a Path,
    /// Build tags, separated by commas; empty for none.
    pub tags: &'a str,
    /// Linker flags.
    pub ldflags: &'a str,
    /// Packages with a `main`. Each becomes a program named after its last element.
    pub packages: &'a [&'a str],
}

impl Build<'_> {
    /// Builds the packages into the directory `into`.
    ///
    /// # Errors
    /// Go is missing or too old, or the build failed. The error contains the compiler's output.
    pub fn run(&self, into: &Path) -> Result<()> {
        check_go(self.without_go)?;
        progress(&format!(
            "building {} from source, once per machine (about {} when nothing is cached)",
            self.what, self.takes
        ));
        let start = Instant::now();
        let mut command = Command::new("go");
        command
            .current_dir(self.module)
            .env("CGO_ENABLED", "0")
            // A workspace file or flags of the caller must not change what is built.
            .env("GOWORK", "off")
            .env("GOFLAGS", "")
            .args([
                "build",
                "-mod=readonly",
                "-trimpath",
                "-buildvcs=false",
                "-tags",
                self.tags,
                "-ldflags",
                self.ldflags,
                "-o",
            ])
            // The trailing separator makes `-o` a directory even for a single package.
            .arg(into.join(""))
            .args(self.packages)
            .stdin(Stdio::null());
        let output = with_heartbeat(self.what, start, command)?;
        if !output.status.success() {
            bail!(
                "go build of {} in {} failed ({}):\n{}",
                self.what,
                self.module.display(),
                output.status,
                String::from_utf8_lossy(&output.stderr).trim_end()
            );
        }
        progress(&format!(
            "built {} in {} s",
            self.what,
            start.elapsed().as_secs()
        ));
        Ok(())
    }
}

/// Directory with the files of a dependency of the module in `module`. Downloads it if necessary.
///
/// # Errors
/// Go is missing or too old, or the dependency cannot be downloaded.
pub(super) fn directory_of(module: &Path, dependency: &str, without_go: &str) -> Result<PathBuf> {
    check_go(without_go)?;
    let output = Command::new("go")
        .current_dir(module)
        .env("GOWORK", "off")
        .env("GOFLAGS", "")
        .args(["mod", "download", "-json", dependency])
        .output()
        .context("run go mod download")?;
    let said = String::from_utf8_lossy(&output.stderr);
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("go mod download {dependency}: {}", said.trim_end()))?;
    let directory = answer["Dir"].as_str().map(PathBuf::from);
    directory.with_context(|| format!("go mod download {dependency}: {}", answer["Error"]))
}

fn with_heartbeat(
    what: &str,
    start: Instant,
    mut command: Command,
) -> Result<std::process::Output> {
    let (done, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            while let Err(mpsc::RecvTimeoutError::Timeout) = ended.recv_timeout(HEARTBEAT) {
                progress(&format!(
                    "still building {what}, {} s",
                    start.elapsed().as_secs()
                ));
            }
        });
        let output = command.output().context("run go build");
        drop(done);
        output
    })
}

fn check_go(without_go: &str) -> Result<()> {
    let (major, minor) = OLDEST_GO;
    let advice = format!("install Go >= {major}.{minor} (https://go.dev/dl) {without_go}");
    let output = match Command::new("go")
        .args(["env", "GOVERSION"])
        .env("GOFLAGS", "")
        .output()
    {
        Ok(output) if output.status.success() => output,
        Ok(output) => bail!("`go env GOVERSION` failed ({}): {advice}", output.status),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!("Go was not found: {advice}")
        }
        Err(error) => return Err(error).with_context(|| format!("Go cannot be run: {advice}")),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    match version(text.trim()) {
        // An older Go downloads the toolchain that a go.mod asks for, unless this is turned off.
        Some(found) if found < OLDEST_GO && toolchain_is_fixed() => {
            bail!("{} is too old: {advice}", text.trim())
        }
        _ => Ok(()),
    }
}

fn toolchain_is_fixed() -> bool {
    Command::new("go")
        .args(["env", "GOTOOLCHAIN"])
        .output()
        .is_ok_and(|output| output.stdout.starts_with(b"local"))
}

/// Major and minor version of the output of `go env GOVERSION`; `None` for a development version.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.strip_prefix("go")?.split(['.', 'r', 'b', ' ', '-']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The version after `module` in a `require` or `replace` of a `go.mod`.
#[cfg(test)]
fn required(go_mod: &str, module: &str) -> Option<String> {
    go_mod.lines().find_map(|line| {
        let mut words = line
            .trim()
            .trim_start_matches("require ")
            .split_whitespace();
        (words.next()? == module).then(|| words.next().unwrap_or_default().to_owned())
    })
}

/// Whether `path` is part of a Go build.
pub(super) fn is_source(path: &Path) -> bool {
    let named = |name| path.file_name() == Some(OsStr::new(name));
    named("go.mod") || named("go.sum") || path.extension() == Some(OsStr::new("go"))
}

#[cfg(test)]
mod tests {
    use super::{
        super::versions::{CLUSTER_API, HELM, JAEGER, KUBERNETES, PROMETHEUS},
        *,
    };

    #[test]
    fn each_module_names_the_pinned_release() {
        for (folder, module, release) in [
            ("cluster-api", "sigs.k8s.io/cluster-api", CLUSTER_API),
            ("cluster-api", "sigs.k8s.io/cluster-api/api", CLUSTER_API),
            ("helm", "helm.sh/helm/v3", HELM),
            ("jaeger", "github.com/jaegertracing/jaeger", JAEGER),
            ("kubernetes", "k8s.io/kubernetes", KUBERNETES),
            ("prometheus", "github.com/prometheus/prometheus", PROMETHEUS),
        ] {
            let lab = super::super::repository().join("tests/lab");
            let text = std::fs::read_to_string(lab.join(folder).join("go.mod"));
            let found = required(&text.expect("go.mod"), module);
            assert_eq!(found.as_deref(), Some(release), "{module}");
        }
    }
}
