//! The commit that is tested.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};

/// What is checked out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Checkout {
    /// The commit's hash, 12 digits.
    pub(super) commit: String,
    /// Whether files differ from the commit.
    pub(super) dirty: bool,
}

impl Checkout {
    /// Asks git.
    ///
    /// # Errors
    /// git is not installed, or `root` is not in a repository with a commit.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let commit = git(root, &["rev-parse", "--short=12", "HEAD"])?;
        let status = git(root, &["status", "--porcelain"])?;
        Ok(Self {
            commit: commit.trim().to_owned(),
            dirty: !status.trim().is_empty(),
        })
    }

    /// The name under which results are kept.
    pub(super) fn key(&self) -> String {
        let suffix = if self.dirty { "-dirty" } else { "" };
        format!("{}{suffix}", self.commit)
    }

    /// A seed that differs from commit to commit, and is the same in each start.
    ///
    /// # Errors
    /// The commit is no hash.
    pub(super) fn seed(&self) -> Result<u64> {
        let digits = self.commit.get(..8).unwrap_or_default();
        u64::from_str_radix(digits, 16)
            .with_context(|| format!("commit {} is no hash", self.commit))
    }
}

/// Output of a git command.
///
/// # Errors
/// git is not installed, or the command failed; the error has its message.
pub(super) fn git(root: &Path, args: &[&str]) -> Result<String> {
    let output = Command::new("git")
        .current_dir(root)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .context("run git")?;
    let message = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "git {}: {}",
        args.join(" "),
        message.trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_gives_key_and_seed() {
        let mut checkout = Checkout {
            commit: "00000100ffff".into(),
            dirty: false,
        };
        assert_eq!(checkout.key(), "00000100ffff");
        assert_eq!(checkout.seed().unwrap(), 256);
        checkout.dirty = true;
        assert_eq!(checkout.key(), "00000100ffff-dirty");
    }
}
