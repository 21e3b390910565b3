//! Jaeger in one process.

use std::path::PathBuf;

use anyhow::Result;

use super::{cache, go, sources, versions::JAEGER};

/// Path of Jaeger's all-in-one program.
///
/// # Errors
/// Go is missing or the build failed.
pub fn jaeger() -> Result<PathBuf> {
    let module = super::repository().join("tests/lab/jaeger");
    let digest = sources::digest(&module, "", go::is_source)?;
    let key = format!("jaeger-{JAEGER}-{digest}");
    cache::entry(&key, "all-in-one", |into| {
        go::Build {
            what: &format!("Jaeger {JAEGER}"),
            takes: "4 minutes on two cores",
            without_go: "or leave --jaeger out",
            module: &module,
            tags: "",
            ldflags: "-s -w",
            packages: &["github.com/jaegertracing/jaeger/cmd/all-in-one"],
        }
        .run(into)?;
        cache::forget_old("jaeger-", &key);
        Ok(())
    })
}
