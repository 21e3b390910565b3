//! The simulated vCenter, built from this repository.

use std::path::PathBuf;

use anyhow::Result;

use super::go;

/// Path of the simulated vCenter. It is built again when its sources change.
///
/// # Errors
/// Go is missing or the build failed.
pub fn vcenter() -> Result<PathBuf> {
    go::entry("vcenter", "", "vcenter", |module, into| {
        go::Build {
            what: "the simulated vCenter",
            takes: "2 minutes on two cores",
            without_go: "for the simulated vCenter, which has no other source",
            module,
            tags: "",
            ldflags: "-s -w",
            packages: &["."],
        }
        .run(into)
    })
}
