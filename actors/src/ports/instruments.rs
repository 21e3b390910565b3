//! What the actors count. Names and labels are fixed where they are registered (`src/telemetry/metrics`).

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::domain::names::ObjectKey;

/// Every operation that [`Instruments::vm_operation`] counts.
pub const VM_OPERATIONS: [&str; 10] = [
    "create",
    "power_on",
    "power_off",
    "reset",
    "destroy",
    "destroy_orphan",
    "eject",
    "give_up",
    "renew",
    "replace",
];
/// How a VM's way into another life may end, for [`Instruments::recycled`].
pub const RECYCLED: [&str; 3] = ["back", "claimed", "given_up"];
/// How a host's way into another pool may end, for [`Instruments::reassigned`].
pub const REASSIGNED: [&str; 3] = ["taken", "lent", "lost"];
/// Every operation that [`Instruments::iso_operation`] counts.
pub const ISO_OPERATIONS: [&str; 4] = ["upload", "reuse", "compare", "prune"];

/// `agent_forge_pool_capacity` and the pool's hardware gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct PoolGauges {
    pub desired: i64,
    pub agent_machines: i64,
    pub waiting_agent_machines: i64,
    pub unready_agent_machines: i64,
    pub without_agent: i64,
    pub matching_agents: i64,
    pub bound_agents: i64,
    pub available_agents: i64,
    pub pending_owned_vms: i64,
    pub demand_deficit: i64,
    pub vm_cpu_cores: i64,
    pub vm_memory_bytes: i64,
    pub vm_disk_bytes: i64,
}

/// What the metrics show of a pool beside its counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolView {
    /// Creation of the oldest AgentMachine that has no host.
    pub oldest_waiting: Option<Timestamp>,
    /// Creation of the oldest AgentMachine that is not ready.
    pub oldest_unready: Option<Timestamp>,
    /// Time of the oldest deletion of a VsphereAgent that still runs.
    pub oldest_deleting: Option<Timestamp>,
    /// VsphereAgents by phase.
    pub phases: BTreeMap<String, i64>,
    /// Hosts of the buffer: `wanted`, `ready`, `making`. Empty if the pool has none.
    pub buffer: BTreeMap<String, i64>,
    /// The part of the buffer that each class of the pool has: class, state, and how many.
    pub buffer_classes: Vec<([String; 2], i64)>,
    /// Hosts of the InfraEnv that are not VMs of agent-forge: class, whether they are free, and how many.
    pub foreign: Vec<([&'static str; 2], i64)>,
    /// Nodes of the hosted cluster by what they run on: `ours`, `foreign`, `ignored`, `unknown`. Empty if that is not known.
    pub nodes: BTreeMap<String, i64>,
    /// What does not fit between Nodes and VMs, by kind. Empty if that is not known.
    pub node_findings: BTreeMap<String, i64>,
    /// What waits, by reason.
    pub waiting_on: BTreeMap<String, i64>,
    /// Conditions: type, status, reason.
    pub conditions: Vec<[String; 3]>,
}

/// Counters and gauges of the actors.
pub trait Instruments: Send + Sync {
    /// A pool's gauges.
    fn pool(&self, pool: &ObjectKey, gauges: &PoolGauges);
    /// Sets what the metrics show of a pool beside its counts. A series that is not in the view any more disappears.
    fn pool_view(&self, _pool: &ObjectKey, _view: &PoolView) {}
    /// A pool has work at that vCenter, and its ISO uses that cache. The series of vCenters and caches that no pool uses any
    /// more disappear.
    fn pool_uses(&self, _pool: &ObjectKey, _server: &str, _cache: &str) {}
    /// A pool is gone: its series disappear.
    fn drop_pool(&self, pool: &ObjectKey);
    /// One vSphere operation on a VM ended (`create`, `power_on`, ...; `success` or `error`).
    fn vm_operation(&self, operation: &'static str, success: bool);
    /// One ISO operation ended (`upload`, `reuse`, `prune`, ...).
    fn iso_operation(&self, operation: &'static str, success: bool);
    /// A machine of that pool reached a milestone of its timeline, that many seconds after its demand. Called once per
    /// machine and milestone.
    fn milestone(&self, _pool: &ObjectKey, _event: &str, _seconds: f64) {}
    /// A VM of that pool is proven absent, that many seconds after the request to delete it.
    fn destroyed(&self, _pool: &ObjectKey, _seconds: f64) {}
    /// The way of a VM into another life ended like that ([`RECYCLED`]), that many seconds after it was recorded.
    fn recycled(&self, _result: &'static str, _seconds: f64) {}
    /// The way of a host into another pool ended like that ([`REASSIGNED`]).
    fn reassigned(&self, _result: &'static str) {}
    /// A task was sent to that vCenter.
    fn task_began(&self, _server: &str, _task: &'static str) {}
    /// That task is over, or no actor waits for it any more, after that many seconds.
    fn task_ended(&self, _server: &str, _task: &'static str, _seconds: f64) {}
    /// Number of VMs of each vCenter that have our marker and no owner. The operator no longer scans vCenters that are not
    /// in the map.
    fn orphans(&self, _by_server: &BTreeMap<String, usize>) {}
    /// Number of open sessions at each vCenter.
    fn sessions(&self, _by_server: &BTreeMap<String, usize>) {}
    /// A pass of an actor of that kind is over.
    fn pass(&self, _kind: &'static str, _seconds: f64, _success: bool) {}
    /// An actor of that kind was woken. `coalesced`: the wake joined a pass that was due anyway.
    fn woken(&self, _kind: &'static str, _coalesced: bool) {}
    /// The number of queued wakes and requests for actors of that kind changed by that much.
    fn queued(&self, _kind: &'static str, _change: i64) {}
    /// Bytes done and in total of the transfer that an ISO cache runs; `None` when it runs none.
    fn iso_transfer(&self, _cache: &str, _progress: Option<(u64, u64)>) {}
    /// A transfer of an ISO to that cache's datastore ended, that many seconds after it began.
    fn iso_transferred(&self, _cache: &str, _seconds: f64) {}
    /// Number of live actors of a kind.
    fn actors(&self, kind: &'static str, count: i64);
    /// An actor of that kind was restarted after it died.
    fn restarted(&self, kind: &'static str);
}

/// Counts nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoInstruments;

impl Instruments for NoInstruments {
    fn pool(&self, _: &ObjectKey, _: &PoolGauges) {}
    fn drop_pool(&self, _: &ObjectKey) {}
    fn vm_operation(&self, _: &'static str, _: bool) {}
    fn iso_operation(&self, _: &'static str, _: bool) {}
    fn actors(&self, _: &'static str, _: i64) {}
    fn restarted(&self, _: &'static str) {}
}
