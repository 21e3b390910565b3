//! What a host of BYOH runs: the two scripts of the built-in payload, and the judge of scripts that a user gives.
//!
//! BYOH is `cluster-api-provider-bringyourownhost` at commit df816565. Its agent passes both scripts through Go's
//! `text/template` with a map of the one key `BundleDownloadPath` (`agent/reconciler/host_reconciler.go`), and runs each as one
//! argument of `/bin/bash -c` (`agent/cloudinit/cmd_runner.go`).

mod judge;
mod systems;

pub use judge::{RefusedTemplate, judge_template};
pub use systems::{SYSTEMS, System};

const COMMON: &str = include_str!("scripts/common.sh");
const INSTALL: &str = include_str!("scripts/install.sh");
const UNINSTALL: &str = include_str!("scripts/uninstall.sh");

/// Architectures of the table, as Go names them.
const ARCHITECTURES: [&str; 2] = ["amd64", "arm64"];

/// The first minor release (1.24) whose kubelet speaks to containerd alone. An older kubeadm may choose Docker.
const OLDEST_MINOR: u32 = 24;

/// What a host is, as BYOH's agent reports it in `status.hostinfo`, and what it gets.
#[derive(Debug, Clone)]
pub struct Request {
    /// `osname`: Go's name of the system, such as `linux`.
    pub os_name: String,
    /// `osimage`: `PRETTY_NAME` of the host's `/etc/os-release`.
    pub os_image: String,
    /// `architecture`: Go's name of it, such as `amd64`.
    pub architecture: String,
    /// The release of Kubernetes, such as `v1.30.14`. The `v` may be missing.
    pub kubernetes_version: String,
    /// Where kubelet and the others come from.
    pub bundle: Bundle,
}

/// An image with what a host needs, as `config/byoh/bundle` lays it out.
#[derive(Debug, Clone)]
pub struct Bundle {
    /// Registry and name, without tag: `registry.example.com/byoh/kubernetes`.
    pub repository: String,
    /// `sha256:` and 64 hexadecimal digits.
    pub digest: String,
}

/// The scripts of one host. Equal requests give equal bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scripts {
    /// Makes the host ready for kubeadm.
    pub install: String,
    /// Takes back what `install` did, as far as that came.
    pub uninstall: String,
}

/// Why there are no scripts for a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// The system is not in the table.
    #[error("the system {image:?} ({name}) is not supported")]
    System {
        /// As the host reports it.
        name: String,
        /// As the host reports it.
        image: String,
    },
    /// No bundle is for it.
    #[error("the architecture {0:?} is not supported")]
    Architecture(String),
    /// The release is too old, or not of the form `v1.30.14`.
    #[error(
        "Kubernetes {0:?} is not supported: it has to be a release such as v1.30.14, and 1.{OLDEST_MINOR} or later"
    )]
    Kubernetes(String),
    /// The repository or the digest cannot be those of an image.
    #[error("{0:?} is no image with its digest")]
    Bundle(String),
}

/// The scripts for this host.
///
/// # Errors
/// The system, the architecture or the release is not supported, or the bundle has no proper name.
pub fn render(request: &Request) -> Result<Scripts, Unsupported> {
    if !systems::is_known(&request.os_name, &request.os_image) {
        return Err(Unsupported::System {
            name: request.os_name.clone(),
            image: request.os_image.clone(),
        });
    }
    if !ARCHITECTURES.contains(&request.architecture.as_str()) {
        let refused = request.architecture.clone();
        return Err(Unsupported::Architecture(refused));
    }
    let minor = minor_of(&request.kubernetes_version)
        .filter(|minor| *minor >= OLDEST_MINOR)
        .ok_or_else(|| Unsupported::Kubernetes(request.kubernetes_version.clone()))?;
    let release = request.kubernetes_version.trim_start_matches('v');
    let install = INSTALL
        .replace("%IMAGE%", &image(&request.bundle)?)
        .replace("%KUBERNETES%", &format!("v{release}"))
        .replace("%ARCHITECTURE%", &request.architecture)
        .replace("%TOOLS%", tools(minor));
    Ok(Scripts {
        install: [COMMON, &install].concat(),
        uninstall: [COMMON, UNINSTALL].concat(),
    })
}

/// The minor release of `v1.MINOR.PATCH`. What passes needs no quotes in a script.
fn minor_of(version: &str) -> Option<u32> {
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| text.parse::<u32>().ok()).flatten()
    };
    let version = version.strip_prefix('v').unwrap_or(version);
    let (minor, patch) = version.strip_prefix("1.")?.split_once('.')?;
    number(patch)?;
    number(minor)
}

/// The programs without which kubeadm refuses to join (its `cmd/kubeadm/app/preflight/checks_linux.go`), apart from those of
/// the bundle. Since 1.32 it does not ask for conntrack.
fn tools(minor: u32) -> &'static str {
    if minor < 32 {
        "conntrack ip iptables mount nsenter"
    } else {
        "ip iptables mount nsenter"
    }
}

/// The image by digest. What passes needs no quotes in a script, and is no key of a template.
fn image(bundle: &Bundle) -> Result<String, Unsupported> {
    let image = format!("{}@{}", bundle.repository, bundle.digest);
    let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    let digest = bundle.digest.strip_prefix("sha256:");
    let is_digest = digest.is_some_and(|digest| digest.len() == 64 && digest.bytes().all(hex));
    let of_name = |b: u8| b.is_ascii_alphanumeric() || b"._-/:".contains(&b);
    let begins = |b: u8| b.is_ascii_alphanumeric();
    let is_name = bundle.repository.bytes().all(of_name)
        && bundle.repository.bytes().next().is_some_and(begins);
    if is_digest && is_name {
        Ok(image)
    } else {
        Err(Unsupported::Bundle(image))
    }
}

#[cfg(test)]
mod tests;
