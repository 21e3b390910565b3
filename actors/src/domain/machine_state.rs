//! The state of the Machine behind a VsphereAgent. The pool and the VM decide from this one answer. Pure.
//!
//! A Machine is gone only by proof. The record names it by its uid. A Machine or AgentMachine of that name with another uid leaves
//! it open: a restored hub has new uids, and Cluster API uses no name again. The Machine is gone if no Machine and no
//! AgentMachine of the recorded name exists. An AgentMachine and its Machine share their name, and the deletion of one
//! deletes the other.

use std::{borrow::Borrow, sync::Arc};

use agent_forge_crds::external::agent_machine::AgentMachine;
use kube::ResourceExt;

use super::managed_vm::ManagedVm;
use crate::domain::upstream::MachineFacts;

/// The state of the recorded Machine and AgentMachine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MachineState {
    /// None was ever recorded.
    Nobody,
    /// None yet: the VM is in the buffer of its pool.
    Buffer,
    /// They exist, and neither is being deleted.
    Alive,
    /// One of them is being deleted.
    Leaving,
    /// Both are gone.
    Gone,
    /// It is not known, for this reason.
    Unknown(String),
}

impl MachineState {
    /// A host is wanted: by the Machine, or for the buffer.
    #[must_use]
    pub fn wants_host(&self) -> bool {
        matches!(self, Self::Alive | Self::Buffer)
    }
}

/// Reads the state for `child` from what the control plane namespace `namespace` holds.
#[must_use]
pub fn machine_state(
    child: &ManagedVm,
    namespace: &str,
    machines: &[impl Borrow<MachineFacts>],
    agent_machines: &[Arc<AgentMachine>],
) -> MachineState {
    let (machine, agent_machine) = match (&child.machine, &child.agent_machine) {
        (None, None) if child.in_buffer => return MachineState::Buffer,
        (None, None) => return MachineState::Nobody,
        (machine, agent_machine) => (machine.as_ref(), agent_machine.as_ref()),
    };
    if let Some(recorded) = child.control_plane.as_deref().filter(|n| *n != namespace) {
        return MachineState::Unknown(format!(
            "its Machine is recorded in namespace {recorded}, spec.controlPlaneNamespace of the pool says {namespace}"
        ));
    }
    let mut machines = machines.iter().map(Borrow::borrow);
    let m = machines
        .clone()
        .find(|m| machine.is_some_and(|r| r.is(&m.key.name, &m.uid)));
    let am = agent_machines
        .iter()
        .find(|am| agent_machine.is_some_and(|r| r.is_object(&am.metadata)));
    if m.is_some_and(|m| m.deleting) || am.is_some_and(|am| am.is_deleting()) {
        return MachineState::Leaving;
    }
    if m.is_some() || am.is_some() {
        return MachineState::Alive;
    }
    let namesake = |kind: &str, name: &str| {
        MachineState::Unknown(format!(
            "{kind} {namespace}/{name} exists with another uid than the recorded one"
        ))
    };
    if let Some(r) = agent_machine
        && agent_machines.iter().any(|am| am.name_any() == r.name)
    {
        return namesake("AgentMachine", &r.name);
    }
    match machine {
        Some(r) if machines.any(|m| m.key.name == r.name) => namesake("Machine", &r.name),
        _ => MachineState::Gone,
    }
}

/// The state of a Machine in a namespace that the operator does not watch.
#[must_use]
pub fn unserved(namespace: &str) -> MachineState {
    MachineState::Unknown(format!(
        "its Machine is recorded in namespace {namespace}, which the operator does not serve (--namespaces)"
    ))
}

#[cfg(test)]
mod tests;
