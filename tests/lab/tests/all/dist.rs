//! The files of a release.

use std::fs;

use agent_forge_lab::dist::{Args, make};
use anyhow::{Result, ensure};

/// The program is left out: a release build takes a quarter of an hour.
#[test]
fn a_release_has_equal_digests_in_every_folder_and_names_one_image() -> Result<()> {
    let image = "registry.example.com/agent-forge@sha256:0123";
    let (one, other) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let args = |out: &tempfile::TempDir| Args {
        out: out.path().join("dist"),
        image: Some(image.to_owned()),
        roots: "/dev/null".into(),
        program: None,
        no_program: true,
    };
    let made = make(&args(&one))?;
    assert_eq!(made, make(&args(&other))?);
    let manifests = made.lines().filter_map(|line| line.split("  ").nth(1));
    let manifests = manifests.filter(|name| name.starts_with("install"));
    for name in manifests {
        let text = fs::read_to_string(one.path().join("dist").join(name))?;
        ensure!(text.contains(&format!("image: {image}\n")), "{name}");
        ensure!(!text.contains("image: agent-forge"), "{name}");
    }
    let made_of = |end: &str| made.lines().filter(|line| line.ends_with(end)).count();
    assert_eq!((made_of(".yaml"), made_of(".tgz")), (8, 2), "{made}");
    // What it made before goes, and nothing else does.
    assert_eq!(make(&args(&one))?, made);
    let of_others = one.path().join("dist/notes.txt");
    fs::write(&of_others, "mine")?;
    let refused = make(&args(&one)).expect_err("a folder with files of others");
    ensure!(refused.to_string().contains("--out"), "{refused}");
    assert_eq!(fs::read_to_string(of_others)?, "mine");
    ensure!(one.path().join("dist/install.yaml").exists());
    Ok(())
}
