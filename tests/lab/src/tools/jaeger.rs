//! Jaeger in one process.

use std::path::PathBuf;

use anyhow::Result;

use super::{go, versions::JAEGER};

/// Path of Jaeger's all-in-one program.
///
/// # Errors
/// Go is missing or the build failed.
pub fn jaeger() -> Result<PathBuf> {
    go::entry("jaeger", JAEGER, "all-in-one", |module, into| {
        go::Build {
            what: &format!("Jaeger {JAEGER}"),
            takes: "4 minutes on two cores",
            without_go: "or leave --jaeger out",
            module,
            tags: "",
            ldflags: "-s -w",
            packages: &["github.com/jaegertracing/jaeger/cmd/all-in-one"],
        }
        .run(into)
    })
}
