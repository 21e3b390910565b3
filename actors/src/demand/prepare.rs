//! Preparing and fencing: the two patches an Agent ever gets from us. Pure.
//!
//! Prepare: ONE patch that makes exactly the right AgentMachine bind exactly this Agent. Fence: the Agent can no longer
//! be claimed by anybody, from the moment its Machine is being deleted (upstream-contract.md §0.15).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use agent_forge_crds::{
    external::{agent::Agent, agent_machine::AgentMachine},
    names::{AGENT_MACHINE_LABEL, CLEANUP_VM_ANNOTATION, NODE_POOL_LABEL, NODE_POOL_ROLE_LABEL},
    pool::VsphereAgentPool,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;

use crate::{
    domain::{
        managed_vm::ManagedVm,
        names::ObjectKey,
        selector::{self, Labels, Unsatisfiable},
    },
    ports::cluster::AgentPatch,
};

/// Roles that the Assisted Installer knows (upstream-contract.md §3.1). The pool's role is a NodePool role and may be
/// any word; the Agent's is `worker` then.
const INSTALLER_ROLES: [&str; 5] = ["auto-assign", "master", "arbiter", "worker", "bootstrap"];

/// Labels that the pool puts on every Agent of its own.
#[must_use]
pub fn base_labels(pool: &VsphereAgentPool) -> Labels {
    let mut labels = pool.spec.agent.labels.clone();
    labels
        .entry(NODE_POOL_ROLE_LABEL.to_owned())
        .or_insert_with(|| pool.spec.agent.role().to_owned());
    labels
}

/// Start of keys that OSAC goes by.
const OSAC: &str = "osac.openshift.io/";
/// Start of our own keys.
const OWN: &str = "agent-forge.containeroo.ch/";

/// The first key of `spec.agent.labels` that a service reads more from than that the Agent is this pool's: the claim and
/// what else is the assisted service's or the provider's, what OSAC goes by, and our own. The label `nodepool` of ours is
/// a pool's to set: it tells pools of one selection apart, and nothing else is read from it.
#[must_use]
pub fn refused_label(pool: &VsphereAgentPool) -> Option<&str> {
    let is_refused = |key: &&String| {
        let own = key.starts_with(OWN) && *key != NODE_POOL_LABEL;
        own || key.starts_with(OSAC) || selector::is_service_label(key)
    };
    let mut keys = pool.spec.agent.labels.keys();
    keys.find(is_refused).map(String::as_str)
}

/// What is said of [`refused_label`].
#[must_use]
pub fn refused_label_sentence(key: &str) -> String {
    format!(
        "spec.agent.labels: {key:?} is a label that a service goes by, not a pool's to give; take it out (labels of your own \
         keys, and {NODE_POOL_LABEL}, tell the pool's Agents apart)"
    )
}

/// Value of the selection pin: the AgentMachine's bare name; where another AgentMachine of that name exists in another
/// namespace, the name and 8 characters of its uid (predecessor.md §1). Shortened to a label value.
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

/// The pin that the AgentMachine carries, if any.
#[must_use]
pub fn pinned(agent_machine: &AgentMachine) -> Option<&String> {
    agent_machine
        .spec
        .agent_label_selector
        .as_ref()?
        .match_labels
        .as_ref()?
        .get(AGENT_MACHINE_LABEL)
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
    let role = Some(pool.spec.agent.role())
        .filter(|r| INSTALLER_ROLES.contains(r))
        .unwrap_or("worker");
    let differs = |now: Option<&str>, want: &str| (now != Some(want)).then(|| want.to_owned());
    let patch = AgentPatch {
        key: ObjectKey::of(agent),
        uid: agent.uid().unwrap_or_default(),
        resource_version: agent.resource_version().unwrap_or_default(),
        labels,
        // The predecessor had decided to delete its VM, and that was taken back.
        annotations: is_let_go(agent)
            .then(|| (CLEANUP_VM_ANNOTATION.to_owned(), None))
            .into_iter()
            .collect(),
        approved: (pool.spec.agent.approve() && !agent.spec.approved).then_some(true),
        hostname: differs(agent.spec.hostname.as_deref(), hostname),
        role: differs(Some(agent.spec.role.as_str()), role),
    };
    Ok((!is_empty(&patch)).then_some(patch))
}

/// Whether the VsphereAgent as it is now still wants the Agent that was to be prepared for it as it was `planned`: its VM
/// may be given up, let go, or another one since.
#[must_use]
pub fn is_wanted_by(planned: &ManagedVm, live: &ManagedVm) -> bool {
    let uuid = |child: &ManagedVm| child.identity.as_ref().map(|i| i.bios_uuid);
    let same = live.uid == planned.uid && uuid(live) == uuid(planned);
    same && !live.given_up && !live.deleting
}

/// Whether a prepared Agent still waits for a person's approval.
#[must_use]
pub fn awaits_approval(pool: &VsphereAgentPool, agent: &Agent) -> bool {
    !pool.spec.agent.approve() && !agent.spec.approved
}

/// The patch that takes `agent` out of every selection; `None` when it is out already.
///
/// Takes off every label that the selector of one of `choosers` (the AgentMachines of all hosted clusters: they may share
/// the Agents' namespace) or the pool's own labels could match on, the pin and what the assisted service and the provider write excepted; where some selector would still
/// match what is left, the approval goes as well, unless the service would give it again (`auto_approved`).
#[must_use]
pub fn fence(
    own_labels: &Labels,
    choosers: &[Arc<AgentMachine>],
    auto_approved: bool,
    agent: &Agent,
) -> Option<AgentPatch> {
    fenced(own_labels, choosers, auto_approved, false, agent)
}

/// As [`fence`], for an Agent whose VM goes: the approval goes whatever anybody asks for now, for the provider takes approved
/// ones alone, and an AgentMachine may be made at any moment (upstream-contract.md §1.5). Where the service would give it
/// again, the labels have to do.
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
    // Unapproved it is chosen by nobody; where the service approves it again, its labels go.
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
    let mut left = agent.labels().clone();
    left.retain(|k, _| !keys.contains(k));
    let still_matches = whatever || selectors.iter().any(|s| selector::matches(*s, &left));
    let patch = AgentPatch {
        key: ObjectKey::of(agent),
        uid: agent.uid().unwrap_or_default(),
        resource_version: agent.resource_version().unwrap_or_default(),
        labels: agent
            .labels()
            .keys()
            .filter(|k| keys.contains(*k))
            .map(|k| (k.clone(), None))
            .collect(),
        annotations: BTreeMap::new(),
        approved: (still_matches && agent.spec.approved && !auto_approved).then_some(false),
        hostname: None,
        role: None,
    };
    (!is_empty(&patch)).then_some(patch)
}

/// The predecessor has decided to delete the VM that runs it (predecessor.md §6).
#[must_use]
pub fn is_let_go(agent: &Agent) -> bool {
    agent.annotations().contains_key(CLEANUP_VM_ANNOTATION)
}

fn is_empty(patch: &AgentPatch) -> bool {
    patch.labels.is_empty()
        && patch.annotations.is_empty()
        && patch.approved.is_none()
        && patch.hostname.is_none()
        && patch.role.is_none()
}

#[cfg(test)]
mod tests;
