//! The simulated vCenter, built from this repository.

use std::path::PathBuf;

use anyhow::Result;

use super::{cache, go, sources};

/// Path of the simulated vCenter. It is built again when its sources change.
///
/// # Errors
/// Go is missing or the build failed.
pub fn vcenter() -> Result<PathBuf> {
    let module = super::repository().join("tests/lab/vcenter");
    let key = format!("vcenter-{}", sources::digest(&module, "", go::is_source)?);
    cache::entry(&key, "vcenter", |into| {
        go::Build {
            what: "the simulated vCenter",
            takes: "2 minutes on two cores",
            without_go: "for the simulated vCenter, which has no other source",
            module: &module,
            tags: "",
            ldflags: "-s -w",
            packages: &["."],
        }
        .run(into)?;
        cache::forget_old("vcenter-", &key);
        Ok(())
    })
}
