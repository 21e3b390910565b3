//! What the actors count. Names and labels are fixed where they are registered (`src/telemetry/metrics`).

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::domain::names::ObjectKey;

/// Every operation that [`Instruments::vm_operation`] is told of.
pub const VM_OPERATIONS: [&str; 7] = [
    "create",
    "power_on",
    "power_off",
    "destroy",
    "destroy_orphan",
    "eject",
    "give_up",
];
/// Every operation that [`Instruments::iso_operation`] is told of.
pub const ISO_OPERATIONS: [&str; 4] = ["upload", "reuse", "compare", "prune"];

/// `agent_forge_pool_capacity` and the pool's hardware gauges (predecessor.md §1).
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

/// What is said of a pool beside its counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolView {
    /// Creation of the oldest AgentMachine that has no host.
    pub oldest_waiting: Option<Timestamp>,
    /// Creation of the oldest AgentMachine that is not ready.
    pub oldest_unready: Option<Timestamp>,
    /// The first deletion of a VsphereAgent that is not over.
    pub oldest_deleting: Option<Timestamp>,
    /// VsphereAgents by phase.
    pub phases: BTreeMap<String, i64>,
    /// What waits, by reason.
    pub waiting_on: BTreeMap<String, i64>,
    /// Conditions: type, status, reason.
    pub conditions: Vec<[String; 3]>,
}

/// Counters and gauges of the actors.
pub trait Instruments: Send + Sync {
    /// A pool's gauges.
    fn pool(&self, pool: &ObjectKey, gauges: &PoolGauges);
    /// What is said of a pool beside its counts; what is not in it any more disappears.
    fn pool_view(&self, _pool: &ObjectKey, _view: &PoolView) {}
    /// A pool has work at that vCenter, and its ISO goes through that cache. The series of those that no pool uses any more
    /// disappear.
    fn pool_uses(&self, _pool: &ObjectKey, _server: &str, _cache: &str) {}
    /// A pool is gone: its series disappear.
    fn drop_pool(&self, pool: &ObjectKey);
    /// One vSphere operation on a VM ended (`create`, `power_on`, ...; `success` or `error`).
    fn vm_operation(&self, operation: &'static str, success: bool);
    /// One ISO operation ended (`upload`, `reuse`, `prune`, ...).
    fn iso_operation(&self, operation: &'static str, success: bool);
    /// A machine of that pool reached a moment of its timeline, that many seconds after its demand; once per machine.
    fn milestone(&self, _pool: &ObjectKey, _event: &str, _seconds: f64) {}
    /// A VM of that pool is proven absent, that many seconds after its deletion was asked for.
    fn destroyed(&self, _pool: &ObjectKey, _seconds: f64) {}
    /// A task was sent to that vCenter.
    fn task_began(&self, _server: &str, _task: &'static str) {}
    /// That task is over, or nobody waits for it any more, that many seconds later.
    fn task_ended(&self, _server: &str, _task: &'static str, _seconds: f64) {}
    /// So many VMs of each of these vCenters carry our mark and are nobody's; others are not scanned any more.
    fn orphans(&self, _by_server: &BTreeMap<String, usize>) {}
    /// So many sessions are open at each of these vCenters.
    fn sessions(&self, _by_server: &BTreeMap<String, usize>) {}
    /// A pass of an actor of that kind is over.
    fn pass(&self, _kind: &'static str, _seconds: f64, _success: bool) {}
    /// An actor of that kind was woken; coalesced: for a pass that was due anyway.
    fn woken(&self, _kind: &'static str, _coalesced: bool) {}
    /// So many more wakes and requests are on their way to actors of that kind.
    fn queued(&self, _kind: &'static str, _change: i64) {}
    /// Bytes done and in total of the transfer that an ISO cache runs; `None` when it runs none.
    fn iso_transfer(&self, _cache: &str, _progress: Option<(u64, u64)>) {}
    /// A transfer of an ISO to that cache's datastore ended, that many seconds after it began.
    fn iso_transferred(&self, _cache: &str, _seconds: f64) {}
    /// Number of live actors of a kind.
    fn actors(&self, kind: &'static str, count: i64);
    /// An actor of that kind was started anew after it died.
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
