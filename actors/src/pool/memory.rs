//! What a pool actor remembers between passes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use agent_forge_crds::{external::agent_machine::AgentMachine, pool::VsphereAgentPoolStatus};
use kube::ResourceExt;

use super::{
    agent_debounce::Settling, provision::PendingWrites, report::Told, traced::Failures,
    vcenter::IsoMemory,
};
use crate::{
    domain::upstream::{self, WaitingSign},
    nodes::follow::Follower,
    runtime::status_writer::StatusWriter,
};

/// What a pool actor remembers between passes: a cache.
#[derive(Default)]
pub struct Memory {
    /// Since when (monotonic) each AgentMachine was seen waiting, by uid.
    pub waiting_since: BTreeMap<String, Duration>,
    /// Since when (monotonic) each VsphereAgent's VM is offered to another AgentMachine, by uid.
    pub spare_since: BTreeMap<String, Duration>,
    /// The writes for AgentMachines that the watch does not show yet.
    pub pending: PendingWrites,
    /// Agents that are to be prepared once they no longer change.
    pub settling: Settling,
    /// What failed and is tried again, for the traces of their machines.
    pub failures: Failures,
    /// Writes the status.
    pub status: StatusWriter<VsphereAgentPoolStatus>,
    /// A status was rendered since the actor began.
    pub published: bool,
    /// Passes in a row in which vCenter or its credentials failed.
    pub vsphere_failures: u32,
    /// What was reported.
    pub told: Told,
    /// When (monotonic) the recorded Secrets were last confirmed as held.
    pub secrets_checked: Option<Duration>,
    /// What its ISO is made from, as it was seen last.
    pub iso: IsoMemory,
    /// Follows the Nodes of its hosted cluster, if it asks for that.
    pub nodes: Follower,
    /// Something stopped all work on the pool in the last pass: a dry run, or a pause.
    pub stopped: bool,
}

impl Memory {
    /// Starts and stops the debounce clocks of AgentMachines.
    pub(super) fn note_waiting(&mut self, agent_machines: &[Arc<AgentMachine>], now: Duration) {
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
pub(super) fn keep_clocks(
    clocks: &mut BTreeMap<String, Duration>,
    uids: &BTreeSet<String>,
    now: Duration,
) {
    clocks.retain(|uid, _| uids.contains(uid));
    for uid in uids {
        clocks.entry(uid.clone()).or_insert(now);
    }
}
