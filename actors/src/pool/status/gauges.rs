//! The counts, for status and metrics.

use std::collections::BTreeMap;

use agent_forge_crds::{conditions::Reason, pool::VsphereAgentPoolStatus};

use crate::{
    domain::{host_class::HostClass, upstream::WaitingSign},
    pool::{
        nodes,
        observed::Observed,
        outcome::Outcome,
        plan::{BufferCount, Plan},
    },
    ports::instruments::{PoolGauges, PoolView},
    world::classify::{Demand, DemandReason, DemandState},
};

/// The counts, for status and metrics.
#[must_use]
pub fn gauges(s: &Observed, plan: &Plan) -> PoolGauges {
    let live: Vec<&Demand> = plan
        .demands
        .iter()
        .filter(|c| !c.agent_machine.is_deleting())
        .collect();
    let count = |f: &dyn Fn(&Demand) -> bool| {
        i64::try_from(live.iter().filter(|c| f(c)).count()).unwrap_or(i64::MAX)
    };
    let pending = s
        .children
        .iter()
        .filter(|c| !c.deleting && s.host(c).own.is_none())
        .count();
    let size = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    let template = &s.pool.spec.template;
    PoolGauges {
        desired: count(&|_| true),
        agent_machines: count(&|_| true),
        waiting_agent_machines: count(&|c| {
            c.sign == WaitingSign::NoSuitableAgents && !matches!(c.state, DemandState::Served)
        }),
        unready_agent_machines: count(&|c| !is_ready(c)),
        without_agent: count(&|c| !is_ready(c) && c.agent_machine.agent_ref().is_none()),
        matching_agents: size(s.matching.all),
        bound_agents: size(s.matching.bound),
        available_agents: size(s.matching.all - s.matching.bound),
        pending_owned_vms: size(pending),
        demand_deficit: count(&|c| {
            matches!(c.state, DemandState::Host | DemandState::HostUnconfirmed)
        }),
        vm_cpu_cores: i64::from(template.num_cpus()),
        vm_memory_bytes: i64::from(template.memory_mib()) << 20,
        vm_disk_bytes: i64::from(template.disk_gib()) << 30,
    }
}

/// What metrics show of the pool beside its counts. `status`: the status as it is now.
#[must_use]
pub fn view(
    s: &Observed,
    plan: &Plan,
    outcome: &Outcome,
    status: &VsphereAgentPoolStatus,
) -> PoolView {
    let oldest = |wanted: &dyn Fn(&Demand) -> bool| {
        let live = plan
            .demands
            .iter()
            .filter(|c| !c.agent_machine.is_deleting());
        live.filter(|c| wanted(c))
            .filter_map(|c| c.agent_machine.metadata.creation_timestamp.as_ref())
            .map(|t| t.0)
            .min()
    };
    // Nothing is expected from a pool that is paused, or in a dry run.
    let stop = s.stop();
    let is_expected = stop.is_none_or(|hold| hold.reason == Reason::NamespaceTooLarge);
    let is_missed = |c: &Demand| is_expected && is_missed(c);
    let mut view = PoolView {
        oldest_waiting: oldest(&|c| {
            is_missed(c) && c.state != DemandState::Served && c.agent_machine.agent_ref().is_none()
        }),
        oldest_unready: oldest(&is_missed),
        ..PoolView::default()
    };
    if plan.buffer != BufferCount::default() {
        let all = states(plan.buffer);
        view.buffer = all.map(|(state, n)| (state.to_owned(), n)).into();
    }
    let classes = plan.buffer_classes.iter();
    let classes = classes.flat_map(|(class, count)| {
        let named = |(state, n): (&str, i64)| ([class.clone(), state.to_owned()], n);
        states(*count).map(named)
    });
    view.buffer_classes = classes.collect();
    view.foreign = foreign(s);
    nodes::measure(&outcome.nodes, &mut view);
    for child in &s.children {
        let meta = &child.object.metadata;
        let deleting = meta.deletion_timestamp.as_ref().map(|t| t.0);
        view.oldest_deleting = [view.oldest_deleting, deleting].into_iter().flatten().min();
        let said = child.object.status.as_ref();
        let phase = said.and_then(|st| st.vm.as_ref()?.phase.as_ref());
        let phase = phase.map_or_else(|| "Provisioning".to_owned(), ToString::to_string);
        *view.phases.entry(phase).or_default() += 1;
    }
    for reason in reasons(s, plan).into_values() {
        *view.waiting_on.entry(reason.to_string()).or_default() += 1;
    }
    let conditions = status.conditions.iter();
    view.conditions = conditions
        .map(|c| [c.type_.clone(), c.status.clone(), c.reason.clone()])
        .collect();
    view
}

/// The hosts of a buffer by what they are.
fn states(count: BufferCount) -> [(&'static str, i64); 3] {
    let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    [
        ("wanted", number(count.wanted)),
        ("ready", number(count.ready)),
        ("making", number(count.making)),
    ]
}

/// The foreign hosts of each class that occurs.
fn foreign(s: &Observed) -> Vec<([&'static str; 2], i64)> {
    let Some(classes) = s.foreign.classes else {
        return Vec::new();
    };
    let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    let rows = HostClass::ALL.into_iter().flat_map(|class| {
        let (hosts, word) = (classes.get(class), class.as_str());
        let busy = hosts.all.saturating_sub(hosts.free);
        [([word, "true"], hosts.free), ([word, "false"], busy)]
    });
    let rows = rows.filter(|(_, n)| *n > 0);
    rows.map(|(labels, n)| (labels, number(n))).collect()
}

/// Why each machine waits, by name: a VsphereAgent has the name of its AgentMachine. The pool's reason comes first, as
/// in its Event.
fn reasons<'a>(s: &'a Observed, plan: &'a Plan) -> BTreeMap<&'a str, &'a Reason> {
    let mut all: BTreeMap<&str, &Reason> = BTreeMap::new();
    for row in &plan.waiting {
        all.entry(&row.subject).or_insert(&row.reason);
    }
    for child in &s.children {
        let said = child.object.status.as_ref();
        if let Some(row) = said.and_then(|st| st.waiting_on.first()) {
            all.entry(&child.key.name).or_insert(&row.reason);
        }
    }
    all
}

/// A user waits for it until it is ready, whatever its provider reports. A provider that cannot even look for an Agent
/// does not report that it waits for one. An AgentMachine that is being deleted, is paused or has no Machine does not
/// count.
fn is_missed(c: &Demand) -> bool {
    let quiet = matches!(
        c.state,
        DemandState::NotRequested(
            DemandReason::Deleting | DemandReason::Paused | DemandReason::MachinePending
        )
    );
    !quiet && !is_ready(c)
}

fn is_ready(c: &Demand) -> bool {
    let condition = c.agent_machine.ready_condition();
    c.agent_machine.is_ready() || condition.is_some_and(|r| r.is_true())
}
