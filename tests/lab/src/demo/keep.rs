//! What `--keep` prints: the address of the web page, and commands to try.

use std::{env, path::Path};

use anyhow::{Context as _, Result};

use super::stage::{NAMESPACE, POOL, Stage};

/// Prints them. Each command works as it is printed, as long as the demo runs.
pub(super) async fn tell(stage: &Stage) -> Result<()> {
    let seen = stage.look().await?;
    let machine = seen.children.first();
    let machine = machine.and_then(|c| c.metadata.name.as_deref());
    let program = shown(stage.program())?;
    let kubeconfig = stage.lab.kubeconfig_admin_path().display();
    // Without a value, such a flag would take the command's name for its value.
    let allowed =
        "--vsphere-allow-http=true --vsphere-allow-local-server=true --iso-allow-local-source=true";
    let start = format!("{program} --kubeconfig {kubeconfig} {allowed}");
    let voice = &stage.voice;
    voice.say("everything is left running (--keep)");
    voice.out(&format!(
        "\n  Open the page:  {}/\n\n  Commands to try:\n",
        stage.operator.web_url()
    ));
    let explain = machine.map(|name| format!("explain -n {NAMESPACE} VsphereAgent/{name}"));
    let plan = format!("plan -n {NAMESPACE} {POOL}");
    for command in explain.into_iter().chain(["top -A".to_owned(), plan]) {
        voice.out(&format!("    {start} {command}\n"));
    }
    voice.out("\n");
    voice.say("Ctrl-C stops everything");
    Ok(())
}

/// The program's path, from here if it is below.
fn shown(program: &Path) -> Result<String> {
    let here = env::current_dir().context("find the present directory")?;
    let short = program.strip_prefix(&here).unwrap_or(program);
    Ok(short.display().to_string())
}
