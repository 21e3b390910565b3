//! Metrics in one registry. The families are listed in [`catalog`]. The series of a deleted pool disappear.

pub mod catalog;
#[cfg(test)]
mod queries;
mod uses;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use agent_forge_actors::{
    domain::names::ObjectKey,
    ports::{
        effect::EffectKind,
        instruments::{
            ISO_OPERATIONS, Instruments, PoolGauges, PoolView, REASSIGNED, RECYCLED, VM_OPERATIONS,
        },
    },
    supervisor::routing::ActorKey,
};
use prometheus::{
    Encoder, GaugeVec, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts,
    Registry, TextEncoder,
    proto::{LabelPair, MetricFamily},
};

use self::{
    catalog::{Family, Kind},
    uses::{Uses, drop_series},
};
use crate::vsphere::{RequestObserver, RequestRecord};

/// All families.
pub struct Metrics {
    registry: Registry,
    leader: IntGaugeVec,
    barred: IntGaugeVec,
    vm_operations: IntCounterVec,
    recycled: IntCounterVec,
    reassigned: IntCounterVec,
    recycle_seconds: HistogramVec,
    iso_operations: IntCounterVec,
    iso_transfer: IntGaugeVec,
    iso_transfer_seconds: HistogramVec,
    capacity: IntGaugeVec,
    vm_cpu_cores: IntGaugeVec,
    vm_memory_bytes: IntGaugeVec,
    vm_disk_bytes: IntGaugeVec,
    vms: Changing,
    buffer: Changing,
    buffer_classes: Changing,
    foreign: Changing,
    nodes: Changing,
    node_findings: Changing,
    waiting: Changing,
    conditions: Changing,
    oldest_waiting: GaugeVec,
    oldest_unready: GaugeVec,
    oldest_deleting: GaugeVec,
    machine_seconds: HistogramVec,
    effects: IntCounterVec,
    vsphere_requests: IntCounterVec,
    vsphere_seconds: HistogramVec,
    task_seconds: HistogramVec,
    tasks: IntGaugeVec,
    orphans: ByServer,
    sessions: ByServer,
    actors: IntGaugeVec,
    actor_restarts: IntCounterVec,
    passes: IntCounterVec,
    pass_seconds: HistogramVec,
    wakes: IntCounterVec,
    mailbox: IntGaugeVec,
    phases_dropped: IntCounterVec,
    uses: Uses,
    /// Pools whose series were dropped. Later events of such a pool do not create series again, for example when one of
    /// its VMs is destroyed after the pool.
    dropped: Mutex<BTreeSet<ObjectKey>>,
}

const STATES: [&str; 10] = [
    "desired",
    "agent_machines",
    "waiting_agent_machines",
    "unready_agent_machines",
    "without_agent",
    "matching_agents",
    "bound_agents",
    "available_agents",
    "pending_owned_vms",
    "demand_deficit",
];

/// A machine's milestones: as events, and as values of the label `until`.
const MOMENTS: [(&str, &str); 10] = [
    ("Accepted", "accepted"),
    ("ISOReady", "iso_ready"),
    ("Placed", "placed"),
    ("Created", "created"),
    ("PoweredOn", "powered_on"),
    ("Discovered", "discovered"),
    ("Prepared", "prepared"),
    ("Bound", "bound"),
    ("Installed", "installed"),
    (DESTROYED, "destroyed"),
];
/// Outcomes of an effect.
const OUTCOMES: [&str; 3] = ["done", "refused", "unknown"];
const DESTROYED: &str = "Destroyed";

/// A pool's gauge whose other labels change. Series that are no longer set disappear.
struct Changing {
    family: IntGaugeVec,
    shown: Mutex<BTreeMap<ObjectKey, BTreeSet<Vec<String>>>>,
}

impl Changing {
    fn set(&self, pool: &ObjectKey, rows: BTreeMap<Vec<String>, i64>) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let all = |rest: &[String]| {
            let labels = [&pool.namespace, &pool.name].into_iter().chain(rest);
            labels.cloned().collect::<Vec<String>>()
        };
        for old in shown.remove(pool).unwrap_or_default() {
            if !rows.contains_key(&old) {
                let _ = self.family.remove_label_values(&all(&old));
            }
        }
        for (rest, value) in &rows {
            self.family.with_label_values(&all(rest)).set(*value);
        }
        if !rows.is_empty() {
            shown.insert(pool.clone(), rows.into_keys().collect());
        }
    }
}

/// A gauge with one series for each vCenter. Series that are no longer set disappear.
struct ByServer {
    family: IntGaugeVec,
    shown: Mutex<BTreeSet<String>>,
}

impl ByServer {
    fn set(&self, by_server: &BTreeMap<String, usize>) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        for old in shown.iter().filter(|old| !by_server.contains_key(*old)) {
            let _ = self.family.remove_label_values(&[old]);
        }
        for (server, count) in by_server {
            let count = i64::try_from(*count).unwrap_or(i64::MAX);
            self.family.with_label_values(&[server]).set(count);
        }
        *shown = by_server.keys().cloned().collect();
    }
}

/// Adds [`catalog::POOL_NAMESPACE`] to each series of a pool.
fn name_namespace(family: &mut MetricFamily) {
    let of_pools = catalog::ALL.iter().filter(|known| known.is_of_pools());
    if !of_pools.clone().any(|known| known.name == family.name()) {
        return;
    }
    for series in family.mut_metric() {
        let mut labels = series.take_label();
        let namespace = labels.iter().find(|label| label.name() == "namespace");
        if let Some(namespace) = namespace {
            let mut again = LabelPair::default();
            again.set_name(catalog::POOL_NAMESPACE.to_owned());
            again.set_value(namespace.value().to_owned());
            labels.push(again);
        }
        series.set_label(labels);
    }
}

struct Register<'a>(&'a Registry);

impl Register<'_> {
    fn opts(f: &Family) -> Opts {
        Opts::new(f.name, f.help)
    }

    fn counter(&self, f: &Family) -> prometheus::Result<IntCounterVec> {
        let made = IntCounterVec::new(Self::opts(f), f.labels)?;
        self.0.register(Box::new(made.clone()))?;
        Ok(made)
    }

    fn gauge(&self, f: &Family) -> prometheus::Result<IntGaugeVec> {
        let made = IntGaugeVec::new(Self::opts(f), f.labels)?;
        self.0.register(Box::new(made.clone()))?;
        Ok(made)
    }

    fn seconds(&self, f: &Family) -> prometheus::Result<GaugeVec> {
        let made = GaugeVec::new(Self::opts(f), f.labels)?;
        self.0.register(Box::new(made.clone()))?;
        Ok(made)
    }

    fn histogram(&self, f: &Family) -> prometheus::Result<HistogramVec> {
        let Kind::Histogram(bounds) = f.kind else {
            return Err(prometheus::Error::Msg(format!(
                "{} is no histogram",
                f.name
            )));
        };
        let options = HistogramOpts::new(f.name, f.help).buckets(bounds.to_vec());
        let made = HistogramVec::new(options, f.labels)?;
        self.0.register(Box::new(made.clone()))?;
        Ok(made)
    }

    fn by_server(&self, f: &Family) -> prometheus::Result<ByServer> {
        Ok(ByServer {
            family: self.gauge(f)?,
            shown: Mutex::default(),
        })
    }

    fn changing(&self, f: &Family) -> prometheus::Result<Changing> {
        Ok(Changing {
            family: self.gauge(f)?,
            shown: Mutex::default(),
        })
    }
}

impl Metrics {
    /// Registers all families.
    ///
    /// # Errors
    /// Two families with the same name: a defect in the catalog.
    pub fn new() -> prometheus::Result<Self> {
        let registry = Registry::new();
        let r = Register(&registry);
        let build = r.gauge(&catalog::BUILD)?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        // It reads /proc.
        #[cfg(target_os = "linux")]
        registry.register(Box::new(
            prometheus::process_collector::ProcessCollector::for_self(),
        ))?;
        let made = Self {
            leader: r.gauge(&catalog::LEADER)?,
            barred: r.gauge(&catalog::BARRED)?,
            vm_operations: r.counter(&catalog::VM_OPERATIONS)?,
            recycled: r.counter(&catalog::RECYCLED)?,
            reassigned: r.counter(&catalog::REASSIGNED)?,
            recycle_seconds: r.histogram(&catalog::RECYCLE_SECONDS)?,
            iso_operations: r.counter(&catalog::ISO_OPERATIONS)?,
            iso_transfer: r.gauge(&catalog::ISO_TRANSFER)?,
            iso_transfer_seconds: r.histogram(&catalog::ISO_TRANSFER_SECONDS)?,
            capacity: r.gauge(&catalog::CAPACITY)?,
            vm_cpu_cores: r.gauge(&catalog::VM_CPU)?,
            vm_memory_bytes: r.gauge(&catalog::VM_MEMORY)?,
            vm_disk_bytes: r.gauge(&catalog::VM_DISK)?,
            vms: r.changing(&catalog::VMS)?,
            buffer: r.changing(&catalog::BUFFER)?,
            buffer_classes: r.changing(&catalog::BUFFER_CLASSES)?,
            foreign: r.changing(&catalog::FOREIGN)?,
            nodes: r.changing(&catalog::NODES)?,
            node_findings: r.changing(&catalog::NODE_FINDINGS)?,
            waiting: r.changing(&catalog::WAITING)?,
            conditions: r.changing(&catalog::CONDITION)?,
            oldest_waiting: r.seconds(&catalog::OLDEST_WAITING)?,
            oldest_unready: r.seconds(&catalog::OLDEST_UNREADY)?,
            oldest_deleting: r.seconds(&catalog::OLDEST_DELETING)?,
            machine_seconds: r.histogram(&catalog::MACHINE_SECONDS_UNTIL)?,
            effects: r.counter(&catalog::EFFECTS)?,
            vsphere_requests: r.counter(&catalog::VSPHERE_REQUESTS)?,
            vsphere_seconds: r.histogram(&catalog::VSPHERE_REQUEST_SECONDS)?,
            task_seconds: r.histogram(&catalog::VSPHERE_TASK_SECONDS)?,
            tasks: r.gauge(&catalog::VSPHERE_TASKS)?,
            orphans: r.by_server(&catalog::ORPHANS)?,
            sessions: r.by_server(&catalog::VSPHERE_SESSIONS)?,
            actors: r.gauge(&catalog::ACTORS)?,
            actor_restarts: r.counter(&catalog::ACTOR_RESTARTS)?,
            passes: r.counter(&catalog::ACTOR_PASSES)?,
            pass_seconds: r.histogram(&catalog::ACTOR_PASS_SECONDS)?,
            wakes: r.counter(&catalog::ACTOR_WAKES)?,
            mailbox: r.gauge(&catalog::ACTOR_MAILBOX)?,
            phases_dropped: r.counter(&catalog::PHASES_DROPPED)?,
            uses: Uses::default(),
            dropped: Mutex::default(),
            registry,
        };
        made.preset();
        Ok(made)
    }

    /// Creates the counters with the value 0. A counter that appears with its first event shows no increase in
    /// Prometheus.
    fn preset(&self) {
        let _ = self.phases_dropped();
        let results = [true, false].map(result);
        for kind in ActorKey::KINDS {
            self.actor_restarts.with_label_values(&[kind]);
            for result in results {
                self.passes.with_label_values(&[kind, result]);
            }
        }
        for result in results {
            for operation in VM_OPERATIONS {
                self.vm_operations.with_label_values(&[operation, result]);
            }
            for operation in ISO_OPERATIONS {
                self.iso_operations.with_label_values(&[operation, result]);
            }
        }
        for result in RECYCLED {
            self.recycled.with_label_values(&[result]);
        }
        for result in REASSIGNED {
            self.reassigned.with_label_values(&[result]);
        }
        for effect in EffectKind::ALL {
            for outcome in OUTCOMES {
                self.effects.with_label_values(&[effect.name(), outcome]);
            }
        }
    }

    /// Sets whether this process acts or stands by.
    pub fn leads(&self, leads: bool) {
        let none: [&str; 0] = [];
        self.leader.with_label_values(&none).set(i64::from(leads));
    }

    /// Sets whether the predecessor's Lease keeps this process from acting.
    pub fn barred(&self, barred: bool) {
        let none: [&str; 0] = [];
        self.barred.with_label_values(&none).set(i64::from(barred));
    }

    /// Counts phases of machines that never reached the collector.
    #[must_use]
    pub fn phases_dropped(&self) -> IntCounter {
        let none: [&str; 0] = [];
        self.phases_dropped.with_label_values(&none)
    }

    /// Counts one effect with its outcome.
    pub fn effect(&self, effect: &str, outcome: &str) {
        self.effects.with_label_values(&[effect, outcome]).inc();
    }

    /// Prometheus text format.
    ///
    /// # Errors
    /// A family that cannot be encoded: a defect.
    pub fn text(&self) -> prometheus::Result<Vec<u8>> {
        let mut all = self.registry.gather();
        for family in &mut all {
            name_namespace(family);
        }
        let mut out = Vec::new();
        TextEncoder::new().encode(&all, &mut out)?;
        Ok(out)
    }

    fn sizes(&self) -> [&IntGaugeVec; 3] {
        [
            &self.vm_cpu_cores,
            &self.vm_memory_bytes,
            &self.vm_disk_bytes,
        ]
    }

    fn oldest(&self) -> [&GaugeVec; 3] {
        [
            &self.oldest_waiting,
            &self.oldest_unready,
            &self.oldest_deleting,
        ]
    }

    fn changing(&self) -> [&Changing; 8] {
        [
            &self.vms,
            &self.buffer,
            &self.buffer_classes,
            &self.foreign,
            &self.nodes,
            &self.node_findings,
            &self.waiting,
            &self.conditions,
        ]
    }

    fn dropped(&self) -> MutexGuard<'_, BTreeSet<ObjectKey>> {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the series of these vCenters and ISO caches.
    fn retire(&self, unused: &[String]) {
        for name in unused {
            drop_series(&self.vsphere_requests, "server", name);
            drop_series(&self.vsphere_seconds, "server", name);
            drop_series(&self.task_seconds, "server", name);
            drop_series(&self.tasks, "server", name);
            drop_series(&self.iso_transfer, "datastore", name);
            drop_series(&self.iso_transfer_seconds, "datastore", name);
        }
    }
}

fn result(success: bool) -> &'static str {
    if success { "success" } else { "error" }
}

impl Instruments for Metrics {
    fn pool(&self, pool: &ObjectKey, g: &PoolGauges) {
        self.dropped().remove(pool);
        let labels = [pool.namespace.as_str(), pool.name.as_str()];
        let values = [
            g.desired,
            g.agent_machines,
            g.waiting_agent_machines,
            g.unready_agent_machines,
            g.without_agent,
            g.matching_agents,
            g.bound_agents,
            g.available_agents,
            g.pending_owned_vms,
            g.demand_deficit,
        ];
        for (state, value) in STATES.iter().zip(values) {
            self.capacity
                .with_label_values(&[labels[0], labels[1], state])
                .set(value);
        }
        let sizes = [g.vm_cpu_cores, g.vm_memory_bytes, g.vm_disk_bytes];
        for (family, value) in self.sizes().into_iter().zip(sizes) {
            family.with_label_values(&labels).set(value);
        }
    }

    fn pool_view(&self, pool: &ObjectKey, view: &PoolView) {
        let labels = [pool.namespace.as_str(), pool.name.as_str()];
        let oldest = [
            view.oldest_waiting,
            view.oldest_unready,
            view.oldest_deleting,
        ];
        for (family, since) in self.oldest().into_iter().zip(oldest) {
            match since {
                Some(since) => family
                    .with_label_values(&labels)
                    .set(since.as_duration().as_secs_f64()),
                None => drop(family.remove_label_values(&labels)),
            }
        }
        let single = |rows: &BTreeMap<String, i64>| {
            rows.iter().map(|(k, v)| (vec![k.clone()], *v)).collect()
        };
        self.vms.set(pool, single(&view.phases));
        self.buffer.set(pool, single(&view.buffer));
        let classes = view.buffer_classes.iter();
        let classes = classes.map(|(labels, n)| (labels.to_vec(), *n));
        self.buffer_classes.set(pool, classes.collect());
        let foreign = view.foreign.iter();
        let foreign = foreign.map(|(labels, n)| (labels.map(str::to_owned).to_vec(), *n));
        self.foreign.set(pool, foreign.collect());
        self.nodes.set(pool, single(&view.nodes));
        self.node_findings.set(pool, single(&view.node_findings));
        self.waiting.set(pool, single(&view.waiting_on));
        let conditions = view.conditions.iter();
        self.conditions
            .set(pool, conditions.map(|c| (c.to_vec(), 1)).collect());
    }

    fn pool_uses(&self, pool: &ObjectKey, server: &str, cache: &str) {
        self.retire(&self.uses.change(pool, Some([server, cache])));
    }

    fn drop_pool(&self, pool: &ObjectKey) {
        self.dropped().insert(pool.clone());
        self.retire(&self.uses.change(pool, None));
        let labels = [pool.namespace.as_str(), pool.name.as_str()];
        for state in STATES {
            let _ = self
                .capacity
                .remove_label_values(&[labels[0], labels[1], state]);
        }
        for family in self.sizes() {
            let _ = family.remove_label_values(&labels);
        }
        for family in self.oldest() {
            let _ = family.remove_label_values(&labels);
        }
        for family in self.changing() {
            family.set(pool, BTreeMap::new());
        }
        for (_, until) in MOMENTS {
            let _ = self
                .machine_seconds
                .remove_label_values(&[labels[0], labels[1], until]);
        }
    }

    fn milestone(&self, pool: &ObjectKey, event: &str, seconds: f64) {
        // Hold the lock to the end. Otherwise the pool could be dropped between the check and the observation.
        let dropped = self.dropped();
        if dropped.contains(pool) {
            return;
        }
        if let Some((_, until)) = MOMENTS.iter().find(|(e, _)| *e == event) {
            self.machine_seconds
                .with_label_values(&[pool.namespace.as_str(), pool.name.as_str(), until])
                .observe(seconds);
        }
    }

    fn destroyed(&self, pool: &ObjectKey, seconds: f64) {
        self.milestone(pool, DESTROYED, seconds);
    }

    fn vm_operation(&self, operation: &'static str, success: bool) {
        debug_assert!(VM_OPERATIONS.contains(&operation), "{operation}");
        self.vm_operations
            .with_label_values(&[operation, result(success)])
            .inc();
    }

    fn recycled(&self, result: &'static str, seconds: f64) {
        debug_assert!(RECYCLED.contains(&result), "{result}");
        self.recycled.with_label_values(&[result]).inc();
        if result == "back" {
            let none: [&str; 0] = [];
            self.recycle_seconds
                .with_label_values(&none)
                .observe(seconds);
        }
    }

    fn reassigned(&self, result: &'static str) {
        debug_assert!(REASSIGNED.contains(&result), "{result}");
        self.reassigned.with_label_values(&[result]).inc();
    }

    fn iso_operation(&self, operation: &'static str, success: bool) {
        debug_assert!(ISO_OPERATIONS.contains(&operation), "{operation}");
        self.iso_operations
            .with_label_values(&[operation, result(success)])
            .inc();
    }

    fn iso_transfer(&self, cache: &str, progress: Option<(u64, u64)>) {
        for (state, bytes) in [
            ("done", progress.map(|p| p.0)),
            ("total", progress.map(|p| p.1)),
        ] {
            match bytes.filter(|_| !self.uses.is_retired(cache)) {
                Some(bytes) => self
                    .iso_transfer
                    .with_label_values(&[cache, state])
                    .set(i64::try_from(bytes).unwrap_or(i64::MAX)),
                None => {
                    let _ = self.iso_transfer.remove_label_values(&[cache, state]);
                }
            }
        }
    }

    fn iso_transferred(&self, cache: &str, seconds: f64) {
        if self.uses.is_retired(cache) {
            return;
        }
        self.iso_transfer_seconds
            .with_label_values(&[cache])
            .observe(seconds);
    }

    fn task_began(&self, server: &str, task: &'static str) {
        if self.uses.is_retired(server) {
            return;
        }
        self.tasks.with_label_values(&[server, task]).inc();
    }

    fn task_ended(&self, server: &str, task: &'static str, seconds: f64) {
        if self.uses.is_retired(server) {
            return;
        }
        let in_flight = self.tasks.with_label_values(&[server, task]);
        // A task may have started before the series of its vCenter were removed. Then the new series does not count it.
        if in_flight.get() > 0 {
            in_flight.dec();
        }
        self.task_seconds
            .with_label_values(&[server, task])
            .observe(seconds);
    }

    fn orphans(&self, by_server: &BTreeMap<String, usize>) {
        self.orphans.set(by_server);
    }

    fn sessions(&self, by_server: &BTreeMap<String, usize>) {
        self.sessions.set(by_server);
    }

    fn actors(&self, kind: &'static str, count: i64) {
        self.actors.with_label_values(&[kind]).set(count);
    }

    fn restarted(&self, kind: &'static str) {
        self.actor_restarts.with_label_values(&[kind]).inc();
    }

    fn pass(&self, kind: &'static str, seconds: f64, success: bool) {
        self.passes
            .with_label_values(&[kind, result(success)])
            .inc();
        self.pass_seconds
            .with_label_values(&[kind])
            .observe(seconds);
    }

    fn woken(&self, kind: &'static str, coalesced: bool) {
        let coalesced = if coalesced { "true" } else { "false" };
        self.wakes.with_label_values(&[kind, coalesced]).inc();
    }

    fn queued(&self, kind: &'static str, change: i64) {
        self.mailbox.with_label_values(&[kind]).add(change);
    }
}

impl RequestObserver for Metrics {
    fn request(&self, record: &RequestRecord<'_>) {
        if self.uses.is_retired(record.server) {
            return;
        }
        self.vsphere_requests
            .with_label_values(&[
                record.server,
                record.operation,
                record.failure.unwrap_or(""),
            ])
            .inc();
        self.vsphere_seconds
            .with_label_values(&[record.server, record.operation])
            .observe(record.duration.as_secs_f64());
    }

    fn awaits(&self, server: &str, task: &'static str) {
        self.task_began(server, task);
    }

    fn awaited(&self, server: &str, task: &'static str, took: Duration) {
        self.task_ended(server, task, took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests;
