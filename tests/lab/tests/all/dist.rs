//! The files of a release.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

use agent_forge_lab::dist::{Args, make};
use anyhow::{Context as _, Result, ensure};

/// In the place of a program, which a release build makes in a quarter of an hour.
const PROGRAM: &str = "#!/bin/sh
case $1 in
completion) echo \"completes in $2\" ;;
man) echo .TH > \"$2/agent-forge.1\" ;;
esac
";

fn args(folder: &Path, image: &str, program: &Path) -> Args {
    Args {
        out: folder.join("dist"),
        image: Some(image.to_owned()),
        roots: program.to_owned(),
        program: Some(program.to_owned()),
        no_program: false,
    }
}

/// The names of the files in an archive.
fn names(archive: &Path) -> Result<String> {
    let done = Command::new("tar").arg("-tzf").arg(archive).output()?;
    ensure!(done.status.success(), "{}", archive.display());
    Ok(String::from_utf8(done.stdout)?)
}

#[test]
fn a_release_has_equal_digests_in_every_folder_and_names_one_image() -> Result<()> {
    let (one, other) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let program = one.path().join("program");
    fs::write(&program, PROGRAM)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    let image = "registry.example.com/agent-forge@sha256:0123";
    let made = make(&args(one.path(), image, &program))?;
    assert_eq!(made, make(&args(other.path(), image, &program))?);
    let dist = one.path().join("dist");
    let manifests = made.lines().filter_map(|line| line.split("  ").nth(1));
    let manifests = manifests.filter(|name| name.starts_with("install"));
    for name in manifests {
        let text = fs::read_to_string(dist.join(name))?;
        ensure!(text.contains(&format!("image: {image}\n")), "{name}");
        ensure!(!text.contains("image: agent-forge"), "{name}");
    }
    let made_of = |end: &str| made.lines().filter(|line| line.ends_with(end)).count();
    assert_eq!((made_of(".yaml"), made_of(".tgz")), (10, 4), "{made}");
    let version = env!("CARGO_PKG_VERSION");
    let archive = format!("agent-forge-{version}-linux-amd64");
    let inside = names(&dist.join(format!("{archive}.tar.gz")))?;
    for name in [
        "agent-forge",
        "kubectl-agent_forge",
        "LICENSE",
        "completions/zsh",
        "man/agent-forge.1",
    ] {
        ensure!(
            inside.contains(&format!("{archive}/{name}\n")),
            "{name}: {inside}"
        );
    }
    let bundle = dist.join(format!("agent-forge-bundle-{version}.tgz"));
    let csv = format!("bundle/manifests/agent-forge.v{version}.clusterserviceversion.yaml");
    let shown = Command::new("tar")
        .arg("-xOzf")
        .arg(&bundle)
        .arg(&csv)
        .output()?;
    let csv = String::from_utf8(shown.stdout)?;
    let unnamed = format!("registry.example.com/agent-forge:{version}");
    ensure!(csv.contains(image) && !csv.contains(&unnamed), "{csv}");
    let pages = names(&dist.join(format!("agent-forge-docs-{version}.tgz")))?;
    ensure!(pages.contains("docs/getting-started.md\n"), "{pages}");
    let krew = fs::read_to_string(dist.join("krew.yaml"))?;
    let sum = made
        .lines()
        .find_map(|line| line.strip_suffix(&format!("  {archive}.tar.gz")));
    let sum = sum.context("the digest of the archive")?;
    ensure!(krew.contains(&format!("sha256: {sum}\n")), "{krew}");
    ensure!(
        made_of("provenance.intoto.jsonl") == 0,
        "of a program from elsewhere"
    );

    // What it made before goes, and nothing else does.
    assert_eq!(make(&args(one.path(), image, &program))?, made);
    let of_others = dist.join("notes.txt");
    fs::write(&of_others, "mine")?;
    let refused =
        make(&args(one.path(), image, &program)).expect_err("a folder with files of others");
    ensure!(refused.to_string().contains("--out"), "{refused}");
    assert_eq!(fs::read_to_string(of_others)?, "mine");
    ensure!(dist.join("install.yaml").exists());
    Ok(())
}

/// Without buildah there is no image: `make` says SKIPPED.
#[test]
fn manifests_and_chart_name_the_digest_of_the_image_that_is_made() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let program = folder.path().join("program");
    fs::write(&program, PROGRAM)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    let repository = "registry.example.com/agent-forge";
    make(&args(folder.path(), repository, &program))?;
    let dist = folder.path().join("dist");
    let digest = fs::read_to_string(dist.join("image.digest")).unwrap_or_default();
    let digest = digest.trim();
    let named = match digest {
        "" => repository.to_owned(),
        digest => format!("{repository}@{digest}"),
    };
    let manifest = fs::read_to_string(dist.join("install.yaml"))?;
    ensure!(
        manifest.contains(&format!("image: {named}\n")),
        "{manifest}"
    );
    let version = env!("CARGO_PKG_VERSION");
    let done = Command::new("tar")
        .arg("-xzOf")
        .arg(dist.join(format!("agent-forge-{version}.tgz")))
        .arg("agent-forge/values.yaml")
        .output()?;
    let values = String::from_utf8(done.stdout)?;
    ensure!(
        values.contains(&format!("  repository: {repository}\n")),
        "{values}"
    );
    ensure!(
        values.contains(&format!("  digest: \"{digest}\"\n")),
        "{values}"
    );
    if !digest.is_empty() {
        let layout = names(&dist.join(format!("agent-forge-{version}-image.tar.gz")))?;
        let blob = digest.replace(':', "/");
        ensure!(layout.contains(&format!("./blobs/{blob}\n")), "{layout}");
    }
    Ok(())
}
