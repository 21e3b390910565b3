//! All metric families. `/metrics` registers them, `docs/reference/metrics.md` lists them, and the tests of alerts and
//! dashboards check queries against them. The families of the predecessor keep their exact names and labels.
//!
//! Cardinality: labels are pools, kinds, operations and reasons, never VMs or machines.

/// The type of a family.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Only rises. Begins at 0 when the process starts.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Distribution over these bounds.
    Histogram(&'static [f64]),
}

impl Kind {
    /// The name of the type in Prometheus.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

/// One family.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Name.
    pub name: &'static str,
    /// Type.
    pub kind: Kind,
    /// Labels, in the order in which values are given.
    pub labels: &'static [&'static str],
    /// One sentence.
    pub help: &'static str,
}

/// The pool's namespace once more. A Prometheus that enforces a namespace label (OpenShift's for user workloads) overwrites
/// `namespace` with that of the operator.
pub const POOL_NAMESPACE: &str = "pool_namespace";

impl Family {
    /// Whether each series belongs to one pool. Then it has [`POOL_NAMESPACE`], too.
    #[must_use]
    pub fn is_of_pools(&self) -> bool {
        self.labels.starts_with(POOL)
    }

    /// The labels of each series.
    pub fn shown_labels(&self) -> impl Iterator<Item = &'static str> {
        let more = self.is_of_pools().then_some(POOL_NAMESPACE);
        self.labels.iter().copied().chain(more)
    }
}

/// From a pass that only reads the cache to a pass that waits for a vCenter task or an ISO.
const PASS_SECONDS: &[f64] = &[
    0.005, 0.02, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0,
];
const POOL: &[&str] = &["namespace", "pool"];
const KIND: &[&str] = &["kind"];
/// From a fast inventory lookup to a call that hangs.
const CALL_SECONDS: &[f64] = &[0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 30.0];
/// From a quick power-on to a create on a busy storage array.
const TASK_SECONDS: &[f64] = &[0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];
/// The autoscaler gives up on a machine after 900 s, a MachineHealthCheck after 1200 s.
const MACHINE_SECONDS: &[f64] = &[
    1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1200.0, 1800.0, 3600.0,
];

const fn family(
    name: &'static str,
    kind: Kind,
    labels: &'static [&'static str],
    help: &'static str,
) -> Family {
    Family {
        name,
        kind,
        labels,
        help,
    }
}

macro_rules! catalog {
    ($($id:ident = $name:literal, $kind:expr, $labels:expr, $help:literal;)*) => {
        $(#[doc = $help] pub const $id: Family = family($name, $kind, $labels, $help);)*
        /// All families, in the order of the document.
        pub const ALL: &[Family] = &[$($id),*];
    };
}

catalog! {
    BUILD = "agent_forge_build_info", Kind::Gauge, &["version"], "Version of the operator; always 1.";
    LEADER = "agent_forge_leader", Kind::Gauge, &[], "1 in the process that acts, 0 in one that stands by.";
    BARRED = "agent_forge_barred_by_predecessor", Kind::Gauge, &[],
        "1 while this process does not act since the predecessor's Lease is somebody else's or out of reach, else 0.";
    CAPACITY = "agent_forge_pool_capacity", Kind::Gauge, &["namespace", "pool", "state"],
        "AgentMachines, Agents and VMs of a pool by state.";
    VM_CPU = "agent_forge_pool_vm_cpu_cores", Kind::Gauge, POOL, "vCPUs of each VM of the pool.";
    VM_MEMORY = "agent_forge_pool_vm_memory_bytes", Kind::Gauge, POOL, "Memory of each VM of the pool.";
    VM_DISK = "agent_forge_pool_vm_disk_bytes", Kind::Gauge, POOL, "System disk of each VM of the pool.";
    VMS = "agent_forge_pool_vms", Kind::Gauge, &["namespace", "pool", "phase"], "VsphereAgents of a pool by phase.";
    BUFFER = "agent_forge_pool_buffer_hosts", Kind::Gauge, &["namespace", "pool", "state"],
        "Hosts in the buffer of a pool: wanted, ready and making; absent when it has none.";
    BUFFER_CLASSES = "agent_forge_pool_buffer_class_hosts", Kind::Gauge, &["namespace", "pool", "class", "state"],
        "Hosts in the buffer of a pool by the class of spec.classes: wanted, ready and making; absent without classes.";
    FOREIGN = "agent_forge_pool_foreign_hosts", Kind::Gauge, &["namespace", "pool", "class", "free"],
        "Hosts of a pool's InfraEnv that are not VMs of agent-forge, by class and by whether the agent provider could bind them now.";
    NODES = "agent_forge_pool_nodes", Kind::Gauge, &["namespace", "pool", "class"],
        "Nodes of the hosted cluster by what they run on: ours, foreign, ignored and unknown; absent while that is not known.";
    NODE_FINDINGS = "agent_forge_pool_node_findings", Kind::Gauge, &["namespace", "pool", "kind"],
        "What does not fit between the Nodes of the hosted cluster and the VMs, by kind; absent while that is not known.";
    WAITING = "agent_forge_pool_waiting_on", Kind::Gauge, &["namespace", "pool", "reason"],
        "Machines for which nothing happens now, each counted once, by reason.";
    CONDITION = "agent_forge_pool_condition", Kind::Gauge, &["namespace", "pool", "condition", "status", "reason"],
        "The pool's conditions as they stand; always 1.";
    OLDEST_WAITING = "agent_forge_pool_oldest_waiting_timestamp_seconds", Kind::Gauge, POOL,
        "Since 1970: creation of the oldest AgentMachine that has no host, neither going nor paused; absent when there is none.";
    OLDEST_UNREADY = "agent_forge_pool_oldest_unready_timestamp_seconds", Kind::Gauge, POOL,
        "Since 1970: creation of the oldest AgentMachine that is not ready, neither going nor paused; absent when there is none.";
    OLDEST_DELETING = "agent_forge_pool_oldest_deleting_timestamp_seconds", Kind::Gauge, POOL,
        "Since 1970: when the VsphereAgent that is longest being deleted was asked to go; absent when there is none.";
    MACHINE_SECONDS_UNTIL = "agent_forge_machine_duration_seconds", Kind::Histogram(MACHINE_SECONDS),
        &["namespace", "pool", "until"],
        "From an AgentMachine's creation to each moment of its timeline; until=destroyed: from the deletion on.";
    VM_OPERATIONS = "agent_forge_vsphere_vm_operations_total", Kind::Counter, &["operation", "result"],
        "Operations on VMs in vSphere by result.";
    RECYCLED = "agent_forge_recycle_total", Kind::Counter, &["result"],
        "VMs on their way into another life, by result: back, claimed, or given_up.";
    REASSIGNED = "agent_forge_reassign_total", Kind::Counter, &["result"],
        "Hosts that changed their pool, by result: taken; of moves that a release before 1.0 began also lent (for the pool that had it), or lost.";
    RECYCLE_SECONDS = "agent_forge_recycle_duration_seconds", Kind::Histogram(MACHINE_SECONDS), &[],
        "From the record that a VM is to begin another life until its Agent is back.";
    ISO_OPERATIONS = "agent_forge_iso_operations_total", Kind::Counter, &["operation", "result"],
        "Operations on discovery ISOs by result.";
    ISO_TRANSFER = "agent_forge_iso_transfer_bytes", Kind::Gauge, &["datastore", "state"],
        "Bytes of the ISO transfer that runs to a datastore, done and total; nothing where none runs.";
    ISO_TRANSFER_SECONDS = "agent_forge_iso_transfer_duration_seconds", Kind::Histogram(MACHINE_SECONDS), &["datastore"],
        "From the beginning of an ISO's way to a datastore until it is complete there.";
    EFFECTS = "agent_forge_effects_total", Kind::Counter, &["effect", "outcome"],
        "Mutating calls to Kubernetes and vCenter by effect and outcome.";
    VSPHERE_REQUESTS = "agent_forge_vsphere_requests_total", Kind::Counter, &["server", "operation", "failure"],
        "Requests to vCenter by operation and failure (empty: success).";
    VSPHERE_REQUEST_SECONDS = "agent_forge_vsphere_request_duration_seconds", Kind::Histogram(CALL_SECONDS),
        &["server", "operation"], "Duration of vCenter requests.";
    VSPHERE_TASK_SECONDS = "agent_forge_vsphere_task_duration_seconds", Kind::Histogram(TASK_SECONDS),
        &["server", "task"], "From the submission of a vCenter task to its end, as the operator sees it.";
    VSPHERE_TASKS = "agent_forge_vsphere_tasks_in_flight", Kind::Gauge, &["server", "task"],
        "vCenter tasks that the operator waits for.";
    ORPHANS = "agent_forge_orphan_vms", Kind::Gauge, &["server"],
        "VMs that carry our mark and are nobody's, by vCenter.";
    VSPHERE_SESSIONS = "agent_forge_vsphere_sessions", Kind::Gauge, &["server"], "Open vCenter sessions.";
    ACTORS = "agent_forge_actors", Kind::Gauge, KIND, "Live actors by kind.";
    ACTOR_RESTARTS = "agent_forge_actor_restarts_total", Kind::Counter, KIND, "Actors started again after they died.";
    ACTOR_PASSES = "agent_forge_actor_passes_total", Kind::Counter, &["kind", "result"],
        "Passes of pool and VM actors, of the orphan scan and of the news.";
    ACTOR_PASS_SECONDS = "agent_forge_actor_pass_duration_seconds", Kind::Histogram(PASS_SECONDS), KIND,
        "Duration of passes, waiting for vCenter included.";
    ACTOR_WAKES = "agent_forge_actor_wakes_total", Kind::Counter, &["kind", "coalesced"],
        "Wakes of actors; coalesced=true: answered by a pass that was due anyway.";
    ACTOR_MAILBOX = "agent_forge_actor_mailbox_depth", Kind::Gauge, KIND,
        "Wakes and requests that were sent and not yet read, over all actors of a kind.";
    PHASES_DROPPED = "agent_forge_trace_phases_dropped_total", Kind::Counter, &[],
        "Phases of machines that never reached the collector and were given up.";
}

/// Metrics of the process, with the names that all Prometheus clients use.
pub const PROCESS: &[Family] = &[
    family(
        "process_start_time_seconds",
        Kind::Gauge,
        &[],
        "Since 1970: when the process began.",
    ),
    family(
        "process_cpu_seconds_total",
        Kind::Counter,
        &[],
        "CPU time that was used.",
    ),
    family(
        "process_resident_memory_bytes",
        Kind::Gauge,
        &[],
        "Memory that is resident.",
    ),
    family(
        "process_virtual_memory_bytes",
        Kind::Gauge,
        &[],
        "Memory that is mapped.",
    ),
    family(
        "process_open_fds",
        Kind::Gauge,
        &[],
        "Open files and sockets.",
    ),
    family(
        "process_max_fds",
        Kind::Gauge,
        &[],
        "How many there may be.",
    ),
    family("process_threads", Kind::Gauge, &[], "Threads."),
];

/// The content of `docs/reference/metrics.md`.
#[must_use]
pub fn document() -> String {
    let mut out = String::from(
        "# Metrics\n\nMade from `src/telemetry/metrics/catalog.rs`; `AGENT_FORGE_BLESS=1 cargo test -p agent-forge --lib \
         catalog` writes it again.\n\n`pool_namespace` repeats `namespace` of a pool's series: a Prometheus that enforces a \
         namespace label overwrites the latter.\n\n| Family | Type | Labels | Meaning |\n|---|---|---|---|\n",
    );
    for f in ALL.iter().chain(PROCESS) {
        let labels: Vec<String> = f.shown_labels().map(|l| format!("`{l}`")).collect();
        let (name, kind, help) = (f.name, f.kind.word(), f.help);
        out += &format!("| `{name}` | {kind} | {} | {help} |\n", labels.join(", "));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/metrics.md");
        if std::env::var_os("AGENT_FORGE_BLESS").is_some() {
            std::fs::write(path, document()).expect("written");
        }
        let found = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            found == document(),
            "docs/reference/metrics.md: run this test with AGENT_FORGE_BLESS=1"
        );
    }

    #[test]
    fn names_say_what_they_count() {
        for f in ALL {
            assert!(f.name.starts_with("agent_forge_"), "{}", f.name);
            assert_eq!(
                f.name.ends_with("_total"),
                f.kind == Kind::Counter,
                "{}",
                f.name
            );
            if matches!(f.kind, Kind::Histogram(_)) {
                assert!(f.name.ends_with("_seconds"), "{}", f.name);
            }
            // A machine, a VM or an Agent as a label would create one series for each of them.
            for label in ["vm", "machine", "agent", "name", "uid", "object", "url"] {
                assert!(!f.labels.contains(&label), "{} by {label}", f.name);
            }
        }
    }
}
