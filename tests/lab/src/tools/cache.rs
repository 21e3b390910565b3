//! The store of this machine for everything that takes long to make: built programs, and the first data of a lab's
//! etcd.
//!
//! Guarantees: an entry is complete or absent, because it is built elsewhere and then renamed. One process at a time
//! builds an entry. It holds an advisory lock on a file, which the kernel releases when the process dies.

use std::{
    env, fs,
    fs::File,
    io::Write as _,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};

/// Age at which programs of older sources are removed.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(7 * 24 * 3600);

/// Directory of all entries: `$XDG_CACHE_HOME/agent-forge-lab`, else `~/.cache/agent-forge-lab`.
///
/// # Errors
/// Neither `XDG_CACHE_HOME` nor `HOME` is set to an absolute path.
pub fn directory() -> Result<PathBuf> {
    let absolute = |name: &str| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    absolute("XDG_CACHE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".cache")))
        .map(|cache| cache.join("agent-forge-lab"))
        .context("no place to keep built programs: set XDG_CACHE_HOME or HOME to an absolute path")
}

/// Path of `file` in the entry `key`. If `file` does not exist, `build` fills the entry's directory.
///
/// `build` gets an empty directory. Every file in it becomes part of the entry, each by one atomic rename.
///
/// # Errors
/// `build` failed or did not make `file`, or the cache cannot be written.
pub fn entry(key: &str, file: &str, build: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    entry_in(&directory()?, key, file, build)
}

fn entry_in(
    root: &Path,
    key: &str,
    file: &str,
    build: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let place = root.join(key);
    let wanted = place.join(file);
    if wanted.is_file() {
        return Ok(wanted);
    }
    fs::create_dir_all(&place).with_context(|| format!("create {}", place.display()))?;
    let _lock = lock(&root.join(format!("{key}.lock")), file)?;
    if wanted.is_file() {
        return Ok(wanted);
    }
    let fresh = tempfile::Builder::new()
        .prefix(&format!(".{key}-"))
        .tempdir_in(root)
        .with_context(|| format!("create a build directory in {}", root.display()))?;
    build(fresh.path())?;
    for made in fs::read_dir(fresh.path()).context("list what was built")? {
        let made = made.context("list what was built")?;
        let target = place.join(made.file_name());
        fs::rename(made.path(), &target)
            .with_context(|| format!("move a built program to {}", target.display()))?;
    }
    anyhow::ensure!(
        wanted.is_file(),
        "the build of {key} succeeded but made no {file}"
    );
    Ok(wanted)
}

/// Removes entries of older sources: those whose key starts with `prefix` and that are a week old.
///
/// An entry that cannot be removed stays. It only costs space.
pub(crate) fn forget_old(prefix: &str, keep: &str) {
    let listing = directory().ok().and_then(|root| fs::read_dir(root).ok());
    for item in listing.into_iter().flatten().flatten() {
        let name = item.file_name().to_string_lossy().into_owned();
        let age = item
            .metadata()
            .and_then(|data| data.modified())
            .ok()
            .and_then(|time| time.elapsed().ok());
        if name.starts_with(prefix)
            && !name.starts_with(keep)
            && age.is_some_and(|age| age > FORGOTTEN_AFTER)
        {
            let _ = if item.path().is_dir() {
                fs::remove_dir_all(item.path())
            } else {
                fs::remove_file(item.path())
            };
        }
    }
}

fn lock(path: &Path, what: &str) -> Result<File> {
    let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
    if file.try_lock().is_err() {
        progress(&format!("another process is making {what}; waiting for it"));
        file.lock()
            .with_context(|| format!("lock {}", path.display()))?;
    }
    Ok(file)
}

/// Writes one line to the terminal, past the capture of the test harness: a wait of minutes must not be silent.
pub(super) fn progress(line: &str) {
    // If stderr is closed, there is no other place to report to.
    let _ = std::io::stderr().write_all(format!("lab: {line}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_build_leaves_no_entry() {
        let root = tempfile::tempdir().expect("temporary directory");
        let failed = entry_in(root.path(), "tool-1", "tool", |dir| {
            fs::write(dir.join("tool"), "half")?;
            anyhow::bail!("compiler says no")
        });
        assert!(failed.is_err());
        assert!(!root.path().join("tool-1/tool").exists());
    }

    #[test]
    fn two_builders_at_once_build_once() {
        let root = tempfile::tempdir().expect("temporary directory");
        let builds = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    entry_in(root.path(), "tool-1", "tool", |dir| {
                        builds.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                        Ok(fs::write(dir.join("tool"), "made")?)
                    })
                    .expect("builds or waits")
                });
            }
        });
        assert_eq!(builds.into_inner(), 1);
    }
}
