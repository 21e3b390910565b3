//! Facts about the operator's program: its origin, its size, and the libraries that it loads.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};
use clap::Args as ClapArgs;
use serde::Serialize;

use crate::tools;

/// Crates that link or contain OpenSSL.
const OPENSSL_CRATES: [&str; 4] = ["openssl", "openssl-sys", "openssl-src", "native-tls"];

/// Where the operator's program comes from.
#[derive(Clone, Debug, ClapArgs)]
pub struct Source {
    /// Cargo profile to build the operator with.
    #[arg(long, value_name = "NAME", default_value = "release")]
    pub profile: String,
    /// Run this program instead of building one.
    #[arg(long, value_name = "FILE", conflicts_with = "profile")]
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
        let profile = self.profile.clone();
        eprintln!("building the operator in profile {profile}; the first time this takes minutes");
        tokio::task::spawn_blocking(move || tools::built("agent-forge", "agent-forge", &profile))
            .await
            .context("build the operator")?
    }

    /// Inspects the program.
    ///
    /// # Errors
    /// The program at `path` or Cargo.lock cannot be read, or `ldd` cannot be run.
    pub fn inspect(&self, path: &Path) -> Result<Program> {
        let given = self.operator.as_ref().map(|p| p.display().to_string());
        let shipped = given.is_some() || self.profile == "release";
        inspect(path, given.as_ref().unwrap_or(&self.profile), shipped)
    }
}

/// The operator's program.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Program {
    /// Cargo profile, or the path of a given program.
    pub made: String,
    /// Whether it has the profile that is shipped. A given program counts as shipped.
    pub shipped: bool,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Shared libraries that it loads, according to `ldd`. Empty for a static program.
    pub libraries: Vec<String>,
    /// Crates in Cargo.lock that link OpenSSL. There must be none.
    pub openssl_crates: Vec<String>,
}

impl Program {
    /// The parts of OpenSSL that the program loads or is built from.
    pub fn openssl(&self) -> impl Iterator<Item = &str> {
        let names = self.libraries.iter().map(String::as_str);
        let loaded = names.filter(|n| n.starts_with("libssl") || n.starts_with("libcrypto"));
        loaded.chain(self.openssl_crates.iter().map(String::as_str))
    }
}

fn inspect(path: &Path, made: &str, shipped: bool) -> Result<Program> {
    let bytes = fs::metadata(path)
        .with_context(|| format!("look at {}", path.display()))?
        .len();
    // For a static program ldd fails, and prints a message instead of a list.
    let listing = Command::new("ldd")
        .arg(path)
        .output()
        .context("run ldd, which comes with the C library")?;
    let lock = tools::repository().join("Cargo.lock");
    let lock = fs::read_to_string(&lock).with_context(|| format!("read {}", lock.display()))?;
    Ok(Program {
        made: made.to_owned(),
        shipped,
        bytes,
        libraries: libraries(&String::from_utf8_lossy(&listing.stdout)),
        openssl_crates: openssl_crates(&lock),
    })
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

fn openssl_crates(lock: &str) -> Vec<String> {
    lock.lines()
        .filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'))
        .filter(|name| OPENSSL_CRATES.contains(name))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_libraries_that_ldd_lists_are_read() {
        let listing = "\tlinux-vdso.so.1 (0x00007ffc)\n\tlibssl.so.3 => /lib/libssl.so.3 (0x1)\n\t/lib64/ld-linux-x86-64.so.2 (0x2)\n";
        assert_eq!(
            libraries(listing),
            ["linux-vdso.so.1", "libssl.so.3", "ld-linux-x86-64.so.2"]
        );
        assert!(libraries("\tstatically linked\n").is_empty());
    }

    #[test]
    fn openssl_is_found_as_a_library_and_as_a_crate() {
        let lock = "[[package]]\nname = \"openssl-probe\"\n\n[[package]]\nname = \"openssl-sys\"\n";
        assert_eq!(openssl_crates(lock), ["openssl-sys"]);
        let program = |libraries: &[&str], crates: &[&str]| Program {
            made: "release".into(),
            shipped: true,
            bytes: 1,
            libraries: libraries.iter().map(|l| (*l).to_owned()).collect(),
            openssl_crates: crates.iter().map(|c| (*c).to_owned()).collect(),
        };
        let found = |program: Program| program.openssl().map(str::to_owned).collect::<Vec<_>>();
        assert!(found(program(&["libc.so.6"], &[])).is_empty());
        let both = program(&["libc.so.6", "libcrypto.so.3"], &["native-tls"]);
        assert_eq!(found(both), ["libcrypto.so.3", "native-tls"]);
    }
}
