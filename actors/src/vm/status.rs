//! Computes the status of a VsphereAgent from what is known. Pure.

use agent_forge_crds::{
    WaitingOn,
    agent::{VmStatus, VsphereAgentStatus},
    conditions::{
        self, ConditionStatus, ConditionUpdate, Phase, Reason, remove_condition, set_condition,
    },
    external::agent::{self as agent_wire, Agent},
    pool::CleanupPolicy,
};
use k8s_openapi::{
    api::core::v1::ObjectReference,
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kube::ResourceExt;

use super::{
    concern::concern,
    known::{Known, Obstacle},
    lost,
    step::Step,
};
use crate::{
    domain::{
        hardware::{self, ShownHardware, ShownNow},
        machine_state::MachineState,
        managed_vm::ManagedVm,
        network,
        recycle::Stage,
        seconds, template,
        vanished::Vanished,
    },
    runtime::holds,
};

/// The VM has been prepared for its AgentMachine.
#[must_use]
pub fn prepared(agent: &Agent, child: &ManagedVm) -> bool {
    let pinned = agent
        .labels()
        .contains_key(agent_forge_crds::names::AGENT_MACHINE_LABEL);
    agent.spec.approved && pinned && child.agent_machine.is_some()
}

/// Phase and reason.
fn phase(known: &Known<'_>, vm: &VmStatus) -> (Phase, Reason) {
    let bound = known.agent.is_some_and(Agent::is_claimed_or_bound);
    let was_bound = lost::was_bound(vm);
    if vm.recycle.is_some() && !bound && known.machine_state.wants_host() && !known.child.deleting {
        return (Phase::Provisioning, Reason::Recycling);
    }
    if *known.machine_state == MachineState::Leaving && known.agent.is_some() {
        return (Phase::Released, Reason::MachineDeleting);
    }
    if *known.machine_state == MachineState::Gone || known.child.deleting {
        return (Phase::Released, Reason::MachineDeleted);
    }
    if bound {
        return (Phase::Bound, Reason::AgentBound);
    }
    if let Some(agent) = known.agent {
        return match (was_bound, prepared(agent, known.child)) {
            (_, true) => (Phase::Available, Reason::AgentPrepared),
            (true, false) => (Phase::Released, Reason::AgentReleased),
            (false, false) => (Phase::Available, Reason::AgentAvailable),
        };
    }
    if vm.agent_ref.is_some() && (was_bound || known.served) {
        return (Phase::Orphaned, Reason::AgentMissing);
    }
    if known.child.adopted {
        return (Phase::Provisioning, Reason::VmAdopted);
    }
    let expired = vm
        .discovery_deadline
        .as_ref()
        .is_some_and(|d| d.0 <= known.discovery_time);
    match (vm.bios_uuid.is_some(), vm.power_state.as_deref()) {
        (_, Some("poweredOn")) if expired => (Phase::Orphaned, Reason::AgentDiscoveryExpired),
        (_, Some("poweredOn")) => (Phase::Provisioning, Reason::AgentNotDiscovered),
        (true, _) => (Phase::Provisioning, Reason::VmCreatePending),
        (false, _) => (Phase::Provisioning, Reason::CreateRequested),
    }
}

/// Keeps what is set once, and what the end of its Machine left.
fn keep(vm: &mut VmStatus, known: &Known<'_>) {
    vm.served = known.served.then_some(true);
    vm.guest_may_be_node = known.guest_may_be_node.then_some(true);
    vm.agent_machine_paused = known.paused.then_some(true);
    match known.vanished {
        // What is left out is not gone.
        _ if !known.holds.over_bound.is_empty() => {}
        Vanished::No => {}
        Vanished::Held => vm.machine_vanished_paused = Some(true),
        Vanished::Over => {
            vm.machine_vanished_paused = None;
            if *known.machine_state == MachineState::Gone {
                vm.agent_machine_paused = None;
            }
        }
    }
}

fn tags_missing(record: &VsphereAgentStatus, known: &Known<'_>, vm: &VmStatus) -> Option<bool> {
    let attached = known.tagged.is_some() && vm.moref.as_deref() == known.tagged;
    if attached || !known.wants_tags {
        return None;
    }
    let failed = |reason: &Reason| *reason == Reason::TaggingFailed;
    // An earlier release recorded this only in `waitingOn`, which soon shows something else.
    let told = record.waiting_on.iter().any(|w| failed(&w.reason));
    if told || known.obstacle.is_some_and(|o| failed(&o.reason)) {
        return Some(true);
    }
    vm.tags_missing
}

/// What the VM, its Agent and its Machine are called.
fn refer(vm: &mut VmStatus, known: &Known<'_>) {
    if let Some(agent) = known.agent {
        vm.agent_ref = Some(ObjectReference {
            api_version: Some(format!("{}/v1beta1", agent_wire::GROUP)),
            kind: Some("Agent".to_owned()),
            name: Some(agent.name_any()),
            namespace: agent.namespace(),
            uid: agent.uid(),
            ..ObjectReference::default()
        });
    }
    // The life that is over is recorded with its Machine first.
    if known.child.in_buffer && !matches!(known.child.recycling(), Stage::Asked(_)) {
        vm.machine_ref = None;
        vm.agent_machine_ref = None;
    }
    if let (Some((api_version, namespace)), Some(machine)) =
        (known.machine_at, &known.child.machine)
    {
        vm.machine_ref = Some(ObjectReference {
            api_version: Some(api_version.to_owned()),
            kind: Some("Machine".to_owned()),
            name: Some(machine.name.clone()),
            namespace: Some(namespace.to_owned()),
            uid: machine.uid.clone(),
            ..ObjectReference::default()
        });
    }
    if let (Some(namespace), Some(am)) = (known.control_plane, &known.child.agent_machine)
        && vm.bios_uuid.is_some()
        && !matches!(known.machine_state, MachineState::Unknown(_))
    {
        vm.agent_machine_ref = Some(ObjectReference {
            kind: Some("AgentMachine".to_owned()),
            name: Some(am.name.clone()),
            namespace: Some(namespace.to_owned()),
            uid: am.uid.clone(),
            ..ObjectReference::default()
        });
    }
}

/// The status as it should be now. A `lastTransitionTime` changes only with its own condition.
#[must_use]
pub fn render(record: &VsphereAgentStatus, known: &Known<'_>) -> VsphereAgentStatus {
    let mut status = record.clone();
    let mut vm = status.vm.take().unwrap_or_default();
    vm.name.clone_from(&known.child.vm_name);
    // While the caches may mix two histories, a new phase would be of neither. And what is left out is not absent.
    let recorded = vm.phase.clone().zip(vm.reason.clone());
    let unclear = recorded.filter(|_| known.holds.is_unclear());
    let (phase, reason) = unclear.unwrap_or_else(|| phase(known, &vm));
    let now = Time(seconds::whole(known.now));
    if vm.phase.as_ref() != Some(&phase) {
        vm.last_transition_time = Some(now.clone());
    }
    vm.phase = Some(phase);
    vm.reason = Some(reason);
    vm.agent_lost_since = match known.lost {
        Some(_) => vm.agent_lost_since.or_else(|| Some(now.clone())),
        None => None,
    };
    vm.tags_missing = tags_missing(record, known, &vm);
    if vm.bios_uuid.is_some() {
        keep(&mut vm, known);
    }
    // Who takes the annotation off and sets it again means the present life.
    let asked = known.child.replace_annotation();
    vm.replace_ignored = vm.replace_ignored.filter(|old| asked == Some(*old));
    if let (Some(way), Some((life, hours))) = (&mut vm.recycle, known.hours_tried)
        && way.generation == life
    {
        way.hours_tried = way.hours_tried.max(Some(hours));
    }
    if let Some(shown) = known.shown {
        set_hardware(&mut vm, shown);
    }
    refer(&mut vm, known);
    status.observed_generation = known.child.object.metadata.generation;
    // The default is not written.
    status.cleanup_policy = known.policy.filter(|p| *p != CleanupPolicy::default());
    let concern = known.obstacle.cloned().or_else(|| concern(known, &vm));
    status.waiting_on = concern
        .iter()
        .map(|o| WaitingOn {
            subject: o.subject.clone(),
            reason: o.reason.clone(),
            message: o.message.clone(),
            since: WaitingOn::since_of(&record.waiting_on, &o.subject, &o.reason)
                .or_else(|| Some(now.clone())),
        })
        .collect();
    ready(&mut status.conditions, known, concern.as_ref(), &vm, &now);
    let generation = known.child.object.metadata.generation;
    steps_failed(&mut status.conditions, known, &now);
    config_synced(&mut status.conditions, known, &vm, &now);
    holds::set_conditions(&mut status.conditions, known.holds, generation, known.now);
    status.vm = Some(vm);
    status.trace_id = Some(known.trace.to_string());
    status.timeline = known.timeline.to_vec();
    status
}

/// Puts what vCenter shows of its hardware into the record. What is not shown stays as it was.
fn set_hardware(vm: &mut VmStatus, shown: &ShownHardware) {
    vm.hardware_version = shown.version.or(vm.hardware_version);
    set_now(vm, &shown.now);
    let Some(made) = template::recorded(vm) else {
        return;
    };
    vm.hardware_drift = template::drift(&made, shown);
    let cards = vm.template.as_ref().map_or(&[][..], |t| &t.network_cards);
    vm.hardware_drift.extend(network::drift(cards, shown));
}

fn set_now(vm: &mut VmStatus, now: &ShownNow) {
    if let Some(host) = &now.host {
        vm.esxi_host = Some(host.clone());
    }
    vm.used_storage_gib = hardware::used_gib(vm.used_storage_gib, now.used_bytes);
    if let Some(has) = now.has_snapshot {
        vm.has_snapshot = has.then_some(true);
    }
}

/// Lists each step that failed and stops nothing else.
fn steps_failed(list: &mut Vec<Condition>, known: &Known<'_>, now: &Time) {
    let failed = known.failed_steps.iter();
    let all: Vec<String> = failed.map(|(step, why)| format!("{step}: {why}")).collect();
    if all.is_empty() {
        remove_condition(list, conditions::STEPS_FAILED);
        return;
    }
    let tags = known.failed_steps.contains_key(Step::Tag.name());
    let update = ConditionUpdate {
        type_: conditions::STEPS_FAILED,
        status: ConditionStatus::True,
        reason: if tags {
            &Reason::TaggingFailed
        } else {
            &Reason::EjectFailed
        },
        message: &all.join("; "),
        observed_generation: known.child.object.metadata.generation,
    };
    set_condition(list, &update, now);
}

/// Whether the VM is as it was made, and whether its pool still wants such a VM.
fn config_synced(list: &mut Vec<Condition>, known: &Known<'_>, vm: &VmStatus, now: &Time) {
    if vm.moref.is_none() || known.child.adopted {
        remove_condition(list, conditions::CONFIG_SYNCED);
        return;
    }
    let (drift, changes) = (&vm.hardware_drift, known.template_changes);
    let mut said = Vec::new();
    if !drift.is_empty() {
        said.push(format!(
            "somebody has changed the VM in vCenter since it was made ({}). The operator does not change it back: undo that in \
             vCenter, or change the NodePool, or delete the Machine, to get another VM",
            template::explain(drift)
        ));
    }
    if !changes.is_empty() {
        let then = if known.bound || known.served {
            "A VM that serves is never changed: change the NodePool, or delete the Machine, to get a VM with the new template"
        } else {
            "The VM is replaced if no Machine can have it: while its Agent has not registered, or fails its validations"
        };
        said.push(format!(
            "the pool wants other hardware than the VM was made with ({}). {then}",
            template::explain(changes)
        ));
    }
    let (status, reason) = match (drift.is_empty(), changes.is_empty()) {
        (false, _) => (ConditionStatus::False, &Reason::HardwareDrift),
        (true, false) => (ConditionStatus::False, &Reason::TemplateChanged),
        (true, true) if template::recorded(vm).is_none() => {
            said.push(
                "it is not recorded with what hardware the VM was made, so it is compared with nothing and never replaced \
                 for its hardware"
                    .to_owned(),
            );
            (ConditionStatus::Unknown, &Reason::TemplateUnrecorded)
        }
        (true, true) => {
            said.push("the VM has the hardware that its pool wants".to_owned());
            (ConditionStatus::True, &Reason::Synced)
        }
    };
    let update = ConditionUpdate {
        type_: conditions::CONFIG_SYNCED,
        status,
        reason,
        message: &said.join("; "),
        observed_generation: known.child.object.metadata.generation,
    };
    set_condition(list, &update, now);
}

fn ready(
    list: &mut Vec<Condition>,
    known: &Known<'_>,
    concern: Option<&Obstacle>,
    vm: &VmStatus,
    now: &Time,
) {
    let created = vm.moref.is_some() || vm.power_state.is_some();
    let (holds, reason, message) = match concern {
        Some(o) => (false, &o.reason, o.message.as_str()),
        None if created => (
            true,
            &Reason::VmCreated,
            "the VM exists and is as it should be",
        ),
        None => (false, &Reason::VmCreatePending, "the VM is being created"),
    };
    let update = ConditionUpdate {
        type_: conditions::READY,
        status: ConditionStatus::from(holds),
        reason,
        message,
        observed_generation: known.child.object.metadata.generation,
    };
    set_condition(list, &update, now);
}
