//! promtool: the real parser of metrics, of rules and of their test cases.

use std::path::PathBuf;

use anyhow::Result;

use super::{go, versions::PROMETHEUS};

/// Path of promtool.
///
/// # Errors
/// Go is missing or the build failed.
pub fn promtool() -> Result<PathBuf> {
    go::entry("prometheus", PROMETHEUS, "promtool", |module, into| {
        go::Build {
            what: &format!("promtool {PROMETHEUS}"),
            takes: "3 minutes on two cores",
            without_go: "for promtool, or leave the tests of the alerts out",
            module,
            // Service discovery contains the clients of a dozen clouds. The checks need none of them.
            tags: "remove_all_sd",
            ldflags: "-s -w",
            packages: &["github.com/prometheus/prometheus/cmd/promtool"],
        }
        .run(into)
    })
}
