//! kube-apiserver, kube-controller-manager and kubectl.

use std::{env, path::PathBuf};

use anyhow::Result;

use super::{cache, go, sources, versions::KUBERNETES};

/// What a user without Go can do.
const WITHOUT_GO: &str = "or set KUBEBUILDER_ASSETS to a directory that holds kube-apiserver, kube-controller-manager, kubectl and etcd";

/// Path of kube-apiserver.
///
/// # Errors
/// It is not in `KUBEBUILDER_ASSETS` and cannot be built; the error says what to do.
pub fn kube_apiserver() -> Result<PathBuf> {
    program("kube-apiserver")
}

/// Path of kube-controller-manager.
///
/// # Errors
/// It is not in `KUBEBUILDER_ASSETS` and cannot be built; the error says what to do.
pub fn kube_controller_manager() -> Result<PathBuf> {
    program("kube-controller-manager")
}

/// Path of kubectl.
///
/// # Errors
/// It is not in `KUBEBUILDER_ASSETS` and cannot be built; the error says what to do.
pub fn kubectl() -> Result<PathBuf> {
    program("kubectl")
}

/// Path of `name` in `KUBEBUILDER_ASSETS`; `None` if that is not set or does not contain it.
///
/// # Errors
/// `KUBEBUILDER_ASSETS` is set to something that is not a directory.
pub(super) fn asset(name: &str) -> Result<Option<PathBuf>> {
    let Some(directory) = env::var_os("KUBEBUILDER_ASSETS")
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
    else {
        return Ok(None);
    };
    anyhow::ensure!(
        directory.is_dir(),
        "KUBEBUILDER_ASSETS is set to {}, which is not a directory: correct or unset it",
        directory.display()
    );
    // The usual archive of test assets has no kube-controller-manager. What is missing is built.
    Ok(Some(directory.join(name)).filter(|path| path.is_file()))
}

fn program(name: &str) -> Result<PathBuf> {
    if let Some(path) = asset(name)? {
        return Ok(path);
    }
    let module = super::repository().join("tests/lab/kubernetes");
    let ldflags = format!("-s -w -X k8s.io/component-base/version.gitVersion={KUBERNETES}");
    let key = format!(
        "kubernetes-{KUBERNETES}-{}",
        sources::digest(&module, &ldflags, go::is_source)?
    );
    // The two servers share nearly all packages, and every lab needs both, so they are one build. kubectl is for
    // people.
    let names: &[&str] = if name == "kubectl" {
        &["kubectl"]
    } else {
        &["kube-apiserver", "kube-controller-manager"]
    };
    cache::entry(&key, name, |into| {
        let packages: Vec<String> = names
            .iter()
            .map(|name| format!("k8s.io/kubernetes/cmd/{name}"))
            .collect();
        go::Build {
            what: &format!("{} {KUBERNETES}", names.join(" and ")),
            takes: "6 minutes on two cores",
            without_go: WITHOUT_GO,
            module: &module,
            tags: "",
            ldflags: &ldflags,
            packages: &packages.iter().map(String::as_str).collect::<Vec<_>>(),
        }
        .run(into)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_staging_module_is_replaced_by_the_pinned_release() {
        let text =
            std::fs::read_to_string(super::super::repository().join("tests/lab/kubernetes/go.mod"))
                .expect("go.mod");
        let staging = KUBERNETES.replacen("v1.", "v0.", 1);
        let replaced: Vec<&str> = text.lines().filter(|line| line.contains("=>")).collect();
        assert!(
            replaced.len() >= 30,
            "{} staging modules are replaced",
            replaced.len()
        );
        for line in replaced {
            assert!(
                line.ends_with(&format!(" {staging}")),
                "{line:?} is not at {staging}"
            );
        }
    }
}
