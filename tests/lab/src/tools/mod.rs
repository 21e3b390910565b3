//! The foreign programs of the lab: where each comes from, built once per machine.
//!
//! A caller asks for a program and gets its path. If `KUBEBUILDER_ASSETS` is set (the convention of envtest), programs
//! are taken from there. Otherwise they are built with Go from the module proxy into `$XDG_CACHE_HOME/agent-forge-lab`
//! (`~/.cache/agent-forge-lab`). That directory survives `cargo clean` and serves every clone on the machine.
//!
//! Guarantees: a returned path names a complete program. Test binaries that run side by side build it once. stderr
//! shows what is built, why, and for how long.
//!
//! Caveat: these functions block, the first time for minutes. Call them through [`tokio::task::spawn_blocking`].

mod built;
pub mod cache;
mod cargo;
mod cluster_api;
mod etcd;
mod go;
mod jaeger;
mod kubernetes;
mod prometheus;
mod sources;
mod vcenter;
pub mod versions;

pub use built::built;
pub use cargo::cargo;
pub use cluster_api::{cluster_api, cluster_api_crds};
pub use etcd::etcd;
pub use jaeger::jaeger;
pub use kubernetes::{kube_apiserver, kube_controller_manager, kubectl};
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
