//! The pool: demand in, VsphereAgents out.
//!
//! Flow of a pass: gather a [`snapshot`] -> pure [`plan`] -> [`act`] -> pure [`status`] -> one write if it changed.

pub mod act;
pub mod agents_home;
mod begin;
pub mod claims;
pub mod custody;
pub mod index;
pub mod iso;
pub mod pass;
pub mod plan;
pub mod prepare;
pub mod snapshot;
pub mod status;
pub mod traced;
pub mod unanswered;
pub mod waits;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use agent_forge_crds::pool::VsphereAgentPoolStatus;
use futures::future::BoxFuture;

use self::iso::IsoCaches;
use crate::{
    actor::{
        batch::Batch,
        shell::{Verdict, Worker},
        written::Written,
    },
    context::Context,
    model::names::ObjectKey,
    ports::instruments::Instruments,
};

/// What a pool actor remembers between passes: a cache.
#[derive(Default)]
pub struct Memory {
    /// Since when (monotonic) each AgentMachine was seen waiting, by uid.
    pub waiting_since: BTreeMap<String, Duration>,
    /// Since when (monotonic) each VsphereAgent's VM is offered to another AgentMachine, by uid.
    pub spare_since: BTreeMap<String, Duration>,
    /// What was begun lately for AgentMachines, until the watch shows it.
    pub begun: begin::Begun,
    /// What failed and is tried again, for the traces of their machines.
    pub failures: traced::Failures,
    /// Our last status write, until the watch shows it.
    pub written: Option<Written<VsphereAgentPoolStatus>>,
    /// A status that waits to be written.
    pub batch: Batch,
    /// Passes in a row that found vCenter or its credentials in trouble.
    pub vsphere_failures: u32,
    /// Waits of AgentMachines, for their traces.
    pub watched: waits::Watched,
    /// AgentMachines that have no VsphereAgent yet, for their traces.
    pub unanswered: unanswered::Unanswered,
    /// What AgentMachines were told about their wait.
    pub said: waits::Said,
    /// When (monotonic) the Secrets on record were last seen to be held.
    pub custody_checked: Option<Duration>,
    /// The image service's certificates, as they were read last.
    pub iso_ca: Option<iso::ca::Known>,
    /// Digest-named ISO last announced in an Event.
    pub announced_iso: Option<String>,
    /// Reason of the failure last announced in an Event.
    pub announced_failure: Option<String>,
}

impl Memory {
    /// The status was written: what waited to be written went with it.
    pub fn wrote(&mut self, written: Written<VsphereAgentPoolStatus>) {
        self.written = Some(written);
        self.batch.clear();
    }
}

/// Worker of a pool actor.
pub struct PoolWorker {
    /// Ports.
    pub context: Context,
    /// ISO caches.
    pub isos: Arc<dyn IsoCaches>,
    /// The pool.
    pub key: ObjectKey,
}

impl Worker for PoolWorker {
    type Memory = Memory;

    fn kind(&self) -> &'static str {
        "pool"
    }

    fn key(&self) -> String {
        self.key.to_string()
    }

    fn instruments(&self) -> &dyn Instruments {
        self.context.instruments.as_ref()
    }

    fn debounce(&self) -> Duration {
        Duration::from_millis(100)
    }

    fn pass(&self, memory: Memory) -> BoxFuture<'static, (Memory, Verdict)> {
        Box::pin(pass::run(
            self.context.clone(),
            self.isos.clone(),
            self.key.clone(),
            memory,
        ))
    }
}
