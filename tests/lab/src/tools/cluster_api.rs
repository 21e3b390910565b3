//! The real controllers of Cluster API, and the CRDs of the same release.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use super::{go, versions::CLUSTER_API};

const MODULE: &str = "sigs.k8s.io/cluster-api";
/// The kinds that the controllers list and watch. They read the last two whether somebody uses them or not.
const KINDS: [&str; 6] = [
    "clusters",
    "machinedeployments",
    "machinesets",
    "machines",
    "machinedrainrules",
    "machinepools",
];
/// What a user without Go can do.
const WITHOUT_GO: &str = "or leave the comparison with the real Cluster API out";

/// Path of the program with the controllers of Cluster, MachineDeployment, MachineSet and Machine.
///
/// # Errors
/// Go is missing or the build failed.
pub fn cluster_api() -> Result<PathBuf> {
    entry("cluster-api", |module, into| {
        go::Build {
            what: &format!("the controllers of Cluster API {CLUSTER_API}"),
            takes: "4 minutes on two cores",
            without_go: WITHOUT_GO,
            module,
            tags: "",
            ldflags: "-s -w",
            packages: &["."],
        }
        .run(into)
    })
}

/// Path of a YAML file with the CRDs of the kinds that the controllers need.
///
/// # Errors
/// Go is missing, or the module cannot be downloaded.
pub fn cluster_api_crds() -> Result<PathBuf> {
    entry("crds.yaml", |module, into| {
        let bases = go::directory_of(module, MODULE, WITHOUT_GO)?.join("core/config/crd/bases");
        let mut all = String::new();
        for kind in KINDS {
            let path = bases.join(format!("cluster.x-k8s.io_{kind}.yaml"));
            all +=
                &fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        }
        fs::write(into.join("crds.yaml"), all).context("write the CRDs of Cluster API")
    })
}

fn entry(file: &str, build: impl FnOnce(&Path, &Path) -> Result<()>) -> Result<PathBuf> {
    go::entry("cluster-api", CLUSTER_API, file, build)
}
