//! helm: renders and installs the charts as users' own helm does.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use super::{
    go, repository,
    versions::{HELM, KUBERNETES},
};

/// Path of helm.
///
/// # Errors
/// Go is missing or the build failed.
pub fn helm() -> Result<PathBuf> {
    go::entry("helm", HELM, "helm", |module, into| {
        go::Build {
            what: &format!("helm {HELM}"),
            takes: "2 minutes on two cores",
            without_go: "for helm, or leave the tests of the charts out",
            module,
            tags: "",
            ldflags: "-s -w",
            packages: &["helm.sh/helm/v3/cmd/helm"],
        }
        .run(into)
    })
}

/// What `helm template` makes of a chart below `config/`, for this release and its namespace. It blocks.
///
/// # Errors
/// The chart does not render.
pub fn template(chart: &str, release: &str, namespace: &str, set: &[&str]) -> Result<String> {
    let mut command = Command::new(helm()?);
    command.args(["template", release]);
    command.arg(repository().join("config").join(chart));
    // A helm that is built from its module does not know its Kubernetes release.
    command.args(["--namespace", namespace, "--kube-version", KUBERNETES]);
    for value in set {
        command.args(["--set", value]);
    }
    let done = command.output().context("run helm")?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "config/{chart}: {said}");
    String::from_utf8(done.stdout).context("helm's output")
}

/// What helm prints for these arguments, as the user of this kubeconfig. Its caches are in `home`. It blocks.
///
/// # Errors
/// helm fails; the error has what it says.
pub fn helm_with(kubeconfig: &Path, home: &Path, args: &[&str]) -> Result<String> {
    let done = Command::new(helm()?)
        .env("KUBECONFIG", kubeconfig)
        .envs(["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"].map(|name| (name, home)))
        .args(args)
        .output()
        .context("run helm")?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "helm {args:?}: {said}");
    String::from_utf8(done.stdout).context("helm's output")
}
