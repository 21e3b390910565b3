//! The pool actor: it reads the demand for hosts, and creates and deletes VsphereAgents.
//!
//! Flow of a pass: [`observed`] -> pure [`plan`] -> [`act`] -> pure [`status`] -> [`publish`] if the status changed -> pure
//! [`mod@report`].

pub mod act;
pub mod agent_debounce;
mod dry_run;
pub mod index;
pub mod lending;
pub mod observed;
pub mod pass;
pub mod plan;
mod provision;
pub mod publish;
pub mod report;
pub mod secret_finalizers;
pub mod status;
pub mod traced;
pub mod vcenter;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use agent_forge_crds::{external::agent_machine::AgentMachine, pool::VsphereAgentPoolStatus};
use futures::future::BoxFuture;
use kube::ResourceExt;

use crate::{
    context::Context,
    domain::{
        names::ObjectKey,
        upstream::{self, WaitingSign},
    },
    iso::{
        content,
        of_pool::{self, IsoCaches},
    },
    ports::instruments::Instruments,
    runtime::{
        shell::{Verdict, Worker},
        status_writer::StatusWriter,
    },
};

/// What a pool actor remembers between passes: a cache.
#[derive(Default)]
pub struct Memory {
    /// Since when (monotonic) each AgentMachine was seen waiting, by uid.
    pub waiting_since: BTreeMap<String, Duration>,
    /// Since when (monotonic) each VsphereAgent's VM is offered to another AgentMachine, by uid.
    pub spare_since: BTreeMap<String, Duration>,
    /// Since when (monotonic) an Agent is reserved for a VsphereAgent that does not exist, by uid of the host's own one.
    pub reserved_since: BTreeMap<String, Duration>,
    /// The writes for AgentMachines that the watch does not show yet.
    pub pending: provision::PendingWrites,
    /// Agents that are to be prepared once they no longer change.
    pub settling: agent_debounce::Settling,
    /// What failed and is tried again, for the traces of their machines.
    pub failures: traced::Failures,
    /// Writes the status.
    pub status: StatusWriter<VsphereAgentPoolStatus>,
    /// Passes in a row in which vCenter or its credentials failed.
    pub vsphere_failures: u32,
    /// What was reported.
    pub told: report::Told,
    /// When (monotonic) the recorded Secrets were last confirmed as held.
    pub secrets_checked: Option<Duration>,
    /// The image service's certificates, as they were read last.
    pub iso_ca: Option<of_pool::ca::Known>,
    /// The InfraEnv, if the API server has a newer one than the watch shows.
    pub infra_env: of_pool::fresh::Known,
    /// What its present ISO has in it, as it was first seen with that ISO.
    pub image: Option<content::Seen>,
    /// Something stopped all work on the pool in the last pass: a dry run, or a pause.
    pub stopped: bool,
}

impl Memory {
    /// Starts and stops the debounce clocks of AgentMachines.
    fn note_waiting(&mut self, agent_machines: &[Arc<AgentMachine>], now: Duration) {
        let waits = |am: &&Arc<AgentMachine>| {
            upstream::waiting_sign(am) != WaitingSign::Other
                && am.agent_ref().is_none()
                && am.has_provider_finalizer()
        };
        let waiting = agent_machines.iter().filter(waits);
        let uids: BTreeSet<String> = waiting.filter_map(|am| am.uid()).collect();
        keep_clocks(&mut self.waiting_since, &uids, now);
    }
}

/// Starts the clocks of what is new among `uids`, and stops the others.
fn keep_clocks(clocks: &mut BTreeMap<String, Duration>, uids: &BTreeSet<String>, now: Duration) {
    clocks.retain(|uid, _| uids.contains(uid));
    for uid in uids {
        clocks.entry(uid.clone()).or_insert(now);
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
