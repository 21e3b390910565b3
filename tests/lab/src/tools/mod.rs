//! The foreign programs of the lab: where each comes from, built once per machine.
//!
//! Flow: a caller asks for a program and gets its path. Programs are taken from `KUBEBUILDER_ASSETS` when that is set
//! (the convention of envtest), else built with Go from the module proxy into `$XDG_CACHE_HOME/agent-forge-lab`
//! (`~/.cache/agent-forge-lab`), which outlives `cargo clean` and serves every clone on the machine.
//!
//! Guarantees: a path that is returned names a complete program; test binaries that run side by side build once; what
//! is built, why, and for how long is written to stderr.
//!
//! Caveat: these functions block, the first time for minutes. Call them through [`tokio::task::spawn_blocking`].

pub mod cache;
mod etcd;
mod go;
mod jaeger;
mod kubernetes;
mod operator;
mod prometheus;
mod sources;
mod vcenter;
pub mod versions;

pub use etcd::etcd;
pub use jaeger::jaeger;
pub use kubernetes::{kube_apiserver, kube_controller_manager, kubectl};
pub use operator::operator;
pub use prometheus::promtool;
pub use vcenter::vcenter;

use std::path::PathBuf;

/// Root of the repository that this crate belongs to.
pub fn repository() -> PathBuf {
    let lab = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    lab.ancestors()
        .nth(2)
        .map_or_else(|| lab.clone(), PathBuf::from)
}
