//! Facts about the operator's program: its origin, its size, and the libraries that it loads. That no crate of OpenSSL is
//! in it, `deny.toml` says.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};
use clap::Args as ClapArgs;
use serde::Serialize;

use crate::tools;

/// Where the operator's program comes from.
#[derive(Clone, Debug, ClapArgs)]
pub struct Source {
    /// Run this program instead of building a release.
    #[arg(long, value_name = "FILE")]
    pub operator: Option<PathBuf>,
}

impl Source {
    /// The program. It is built if none was given; the first time that takes minutes.
    ///
    /// # Errors
    /// It cannot be built.
    pub async fn program(&self) -> Result<PathBuf> {
        if let Some(path) = &self.operator {
            return Ok(path.clone());
        }
        eprintln!("building the operator's release; the first time this takes minutes");
        tokio::task::spawn_blocking(|| tools::built("agent-forge", "agent-forge", "release"))
            .await
            .context("build the operator")?
    }

    /// Inspects the program.
    ///
    /// # Errors
    /// The program at `path` cannot be read, or `ldd` cannot be run.
    pub fn inspect(&self, path: &Path) -> Result<Program> {
        let bytes = fs::metadata(path)
            .with_context(|| format!("look at {}", path.display()))?
            .len();
        // For a static program ldd fails, and prints a message instead of a list.
        let listing = Command::new("ldd")
            .arg(path)
            .output()
            .context("run ldd, which comes with the C library")?;
        let given = self.operator.as_ref().map(|p| p.display().to_string());
        Ok(Program {
            made: given.unwrap_or_else(|| "release".to_owned()),
            bytes,
            libraries: libraries(&String::from_utf8_lossy(&listing.stdout)),
        })
    }
}

/// The operator's program.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Program {
    /// `release`, or the path of a given program.
    pub made: String,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Shared libraries that it loads, according to `ldd`. Empty for a static program.
    pub libraries: Vec<String>,
}

impl Program {
    /// The parts of OpenSSL that the program loads.
    pub fn openssl(&self) -> impl Iterator<Item = &str> {
        let names = self.libraries.iter().map(String::as_str);
        names.filter(|n| n.starts_with("libssl") || n.starts_with("libcrypto"))
    }
}

/// File names of the libraries in the output of `ldd`.
fn libraries(listing: &str) -> Vec<String> {
    listing
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .map(|path| path.rsplit('/').next().unwrap_or(path))
        .filter(|name| name.contains(".so"))
        .map(str::to_owned)
        .collect()
}
