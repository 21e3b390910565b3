//! Go's `text/template`, as the agent of BYOH uses it.

use std::{
    io::Write as _,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};

use super::go;

fn template() -> Result<PathBuf> {
    go::entry("template", "", "template", |module, into| {
        go::Build {
            what: "the judge of templates",
            takes: "10 seconds",
            without_go: "for the judge of templates, which is Go's own",
            module,
            tags: "",
            ldflags: "-s -w",
            packages: &["."],
        }
        .run(into)
    })
}

/// What Go makes of each text if `BundleDownloadPath` is `path`; in place of a text, what Go says of it. It blocks.
///
/// # Errors
/// The program cannot be built or run.
pub fn executed(texts: &[String], path: &str) -> Result<Vec<Result<String, String>>> {
    let mut input = tempfile::tempfile()?;
    input.write_all(&serde_json::to_vec(texts)?)?;
    std::io::Seek::rewind(&mut input)?;
    let done = Command::new(template()?)
        .arg(path)
        .stdin(Stdio::from(input))
        .output()
        .context("run the judge of templates")?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "the judge of templates: {said}");
    let results: Vec<serde_json::Value> = serde_json::from_slice(&done.stdout)?;
    let read = |result: &serde_json::Value| match result["error"].as_str() {
        Some(error) => Err(error.to_owned()),
        None => Ok(result["text"].as_str().unwrap_or_default().to_owned()),
    };
    Ok(results.iter().map(read).collect())
}
