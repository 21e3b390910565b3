//! What pool and VM passes work with: the ports, and the operator's settings as values.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use tokio::sync::watch;

use crate::{
    placement::Placer,
    ports::{
        clock::Clock,
        cluster::{Cluster, View},
        effect::EffectKind,
        instruments::Instruments,
        nodes::NodeAccess,
        sessions::Sessions,
        tracer::Tracer,
    },
};

/// References of recorded VMs that the last scan did not show, or showed as not powered on, by vCenter.
pub type SuspectVms = BTreeMap<String, BTreeSet<String>>;

/// What vCenters reported of VMs that are recorded as running, by vCenter and reference.
pub type NewsOfVms = BTreeMap<String, BTreeMap<String, VmNote>>;

/// A note that a VM changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VmNote {
    /// The number of the last change. A higher one is newer.
    pub number: u64,
    /// The VM runs, as on record.
    pub runs: bool,
}

/// Settings of the operator that decisions depend on.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long a powered-on VM may take to register its Agent (`--agent-discovery-timeout`).
    pub discovery_timeout: Duration,
    /// How often the operator scans each vCenter for orphan VMs (`--orphan-scan-interval`).
    pub orphan_scan_interval: Duration,
    /// Bytes that stay free on each datastore (`--min-free-datastore-gib`).
    pub datastore_floor: u64,
    /// The only namespaces, besides the pool's own, from which credentials may be read (`--secret-namespaces`). Empty: any
    /// namespace whose Secret allows the pool.
    pub secret_namespaces: Vec<String>,
}

/// The ports.
#[derive(Clone)]
pub struct Context {
    /// Cached reads.
    pub view: Arc<dyn View>,
    /// Live reads and writes.
    pub cluster: Arc<dyn Cluster>,
    /// vCenter sessions.
    pub sessions: Arc<dyn Sessions>,
    /// Resolves places one at a time per vCenter.
    pub placer: Arc<dyn Placer>,
    /// Nodes of hosted clusters.
    pub nodes: NodeAccess,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Counters.
    pub instruments: Arc<dyn Instruments>,
    /// Machines' traces.
    pub tracer: Arc<dyn Tracer>,
    /// Recorded VMs that the last scan of a vCenter did not show as recorded.
    pub doubts: watch::Receiver<SuspectVms>,
    /// Recorded VMs of which a vCenter reported a change.
    pub news: watch::Receiver<NewsOfVms>,
    /// Settings.
    pub settings: Settings,
}

impl Context {
    /// Counts a task that is now submitted to `server`, while the returned guard lives.
    #[must_use]
    pub fn in_flight(&self, server: &str, kind: EffectKind) -> InFlight<'_> {
        self.instruments.task_began(server, kind.name());
        InFlight {
            context: self,
            server: server.to_owned(),
            task: kind.name(),
            since: self.clock.monotonic(),
        }
    }
}

/// A task that counts while its actor waits for it. Every end of the wait drops it.
pub struct InFlight<'a> {
    context: &'a Context,
    server: String,
    task: &'static str,
    since: Duration,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let took = self.context.clock.monotonic().saturating_sub(self.since);
        let instruments = &self.context.instruments;
        instruments.task_ended(&self.server, self.task, took.as_secs_f64());
    }
}
