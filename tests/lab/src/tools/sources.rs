//! A digest of the files that a build depends on: the key of its cache entry.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};

/// Hex digest (16 digits) of `salt` and of path and content of each file below `root` for which `counts` is true.
///
/// # Errors
/// A file or directory cannot be read.
pub(super) fn digest(root: &Path, salt: &str, counts: impl Fn(&Path) -> bool) -> Result<String> {
    let mut files = Vec::new();
    collect(root, &mut files)?;
    files.retain(|file| counts(file));
    files.sort();
    let mut hasher = Sha256::new();
    let mut part = |bytes: &[u8]| {
        // With the length, two neighbours cannot be confused with one.
        hasher.update((bytes.len() as u64).to_be_bytes());
        hasher.update(bytes);
    };
    part(salt.as_bytes());
    for file in files {
        part(
            file.strip_prefix(root)
                .unwrap_or(&file)
                .to_string_lossy()
                .as_bytes(),
        );
        part(&fs::read(&file).with_context(|| format!("read {}", file.display()))?);
    }
    Ok(hex::encode(&hasher.finalize()[..8]))
}

fn collect(directory: &Path, into: &mut Vec<PathBuf>) -> Result<()> {
    let listing =
        fs::read_dir(directory).with_context(|| format!("list {}", directory.display()))?;
    for item in listing {
        let item = item.with_context(|| format!("list {}", directory.display()))?;
        if item
            .file_type()
            .with_context(|| format!("look at {}", item.path().display()))?
            .is_dir()
        {
            collect(&item.path(), into)?;
        } else {
            into.push(item.path());
        }
    }
    Ok(())
}
