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
pub mod helm;
mod jaeger;
mod kubernetes;
mod prometheus;
mod shellcheck;
mod sources;
pub mod template;
mod vcenter;
pub mod versions;

pub use built::built;
pub use cargo::cargo;
pub use cluster_api::{cluster_api, cluster_api_crds};
pub use etcd::etcd;
pub use jaeger::jaeger;
pub use kubernetes::{kube_apiserver, kube_controller_manager, kubectl};
pub use prometheus::promtool;
pub use shellcheck::shellcheck;
pub use vcenter::vcenter;

use std::{io::Write as _, path::PathBuf, sync::Once};

/// A directory of what was recorded elsewhere, if this machine has it: below `$AGENT_FORGE_SHARED`, else below the
/// directory `shared` beside the repository.
pub fn shared(directory: &str) -> Option<PathBuf> {
    let shared = std::env::var_os("AGENT_FORGE_SHARED")
        .map_or_else(|| repository().join("../shared"), PathBuf::from);
    Some(shared.join(directory)).filter(|path| path.is_dir())
}

/// The same for a test that needs it. If it is missing, stderr says so.
pub fn shared_or_skipped(directory: &str) -> Option<PathBuf> {
    let found = shared(directory);
    if found.is_none() {
        // Directly to stderr: the output of print macros stays hidden while a test passes.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: there is no directory {directory}; set AGENT_FORGE_SHARED to the one that holds it"
        );
    }
    found
}

/// Builds once, one after the other, what tests of the whole operator start: a compiler beside them takes the cores that they
/// count on. What cannot be built is an error of the test that needs it.
pub fn built_before_tests() {
    static BUILT: Once = Once::new();
    let programs = [
        vcenter,
        kube_apiserver,
        kubectl,
        cluster_api,
        promtool,
        helm::helm,
    ];
    BUILT.call_once(|| programs.iter().for_each(|program| drop(program())));
}

/// Root of the repository that this crate belongs to.
pub fn repository() -> PathBuf {
    let lab = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    lab.ancestors()
        .nth(2)
        .map_or_else(|| lab.clone(), PathBuf::from)
}
