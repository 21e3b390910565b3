//! Runs the commands of the binary, as a person does.

use anyhow::{Context as _, Result};
use serde_json::Value;
use tokio::process::Command;

use crate::world::World;

/// What a command printed, and its exit code.
pub struct Shown {
    pub code: i32,
    pub text: String,
    pub errors: String,
}

impl Shown {
    /// All output, for a failure.
    pub fn said(&self) -> String {
        format!("{}{}", self.text, self.errors)
    }

    /// The output of `-o json`.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.text).with_context(|| self.said())
    }
}

/// Runs a command with the operator's kubeconfig, in all namespaces unless it names one.
pub async fn command(world: &World, args: &[&str]) -> Result<Shown> {
    let names = |arg: &&str| arg.starts_with("-n") || arg.starts_with("--namespace");
    let everywhere = !args.iter().any(names);
    let shown = Command::new(env!("CARGO_BIN_EXE_agent-forge"))
        .args([
            "--vsphere-allow-local-server=true",
            "--iso-allow-local-source=true",
        ])
        .args(world.scope())
        .args(args)
        .env_clear()
        .env("KUBECONFIG", &world.access.kubeconfig)
        .envs(everywhere.then_some(("AGENT_FORGE_ALL_NAMESPACES", "true")))
        .output()
        .await?;
    told(shown)
}

/// Runs a command with nothing but its arguments.
pub async fn as_a_person(args: &[&str]) -> Result<Shown> {
    let shown = Command::new(env!("CARGO_BIN_EXE_agent-forge"))
        .args(args)
        .env_clear()
        .output()
        .await?;
    told(shown)
}

fn told(shown: std::process::Output) -> Result<Shown> {
    Ok(Shown {
        code: shown.status.code().context("a code")?,
        text: String::from_utf8(shown.stdout)?,
        errors: String::from_utf8(shown.stderr)?,
    })
}
