//! The VM actor: one VsphereAgent, one VM, from intent to proven absence.
//!
//! Flow of a pass:
//! 1. Gather the record and the cluster's facts.
//! 2. Decide the next step in the pure function [`step::next`], and carry it out.
//! 3. Repeat until the decision is to hold or nothing is left to do.
//! 4. Compute the status in the pure function [`status::render`], and write it if it changed.

pub mod act;
pub mod arrival;
pub mod boot_repair;
pub mod concern;
mod config;
mod decision;
pub mod drift;
mod drive;
pub mod known;
pub mod lost;
pub mod memory;
mod moments;
mod news;
pub mod observed;
pub mod ownership;
pub mod pass;
pub mod place;
pub mod power_policy;
mod publish;
mod record;
pub mod refused;
pub mod status;
pub mod step;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
pub mod traced;
mod write;

use std::time::Duration;

use futures::future::BoxFuture;

use crate::{
    context::Context,
    domain::names::ObjectKey,
    ports::instruments::Instruments,
    runtime::shell::{Verdict, Worker},
};

/// Worker of a VM actor.
pub struct VmWorker {
    /// Ports.
    pub context: Context,
    /// The VsphereAgent.
    pub key: ObjectKey,
}

impl Worker for VmWorker {
    type Memory = memory::Memory;

    fn kind(&self) -> &'static str {
        "vm"
    }

    fn key(&self) -> String {
        self.key.to_string()
    }

    fn instruments(&self) -> &dyn Instruments {
        self.context.instruments.as_ref()
    }

    fn debounce(&self) -> Duration {
        Duration::from_millis(50)
    }

    fn pass(&self, memory: memory::Memory) -> BoxFuture<'static, (memory::Memory, Verdict)> {
        Box::pin(pass::run(self.context.clone(), self.key.clone(), memory))
    }
}
