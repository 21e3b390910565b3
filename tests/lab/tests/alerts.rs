//! The alerts, judged by Prometheus itself: they parse, fire when they should, and only then.

use std::process::Command;

use agent_forge_lab::tools::{promtool, repository};
use anyhow::{Result, ensure};

fn run(arguments: &[&str]) -> Result<String> {
    let output = Command::new(promtool()?)
        .current_dir(repository().join("config/prometheus"))
        .args(arguments)
        .output()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    ensure!(output.status.success(), "promtool {arguments:?}:\n{text}");
    Ok(text)
}

#[test]
fn the_rules_are_rules() -> Result<()> {
    let told = run(&[
        "check",
        "rules",
        "--lint=all",
        "--lint-fatal",
        "agent-forge.rules.yaml",
    ])?;
    ensure!(told.contains("rules found"), "{told}");
    Ok(())
}

#[test]
fn each_alert_fires_when_it_should_and_only_then() -> Result<()> {
    run(&["test", "rules", "tests/alerts.yaml"]).map(drop)
}
