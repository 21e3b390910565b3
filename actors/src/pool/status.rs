//! Renders a pool's status from what was observed, the plan and its outcome. Pure.

mod gauges;
#[cfg(test)]
mod tests;
mod verdicts;

pub use self::gauges::{gauges, view};
use self::verdicts::{Row, overall, verdicts};

use agent_forge_crds::{
    WaitingOn,
    agent::VmStatus,
    conditions::{self, ConditionStatus, ConditionUpdate, Phase, Reason, action, set_condition},
    pool::{
        BufferStatus, ClassBuffer, ForeignAgentsStatus, MAX_OWNED_VM_ROWS, MAX_WAITING_ROWS,
        OwnedVm, PlannedAction, ReassignStatus, VsphereAgentPoolStatus,
    },
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::{
    dry_run::{self, row},
    nodes,
    observed::Observed,
    outcome::Outcome,
    past_hosts::past_hosts,
    plan::{Action, BufferCount, Plan},
};
use crate::{
    domain::{host_class::HostClass, managed_vm::ManagedVm},
    lifecycle::ReleaseReason,
    ports::cluster::AgentPatch,
    runtime::holds,
};

fn planned(s: &Observed, plan: &Plan, outcome: &Outcome) -> Vec<PlannedAction> {
    let mut rows: Vec<PlannedAction> = plan.actions.iter().filter_map(planned_row).collect();
    rows.extend(plan.actions.iter().filter_map(|a| match a {
        Action::Release { child, why } => {
            let agent = s.host(child).own.as_ref()?.name_any();
            let reason = format!("{}; after its VM", release_words(*why));
            Some(row(action::DELETE_AGENT, Some(agent), reason))
        }
        _ => None,
    }));
    if s.holds.dry_run.is_some() {
        rows.extend(dry_run::rows(s, plan, outcome));
    }
    rows.truncate(MAX_WAITING_ROWS);
    if rows.is_empty() {
        rows.push(row(action::NOOP, None, "nothing is to do".to_owned()));
    }
    rows
}

fn of_agent<'a>(patch: &'a AgentPatch, why: &str) -> (&'static str, &'a String, String) {
    (action::PATCH_AGENT, &patch.key.name, why.to_owned())
}

/// What is said of that action. `None`: it is of no interest to people.
fn planned_row(action: &Action) -> Option<PlannedAction> {
    let (kind, about, why) = match action {
        Action::CreateChild { name, class, .. } => {
            let of = of_class(class.as_deref());
            let why = format!("AgentMachine waits for an Agent{of}");
            (action::DEMAND_DEFICIT, name, why)
        }
        Action::Take { host, to, .. } => (
            action::DEMAND_DEFICIT,
            &host.child.key.name,
            format!(
                "AgentMachine {} waits for an Agent; it gets this host of pool {}",
                to.name_any(),
                host.child.pool
            ),
        ),
        Action::Bring { host, .. } => (
            action::BUFFER,
            &host.child.key.name,
            format!(
                "a person gives this host of pool {} to this one",
                host.child.pool
            ),
        ),
        Action::CreateForBuffer { name, class } => {
            let of = of_class(class.as_deref());
            (action::BUFFER, name, format!("the buffer lacks a host{of}"))
        }
        Action::MoveToBuffer { child, .. } => (
            action::BUFFER,
            &child.key.name,
            "no AgentMachine needs it, and the buffer has room".to_owned(),
        ),
        Action::Recycle { child, .. } => (
            action::BUFFER,
            &child.key.name,
            "its Machine is gone, and the pool recycles its VM".to_owned(),
        ),
        Action::Reassign {
            child,
            agent_machine: am,
            ..
        } => (
            action::DEMAND_DEFICIT,
            &child.key.name,
            format!("its VM serves AgentMachine {} now", am.name_any()),
        ),
        Action::Prepare { patch, .. } => of_agent(patch, "prepare it for its AgentMachine"),
        Action::Fence { patch, .. } => of_agent(patch, "take it out of every selection"),
        Action::Release { child, why } => (
            action::DELETE_VM,
            &child.key.name,
            release_words(*why).to_owned(),
        ),
        Action::Pin { .. } | Action::AddFinalizer | Action::Close | Action::RemoveFinalizer => {
            return None;
        }
    };
    Some(row(kind, Some(about.clone()), why))
}

/// The class in a sentence; nothing for that of `spec.template`.
#[must_use]
pub fn of_class(class: Option<&str>) -> String {
    class.map_or(String::new(), |class| format!(" of class {class:?}"))
}

fn release_words(why: ReleaseReason) -> &'static str {
    match why {
        ReleaseReason::MachineGone => "its Machine is gone",
        ReleaseReason::Surplus => "no AgentMachine needs it",
        ReleaseReason::PoolDeleting => "the pool is being deleted",
    }
}

/// The status as it should be now.
#[must_use]
pub fn render(
    record: &VsphereAgentPoolStatus,
    s: &Observed,
    plan: &Plan,
    outcome: &Outcome,
) -> VsphereAgentPoolStatus {
    let mut status = record.clone();
    let g = gauges(s, plan);
    let int = |n: i64| Some(i32::try_from(n).unwrap_or(i32::MAX));
    status.observed_generation = s.pool.metadata.generation;
    status.desired_replicas = int(g.desired);
    status.agent_machines = int(g.agent_machines);
    status.waiting_agent_machines = int(g.waiting_agent_machines);
    status.unready_agent_machines = int(g.unready_agent_machines);
    status.agent_machines_without_agent = int(g.without_agent);
    status.matching_agents = int(g.matching_agents);
    status.bound_agents = int(g.bound_agents);
    status.available_agents = int(g.available_agents);
    let count = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
    let b = plan.buffer;
    let classes = plan.buffer_classes.iter();
    let classes = classes.map(|(name, b)| ClassBuffer {
        name: name.clone(),
        wanted: count(b.wanted),
        ready: count(b.ready),
        making: count(b.making),
    });
    status.buffer = (b != BufferCount::default()).then(|| BufferStatus {
        wanted: count(b.wanted),
        ready: count(b.ready),
        making: count(b.making),
        classes: classes.collect(),
    });
    status.reassign = reassign(s);
    status.foreign_agents = foreign(s);
    status.owned_vms = s
        .children
        .iter()
        .take(MAX_OWNED_VM_ROWS)
        .map(owned_vm)
        .collect();
    status.past_hosts = past_hosts(&record.past_hosts, s);
    status.planned_actions = planned(s, plan, outcome);
    status.refused_credentials.clone_from(&outcome.refused);
    if outcome.iso_status.is_some() {
        status.iso.clone_from(&outcome.iso_status);
    }
    status.waiting_on = waiting_on(record, s, plan, outcome);
    conditions(&mut status, s, verdicts(s, plan, outcome, &g), outcome);
    nodes::set(&mut status, s, &outcome.nodes);
    status
}

fn conditions(
    status: &mut VsphereAgentPoolStatus,
    s: &Observed,
    verdicts: Vec<Row>,
    outcome: &Outcome,
) {
    let now = Time(s.wall);
    let generation = s.pool.metadata.generation;
    for (type_, holds, reason, message) in verdicts {
        let update = ConditionUpdate {
            type_,
            status: ConditionStatus::from(holds),
            reason: &reason,
            message: &message,
            observed_generation: generation,
        };
        set_condition(&mut status.conditions, &update, &now);
    }
    holds::set_conditions(&mut status.conditions, &s.holds, generation, s.wall);
    let ready = overall(status, s, outcome);
    let update = ConditionUpdate {
        type_: conditions::READY,
        status: ConditionStatus::from(ready.is_none()),
        reason: ready.as_ref().map_or(&Reason::Reconciled, |r| &r.0),
        message: ready
            .as_ref()
            .map_or("every AgentMachine is served or being served", |r| &r.1),
        observed_generation: generation,
    };
    set_condition(&mut status.conditions, &update, &now);
}

/// What the pool says of that VM in its own status.
fn owned_vm(child: &ManagedVm) -> OwnedVm {
    let made = child.vm().map(VmStatus::to_owned_vm);
    let made = made.unwrap_or_else(|| OwnedVm {
        name: child.vm_name.clone(),
        phase: Some(Phase::Provisioning),
        ..OwnedVm::default()
    });
    OwnedVm {
        class: child.object.spec.class.clone(),
        ..made
    }
}

/// What waits, and since when: first what the pool says, then the first row of each VsphereAgent.
fn waiting_on(
    record: &VsphereAgentPoolStatus,
    s: &Observed,
    plan: &Plan,
    outcome: &Outcome,
) -> Vec<WaitingOn> {
    let own = plan.waiting.iter();
    let own = own.chain(&outcome.held).chain(&outcome.queued);
    let own = own.map(|w| WaitingOn {
        since: WaitingOn::since_of(&record.waiting_on, &w.subject, &w.reason)
            .or(Some(Time(s.wall))),
        subject: w.subject.clone(),
        reason: w.reason.clone(),
        message: w.message.clone(),
    });
    let first = |c: &ManagedVm| c.object.status.as_ref()?.waiting_on.first().cloned();
    let of_vms = s.children.iter().filter_map(first).map(|mut w| {
        w.message = first_line(&w.message);
        w
    });
    own.chain(of_vms).take(MAX_WAITING_ROWS).collect()
}

/// Hosts that the pool shares with others.
fn reassign(s: &Observed) -> Option<ReassignStatus> {
    let count = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
    let of_others = s.children.iter().filter(|c| c.maker() != s.key);
    let shared = ReassignStatus {
        borrowed: count(of_others.count()),
        lending: count(s.group.shared.len()),
        refused: s.group.refused_by.clone(),
    };
    (s.pool.spec.group().is_some() || shared != ReassignStatus::default()).then_some(shared)
}

/// Foreign hosts, if there are any.
fn foreign(s: &Observed) -> Option<ForeignAgentsStatus> {
    let classes = s.foreign.classes?;
    let count = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
    let of = |class| count(classes.get(class).all);
    let total = classes.total();
    (total.all > 0).then(|| ForeignAgentsStatus {
        total: count(total.all),
        free: count(total.free),
        bare_metal: of(HostClass::BareMetal),
        bare_metal_hosts: of(HostClass::BareMetalHost),
        other_hypervisor: of(HostClass::OtherHypervisor),
        vsphere: of(HostClass::Vsphere),
        reserved_by_osac: of(HostClass::ReservedByOsac),
        unknown: of(HostClass::Unknown),
    })
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}
