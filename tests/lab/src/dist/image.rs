//! The image of all architectures, as an OCI layout in one archive. buildah makes it of the Containerfile's stage `wrap`.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
    process::Command,
};

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::{VERSION, output, pack, program::Program, skipped};
use crate::tools::repository;

/// Makes the archive. Returns the digest by which a registry knows the image. `None` if there is no program or no buildah.
///
/// # Errors
/// buildah fails, or `roots` is missing.
pub(super) fn make(programs: &[Program], roots: &Path, out: &Path) -> Result<Option<String>> {
    if programs.is_empty() {
        return Ok(None);
    }
    if Command::new("buildah").arg("--version").output().is_err() {
        skipped("there is no buildah, so there is no image");
        return Ok(None);
    }
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name);
    let buildah = || {
        let mut command = Command::new("buildah");
        // Neither an overlay file system nor a user's images are needed.
        command
            .args(["--storage-driver", "vfs", "--root"])
            .arg(at("storage"));
        command.arg("--runroot").arg(at("run"));
        command
    };
    let list = format!("agent-forge:{VERSION}");
    output(buildah().args(["manifest", "create", &list]))?;
    for Program { arch, file } in programs {
        let tree = at(arch);
        root(&tree, file, roots)?;
        let tag = format!("agent-forge-{arch}:{VERSION}");
        output(
            buildah()
                .args(["bud", "--isolation", "chroot", "--timestamp", "0"])
                .args(["--target", "wrap", "--platform", &format!("linux/{arch}")])
                .args(["--tag", &tag, "--file"])
                .arg(repository().join("Containerfile"))
                .arg(&tree),
        )?;
        let source = format!("containers-storage:localhost/{tag}");
        output(buildah().args(["manifest", "add", &list, &source]))?;
    }
    let layout = at("layout");
    let target = format!("oci:{}", layout.display());
    output(buildah().args(["manifest", "push", "--all", &list, &target]))?;
    let index = fs::read_to_string(layout.join("index.json"))?;
    let index: Value = serde_json::from_str(&index)?;
    let digest = index["manifests"][0]["digest"].as_str();
    let digest = digest.context("the digest of the image")?.to_owned();
    let file = format!("agent-forge-{VERSION}-image.tar.gz");
    pack(&layout, &["."], &out.join(file))?;
    fs::write(out.join("image.digest"), format!("{digest}\n"))?;
    // Its storage has files that only their owner may remove.
    output(buildah().args(["rmi", "--all", "--force"]))?;
    Ok(Some(digest))
}

/// What the image has: the program under both its names, and the roots.
fn root(tree: &Path, program: &Path, roots: &Path) -> Result<()> {
    let certificates = tree.join("etc/ssl/certs");
    fs::create_dir_all(&certificates)?;
    let copy = |from: &Path, to: &Path, mode: u32| -> Result<()> {
        fs::copy(from, to).with_context(|| format!("copy {}", from.display()))?;
        Ok(fs::set_permissions(to, fs::Permissions::from_mode(mode))?)
    };
    copy(roots, &certificates.join("ca-certificates.crt"), 0o444)?;
    copy(program, &tree.join("agent-forge"), 0o555)?;
    Ok(symlink("agent-forge", tree.join("manager"))?)
}
