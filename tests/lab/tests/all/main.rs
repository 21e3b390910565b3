//! The tests of the lab, in one program. Most of them share one API server.

use agent_forge_lab::{Lab, LabOptions};
use anyhow::Result;
use tokio::sync::OnceCell;

mod alerts;
mod charts;
mod crds;
mod deployment;
mod dist;
mod parts;

/// The API server that tests share which need none of their own.
async fn lab() -> Result<&'static Lab> {
    static LAB: OnceCell<Lab> = OnceCell::const_new();
    LAB.get_or_try_init(|| Lab::start(LabOptions::default()))
        .await
}
