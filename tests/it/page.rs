//! The web page in a real browser. `tests/page` has the script; it needs Chromium, Node.js and npm.

use std::{env, fs, path::Path, process::Stdio};

use agent_forge_lab::tools::cache;
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tokio::process::Command;

use crate::world::{Setup, World};

/// How many machines the page shows.
const MACHINES: usize = 3;

/// Where this program is, of those on PATH.
fn program(names: &[&str]) -> Option<String> {
    let path = env::var_os("PATH")?;
    let mut all =
        env::split_paths(&path).flat_map(|folder| names.iter().map(move |name| folder.join(name)));
    let found = all.find(|file| file.is_file())?;
    found.to_str().map(str::to_owned)
}

/// The script with its packages, in a folder of its own. `None` with a line that says what is missing.
async fn script(folder: &Path) -> Result<Option<()>> {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page");
    for file in ["package.json", "package-lock.json", "check.mjs"] {
        fs::copy(from.join(file), folder.join(file))?;
    }
    let packages = Command::new("npm")
        .args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"])
        // Without a network it ends soon.
        .args(["--fetch-retries=1", "--fetch-timeout=20000"])
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .await?;
    if !packages.status.success() {
        let said = String::from_utf8_lossy(&packages.stderr);
        eprintln!("SKIPPED: npm cannot fetch the packages of tests/page: {said}");
        return Ok(None);
    }
    Ok(Some(()))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_in_a_browser_is_complete_readable_and_usable_by_keyboard() -> Result<()> {
    let browser = program(&["chromium", "chromium-browser", "google-chrome"]);
    let (Some(browser), Some(node), Some(_)) = (browser, program(&["node"]), program(&["npm"]))
    else {
        eprintln!(
            "SKIPPED: the page is looked at with Chromium, node and npm; one of them is not on PATH"
        );
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    if script(folder.path()).await?.is_none() {
        return Ok(());
    }
    let world = World::start(Setup::default()).await?;
    world.up(MACHINES).await?;
    let pictures = cache::directory()?.join("page");
    fs::create_dir_all(&pictures)?;
    let looked = Command::new(node)
        .args([
            "check.mjs",
            &world.operator()?.web_url(),
            &MACHINES.to_string(),
            &browser,
        ])
        .arg(&pictures)
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await?;
    let said = String::from_utf8_lossy(&looked.stderr);
    ensure!(looked.status.success(), "{said}");
    let found: Value = serde_json::from_slice(&looked.stdout).context("the script's answer")?;
    let empty = |key: &str| found[key].as_array().is_some_and(Vec::is_empty);
    ensure!(empty("violations") && empty("errors"), "{found}");
    ensure!(found["machines"]["serving"] == MACHINES, "{found}");
    let chip = found["machines"]["chip"].as_str().unwrap_or_default();
    ensure!(chip.ends_with(&MACHINES.to_string()), "{found}");
    ensure!(found["light"] != found["dark"], "{found}");
    let widths = found["widths"].as_object().context("widths")?;
    ensure!(widths.len() == 5, "{found}");
    for (name, width) in widths {
        ensure!(
            width[0].as_u64() <= width[1].as_u64(),
            "{name} scrolls sideways: {found}"
        );
    }
    Ok(())
}
