//! What comes next for a machine that nothing holds back: its VM boots, its guest registers, it is claimed, it installs.

use agent_forge_crds::{
    agent::VmStatus,
    conditions::{Phase, Reason, Who},
    external::agent::Agent,
};
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::{found::Found, waits::Wait};

/// The next step that is awaited. `None`: its Node is ready, it waits in the buffer, or there is no VsphereAgent yet.
#[must_use]
pub fn next(found: &Found) -> Option<Wait> {
    let child = found.child.as_ref()?;
    let vm = child.vm();
    let reason = vm.and_then(|vm| vm.reason.clone());
    let reason = reason.unwrap_or(Reason::CreateRequested);
    let subject = format!("VsphereAgent/{}", child.key.name);
    let wait = |reason: &Reason, message: String| {
        let since = since(found);
        Some(Wait::of(subject.clone(), reason, message, since))
    };
    if found.leaves() {
        let released = vm.is_some_and(|vm| vm.phase == Some(Phase::Released));
        let reason = if released { reason } else { Reason::Deleting };
        return wait(&reason, "the VM is being removed".to_owned());
    }
    if found.agent_machine.as_ref().is_some_and(|am| am.is_ready()) {
        return None;
    }
    match reason {
        Reason::AgentNotDiscovered => wait(&reason, not_registered(vm)),
        Reason::AgentAvailable | Reason::AgentPrepared if child.in_buffer => None,
        Reason::AgentAvailable => wait(
            &reason,
            "its Agent has registered and is not prepared yet".to_owned(),
        ),
        Reason::AgentPrepared => wait(&reason, not_claimed(found)).map(|wait| Wait {
            who: Who::Hub,
            remedy: "None for a minute. Then read the log of the agent provider (cluster-api-provider-agent).",
            ..wait
        }),
        Reason::AgentBound => {
            wait(&reason, installs(found.agent.as_deref())).map(|wait| Wait {
                meaning: "The Agent is bound to its AgentMachine. The host installs, and then joins as a Node.",
                who: Who::Nobody,
                remedy: "None for half an hour. Then read the Agent's validations and events, and look at the VM's console.",
                ..wait
            })
        }
        Reason::CreateRequested | Reason::VmCreatePending => wait(&reason, not_on(vm)),
        _ => {
            let last = found.timeline().last().map(|e| e.event.as_str());
            wait(&reason, format!("the last step was {}", last.unwrap_or("none")))
        }
    }
}

/// When the last step was taken.
fn since(found: &Found) -> Option<Timestamp> {
    let step = found.timeline().last().and_then(|e| e.at.as_ref());
    let vm = found.child.as_ref().and_then(|c| c.vm());
    let phase = || Some(vm?.last_transition_time.as_ref()?.0);
    step.map(|t| t.0).or_else(phase)
}

fn not_registered(vm: Option<&VmStatus>) -> String {
    let deadline = vm.and_then(|vm| vm.discovery_deadline.as_ref());
    let end = match deadline {
        Some(at) => format!("the VM is replaced at {}", at.0.strftime("%H:%M UTC")),
        None => "no deadline is recorded".to_owned(),
    };
    format!("its guest has not registered; {end}; look at its console")
}

fn not_claimed(found: &Found) -> String {
    let am = found.agent_machine.as_ref().map(|am| am.name_any());
    let name = am.map_or_else(
        || "an AgentMachine".to_owned(),
        |am| format!("AgentMachine {am}"),
    );
    format!("its Agent is prepared, and the agent provider has not claimed it for {name}")
}

fn installs(agent: Option<&Agent>) -> String {
    let Some(agent) = agent else {
        return "its Agent was bound, and cannot be seen now".to_owned();
    };
    if agent.is_installed() {
        return "the host is installed, and its Node is not ready yet".to_owned();
    }
    let state = Some(agent.state()).filter(|s| !s.is_empty()).unwrap_or("?");
    match agent.current_stage() {
        Some(stage) => format!("the host installs: stage {stage}, state {state}"),
        None => format!("the installation has not begun: state {state} of the Agent"),
    }
}

fn not_on(vm: Option<&VmStatus>) -> String {
    let vm = vm.cloned().unwrap_or_default();
    match (vm.moref, vm.task_id) {
        (Some(moref), _) => format!("VM {moref} is made and not switched on yet"),
        (None, Some(task)) => format!("vCenter makes the VM (task {task})"),
        (None, None) => "its VM is not made yet".to_owned(),
    }
}
