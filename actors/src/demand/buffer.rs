//! The buffer of a pool: hosts that are discovered, unbound and ready before anybody asks. Pure.
//!
//! A buffer host carries none of the pool's labels, so no AgentMachine of the pool can choose it. Hostname and role are set
//! while it waits. A claim then only adds labels and the pin.
//!
//! Guarantee: an Agent waits approved only while no AgentMachine's selector matches its labels. The provider takes the
//! first approved Agent that fits, in the order of its cache.

pub mod schedule;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use agent_forge_crds::{
    duration,
    external::{
        agent::{Agent, BOUND, CONNECTED, RESOURCE_CLASS_LABEL, SPEC_SYNCED, VALIDATED},
        agent_machine::AgentMachine,
    },
    names::AGENT_MACHINE_LABEL,
    pool::{ScalingSpec, VsphereAgentPool},
};
use jiff::Timestamp;
use kube::ResourceExt as _;
use sha2::{Digest as _, Sha256};

use super::{applied, prepare};
use crate::{
    domain::{belonging, managed_vm::ManagedVm, recycle, selector},
    ports::cluster::AgentPatch,
};

/// Hexadecimal digits at the end of a name.
const DIGITS: usize = 10;
/// Most characters of an object's name whose VM, hostname and labels keep it whole: a label value has at most 63, and the
/// hostname ends in a dash and the number of the guest's life.
const LONGEST: usize = 58;
/// Most characters of a hostname.
const HOSTNAME: usize = 63;

/// How many hosts the buffer is to have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Hosts that are made if there are fewer.
    pub wanted: usize,
    /// Hosts that stay at most.
    pub most: usize,
    /// A host that has waited for longer is replaced.
    pub max_age: Option<Duration>,
    /// How long until the schedule changes the size.
    pub left: Option<Duration>,
}

impl Size {
    /// Reads it from the spec at that time. `recycles`: hosts come back. Then all of them stay unless `bufferMax` is set.
    ///
    /// Also returns what is wrong with the spec, in one sentence for each field. A field that is wrong counts as absent.
    #[must_use]
    pub fn read(scaling: &ScalingSpec, recycles: bool, now: Timestamp) -> (Self, Vec<String>) {
        let number = |n: i32| usize::try_from(n).unwrap_or_default();
        let base = scaling.buffer_agents.map_or(0, number);
        let mut wrong = Vec::new();
        let (scheduled, left) = match schedule::at(&scaling.buffer_schedule, now) {
            Ok(found) => found,
            Err(why) => {
                wrong.push(format!("spec.scaling.bufferSchedule: {why}"));
                (None, None)
            }
        };
        let wanted = scheduled.unwrap_or(base);
        let text = scaling.buffer_max_age.as_deref().filter(|t| !t.is_empty());
        let max_age = text.and_then(|text| match duration::parse(text) {
            Ok(age) => Some(age).filter(|age| !age.is_zero()),
            Err(why) => {
                wrong.push(format!("spec.scaling.bufferMaxAge: {why}"));
                None
            }
        });
        let unset = if recycles { usize::MAX } else { wanted };
        let most = scaling.buffer_max.map_or(unset, number).max(wanted);
        let size = Self {
            wanted,
            most,
            max_age,
            left,
        };
        (size, wrong)
    }
}

/// The name of the VsphereAgent and of the VM in a place of the buffer. The same place always has the same name, so a
/// create that is repeated makes nothing twice.
#[must_use]
pub fn name(pool: &VsphereAgentPool, place: usize) -> String {
    let uid = pool.uid().unwrap_or_default();
    let hex = hex::encode(Sha256::digest(format!("{uid}/{place}")));
    let head: String = pool.name_any().chars().take(LONGEST - DIGITS - 1).collect();
    let head = head.trim_end_matches(['-', '.']);
    format!("{head}-{}", &hex[..DIGITS])
}

/// The hostname of a guest of the buffer: the VM's name, and the number of the guest's life. A dot would begin the name of a
/// domain.
#[must_use]
pub fn hostname(child: &ManagedVm) -> String {
    named(&child.vm_name, child.vm().map_or(1, recycle::generation))
}

fn named(vm_name: &str, life: u32) -> String {
    let end = format!("-{life}");
    let head = vm_name.chars().take(HOSTNAME - end.len());
    let head = head.collect::<String>().replace('.', "-");
    format!("{}{end}", head.trim_end_matches('-'))
}

/// Since when it is a new host: since its life began, or it was made.
#[must_use]
pub fn since(child: &ManagedVm) -> Option<Timestamp> {
    let life = child.vm().and_then(|vm| vm.generation_since.as_ref());
    let created = child.object.metadata.creation_timestamp.as_ref();
    life.or(created).map(|t| t.0)
}

/// Whether that Agent could be claimed now, but for labels and approval: it answers, its validations hold, it is unbound,
/// it has hostname and role, and the service says that the host has them too.
///
/// `SpecSynced` says that. No condition of an Agent has an `observedGeneration`, so for some seconds after a change it may still
/// be about the spec before. If the Agent is claimed in that moment, the provider and the service try again until both agree.
#[must_use]
pub fn is_ready(pool: &VsphereAgentPool, child: &ManagedVm, agent: &Agent) -> bool {
    let condition = |type_| agent.condition(type_);
    condition(BOUND).is_some_and(|c| c.is_false())
        && condition(CONNECTED).is_some_and(|c| c.is_true())
        && condition(VALIDATED).is_some_and(|c| c.is_true())
        && condition(SPEC_SYNCED).is_some_and(|c| c.is_true())
        && !agent.is_claimed_or_bound()
        && !agent.is_deleting()
        && agent.spec.hostname.as_deref() == Some(&hostname(child))
        && agent.spec.role == prepare::role(pool)
}

/// The patch that makes `agent` wait in the buffer; `None` when nothing is missing. `choosers`: the AgentMachines of all
/// hosted clusters. `auto_approved`: the service approves it anyway. `proven`: it runs on that VM, so OSAC may find it once it is
/// ready and nothing else has to be changed.
#[must_use]
pub fn wait(
    pool: &VsphereAgentPool,
    child: &ManagedVm,
    choosers: &[Arc<AgentMachine>],
    auto_approved: bool,
    proven: bool,
    agent: &Agent,
) -> Option<AgentPatch> {
    let mut patch = waiting(pool, child, choosers, auto_approved, agent);
    let mut labelled = patch.clone();
    let class = pool.spec.agent.resource_class.as_deref();
    applied::apply(pool, class, agent, &mut labelled);
    let offered = proven
        && agent.spec.approved
        && prepare::is_empty(&patch)
        && labelled.node_labels.is_empty()
        && is_ready(pool, child, agent);
    if offered {
        patch = labelled;
    } else {
        applied::withdraw(agent, &mut patch);
        // What takes something away asks for no proof, so it gives no labels.
        if !takes_away(&patch) {
            applied::apply(pool, None, agent, &mut patch);
        }
    }
    (!prepare::is_empty(&patch)).then_some(patch)
}

/// What takes `agent` out of all selections, and gives it its name.
fn waiting(
    pool: &VsphereAgentPool,
    child: &ManagedVm,
    choosers: &[Arc<AgentMachine>],
    auto_approved: bool,
    agent: &Agent,
) -> AgentPatch {
    let mut own = belonging::base_labels(pool);
    own.insert(AGENT_MACHINE_LABEL.to_owned(), String::new());
    let mut left = agent.labels().clone();
    left.retain(|key, _| !own.contains_key(key));
    // As if OSAC found it already: else the class and the approval would come and go in turn.
    if let Some(class) = &pool.spec.agent.resource_class {
        left.entry(RESOURCE_CLASS_LABEL.to_owned())
            .or_insert_with(|| class.clone());
    }
    let chosen = choosers.iter().any(|am| {
        let selector = am.spec.agent_label_selector.as_ref();
        !am.is_deleting() && selector::matches(selector, &left)
    });
    let approved = if chosen {
        agent.spec.approved && auto_approved
    } else {
        // Where the pool does not approve, a person may have done it.
        agent.spec.approved || pool.spec.agent.approve()
    };
    let hostname = hostname(child);
    let role = prepare::role(pool);
    AgentPatch {
        labels: agent
            .labels()
            .keys()
            .filter(|key| own.contains_key(*key))
            .map(|key| (key.clone(), None))
            .collect(),
        approved: (agent.spec.approved != approved).then_some(approved),
        hostname: (agent.spec.hostname.as_ref() != Some(&hostname)).then_some(hostname),
        role: (agent.spec.role != role).then(|| role.to_owned()),
        ..AgentPatch::of(agent)
    }
}

/// Whether a patch takes something away: then it needs no proof of the VM's identity.
#[must_use]
pub fn takes_away(patch: &AgentPatch) -> bool {
    patch.approved == Some(false) || patch.labels.values().any(Option::is_none)
}
