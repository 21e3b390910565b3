//! Prepare, fence and seal: the only patches that the operator writes to an Agent. Pure.
//!
//! Prepare: ONE patch with which exactly the right AgentMachine binds exactly this Agent. Fence: no AgentMachine can claim
//! the Agent any more, from the moment its Machine is being deleted. Seal: a fence that always withdraws the approval, for
//! an Agent whose VM is being removed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use agent_forge_crds::{
    external::{
        agent::{Agent, RESOURCE_CLASS_LABEL},
        agent_machine::AgentMachine,
    },
    names::{AGENT_MACHINE_LABEL, CLEANUP_VM_ANNOTATION},
    pool::VsphereAgentPool,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;

use super::applied;
use crate::{
    domain::{
        belonging::base_labels,
        managed_vm::ManagedVm,
        recycle::Stage,
        selector::{self, Labels, Unsatisfiable},
    },
    migration::agent::is_let_go,
    ports::cluster::AgentPatch,
};

/// Roles that the Assisted Installer knows. The pool's role is a NodePool role and may be any word. For other words the
/// Agent's role is `worker`.
const INSTALLER_ROLES: [&str; 5] = ["auto-assign", "master", "arbiter", "worker", "bootstrap"];

/// The role that the pool gives its Agents.
#[must_use]
pub fn role(pool: &VsphereAgentPool) -> &str {
    let role = pool.spec.agent.role();
    if INSTALLER_ROLES.contains(&role) {
        role
    } else {
        "worker"
    }
}

/// Value of the selection pin: the AgentMachine's bare name. If another namespace has an AgentMachine of that name: the name
/// and 8 characters of its uid. Shortened to a label value.
#[must_use]
pub fn pin_value(agent_machine: &AgentMachine, name_is_ambiguous: bool) -> String {
    let name = agent_machine.name_any();
    let uid = agent_machine.uid().unwrap_or_default();
    let short: String = uid.chars().filter(|c| *c != '-').take(8).collect();
    if !name_is_ambiguous && selector::is_label_value(&name) {
        return name;
    }
    let mut head: String = name.chars().take(54).collect();
    while head.ends_with(['-', '.', '_']) {
        head.pop();
    }
    format!("{head}-{short}")
}

/// The patch that prepares `agent` for `agent_machine`; `None` when nothing is missing.
///
/// # Errors
/// [`Unsatisfiable`] when the AgentMachine's selector contradicts the pool's labels.
pub fn prepare(
    pool: &VsphereAgentPool,
    agent_machine: &AgentMachine,
    pin: &str,
    agent: &Agent,
) -> Result<Option<AgentPatch>, Unsatisfiable> {
    prepare_as(pool, agent_machine, pin, &agent_machine.name_any(), agent)
}

/// As [`prepare`], with another hostname than the AgentMachine's name.
///
/// # Errors
/// As [`prepare`].
pub fn prepare_as(
    pool: &VsphereAgentPool,
    agent_machine: &AgentMachine,
    pin: &str,
    hostname: &str,
    agent: &Agent,
) -> Result<Option<AgentPatch>, Unsatisfiable> {
    let mut base = base_labels(pool);
    base.insert(AGENT_MACHINE_LABEL.to_owned(), pin.to_owned());
    let wanted = selector::labels_for(
        agent_machine.spec.agent_label_selector.as_ref(),
        &base,
        agent.labels(),
    )?;
    let labels: BTreeMap<_, _> = wanted
        .into_iter()
        .filter(|(k, v)| agent.labels().get(k) != v.as_ref())
        .collect();
    let role = role(pool);
    let differs = |now: Option<&str>, want: &str| (now != Some(want)).then(|| want.to_owned());
    let mut patch = AgentPatch {
        labels,
        // The predecessor had decided to delete its VM, and that was withdrawn.
        annotations: is_let_go(agent)
            .then(|| (CLEANUP_VM_ANNOTATION.to_owned(), None))
            .into_iter()
            .collect(),
        approved: (pool.spec.agent.approve() && !agent.spec.approved).then_some(true),
        hostname: differs(agent.spec.hostname.as_deref(), hostname),
        role: differs(Some(agent.spec.role.as_str()), role),
        ..AgentPatch::of(agent)
    };
    // It is promised to that AgentMachine now: OSAC must not find it.
    applied::apply(pool, None, agent, &mut patch);
    Ok((!is_empty(&patch)).then_some(patch))
}

/// Whether the present VsphereAgent still wants the Agent that the operator planned to prepare. Since the plan, the VM may
/// have been given up, released or replaced, or be on its way into another life.
#[must_use]
pub fn is_wanted_by(planned: &ManagedVm, live: &ManagedVm) -> bool {
    let uuid = |child: &ManagedVm| child.identity.as_ref().map(|i| i.bios_uuid);
    let same = live.uid == planned.uid && uuid(live) == uuid(planned);
    same && !live.given_up && !live.deleting && live.recycling() == Stage::No
}

/// Whether a prepared Agent still waits for the approval of a user.
#[must_use]
pub fn awaits_approval(pool: &VsphereAgentPool, agent: &Agent) -> bool {
    !pool.spec.agent.approve() && !agent.spec.approved
}

/// The patch that removes `agent` from every selection; `None` if it is already out of all.
///
/// It removes each label that the selector of one of `choosers` or the pool's own labels could match on, and the class of OSAC
/// that the operator set. `choosers` are the
/// AgentMachines of all hosted clusters: they may share the Agents' namespace. It keeps the pin, and labels that the
/// assisted service and the provider write. If some selector would still match the rest, it also withdraws the approval. It
/// does not do that if the service would approve the Agent again (`auto_approved`).
#[must_use]
pub fn fence(
    own_labels: &Labels,
    choosers: &[Arc<AgentMachine>],
    auto_approved: bool,
    agent: &Agent,
) -> Option<AgentPatch> {
    fenced(own_labels, choosers, auto_approved, false, agent)
}

/// As [`fence`], for an Agent whose VM is being removed, or is on its way into another life. It always withdraws the approval: the
/// provider takes only approved Agents, and a new AgentMachine may appear at any time. If the service would approve the Agent
/// again, removing the labels must be enough. It removes the label by which OSAC chooses as well: OSAC asks for no approval.
#[must_use]
pub fn seal(
    own_labels: &Labels,
    choosers: &[Arc<AgentMachine>],
    auto_approved: bool,
    agent: &Agent,
) -> Option<AgentPatch> {
    fenced(own_labels, choosers, auto_approved, true, agent)
}

fn fenced(
    own_labels: &Labels,
    choosers: &[Arc<AgentMachine>],
    auto_approved: bool,
    whatever: bool,
    agent: &Agent,
) -> Option<AgentPatch> {
    // No AgentMachine chooses an unapproved Agent. If the service approves it again, its labels are removed.
    let out = is_let_go(agent) && !agent.spec.approved && !auto_approved;
    if out {
        return None;
    }
    let selectors: Vec<Option<&LabelSelector>> = choosers
        .iter()
        .map(|am| am.spec.agent_label_selector.as_ref())
        .collect();
    let mut keys: BTreeSet<String> = own_labels.keys().cloned().collect();
    for s in &selectors {
        keys.extend(selector::wanted_keys(*s));
    }
    keys.retain(|k| k != AGENT_MACHINE_LABEL && !selector::is_service_label(k));
    keys.extend(whatever.then(|| RESOURCE_CLASS_LABEL.to_owned()));
    let mut left = agent.labels().clone();
    left.retain(|k, _| !keys.contains(k));
    let still_matches = whatever || selectors.iter().any(|s| selector::matches(*s, &left));
    let mut patch = AgentPatch {
        labels: agent
            .labels()
            .keys()
            .filter(|k| keys.contains(*k))
            .map(|k| (k.clone(), None))
            .collect(),
        approved: (still_matches && agent.spec.approved && !auto_approved).then_some(false),
        ..AgentPatch::of(agent)
    };
    applied::withdraw(agent, &mut patch);
    (!is_empty(&patch)).then_some(patch)
}

/// Whether a patch changes nothing.
pub(super) fn is_empty(patch: &AgentPatch) -> bool {
    patch.labels.is_empty()
        && patch.annotations.is_empty()
        && patch.approved.is_none()
        && patch.hostname.is_none()
        && patch.role.is_none()
        && patch.node_labels.is_empty()
}

#[cfg(test)]
mod tests;
