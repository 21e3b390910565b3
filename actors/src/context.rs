//! What pool and VM passes work with: the ports, and the operator's settings as values.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use crate::{
    orphans::Doubts,
    placement::Placer,
    ports::{
        clock::Clock,
        cluster::{Cluster, View},
        instruments::Instruments,
        sessions::Sessions,
        tracer::Tracer,
    },
};

/// Settings of the operator that decisions depend on.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long a powered-on VM may take to register its Agent (`--agent-discovery-timeout`).
    pub discovery_timeout: Duration,
    /// How often each vCenter is scanned for VMs that are nobody's (`--orphan-scan-interval`).
    pub orphan_scan_interval: Duration,
    /// Namespaces beside the pool's own from which credentials may be read (`--secret-namespaces`).
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
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Counters.
    pub instruments: Arc<dyn Instruments>,
    /// Machines' traces.
    pub tracer: Arc<dyn Tracer>,
    /// What the last scan of a vCenter did not show as it is recorded.
    pub doubts: watch::Receiver<Doubts>,
    /// Settings.
    pub settings: Settings,
}
