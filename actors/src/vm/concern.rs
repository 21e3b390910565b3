//! Reasons in words why a VM does not become or stay a node, although no step failed. Pure.

use std::time::Duration;

use agent_forge_crds::{
    agent::VmStatus,
    conditions::Reason,
    external::agent::{Agent, BOUND},
    names::REPLACE_ANNOTATION,
};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use super::{
    boot_repair,
    known::{Known, Obstacle},
    lost::{self, BINDING, Lost},
    memory::subject,
    step::MISSING_PROBE,
};
use crate::domain::identity::{AgentMatch, Misfit, agent_runs_on, lineup};

/// What keeps the VM from becoming or staying a node although no step failed.
#[must_use]
pub fn concern(known: &Known<'_>, vm: &VmStatus) -> Option<Obstacle> {
    if !known.machine_state.wants_host() || known.child.deleting {
        return None;
    }
    let said = |reason, message| {
        Some(Obstacle {
            subject: subject(&known.child.key),
            reason,
            message,
        })
    };
    let serves = known.agent.is_some_and(Agent::is_claimed_or_bound);
    if let Some(doubt) = known.doubt.filter(|_| !serves) {
        return said(doubt.reason.clone(), doubt.message.clone());
    }
    if known.asked && (known.bound || known.served) {
        return said(
            Reason::ReplaceRefused,
            format!(
                "the annotation {REPLACE_ANNOTATION} asks for another VM, and the Agent of this one serves a Machine, or did: it \
                 is not replaced. Delete the Machine, or take the annotation off"
            ),
        );
    }
    match known.candidate {
        Some(agent) => of_agent(known, vm, agent),
        None => without_agent(known, vm).and_then(|(reason, message)| said(reason, message)),
    }
}

/// What is wrong with its Agent.
fn of_agent(known: &Known<'_>, vm: &VmStatus, agent: &Agent) -> Option<Obstacle> {
    let said = |reason, message| {
        Some(Obstacle {
            subject: subject(&known.child.key),
            reason,
            message,
        })
    };
    // The steps of the VM say what is done about it.
    if boot_repair::is_needed(known.child, agent) {
        return None;
    }
    if boot_repair::is_restarted(agent) {
        return said(
            Reason::HostRestarted,
            format!(
                "Agent {}: the guest restarted in the middle of the installation, which failed by that. Its Machine has to be \
                 replaced: a MachineHealthCheck does that, or delete the Machine",
                agent.name_any()
            ),
        );
    }
    if !agent.is_claimed_or_bound() {
        return unclaimable(known, vm, agent);
    }
    if let Ok(why) = stuck(agent, vm, known.steady) {
        return said(Reason::AgentStuck, why);
    }
    let identity = known.child.identity.as_ref()?;
    let differs = agent_runs_on(agent, identity) == AgentMatch::Partly(Misfit::Mac);
    let doubt = differs.then(|| lineup::mac_differs(agent))?;
    said(doubt.reason, doubt.message)
}

/// What it means that no Agent is there.
fn without_agent(known: &Known<'_>, vm: &VmStatus) -> Option<(Reason, String)> {
    // An Agent that the caches had no room for is not gone.
    if !known.holds.over_bound.is_empty() {
        return None;
    }
    if !known.any_agent && known.served {
        let name = vm.agent_ref.as_ref().and_then(|r| r.name.as_deref());
        let which = name.map_or("the Agent".to_owned(), |name| format!("Agent {name}"));
        let message = format!(
            "the Agent of this VM served a Machine and is gone; the VM is left alone, for it may be a node. Restore {which} if you \
             have a backup. Delete the Machine to replace it"
        );
        return Some((Reason::AgentMissing, message));
    }
    if known.lost == Some(Lost::Gone) {
        let message = format!(
            "the Agent of this VM registered and was deleted before it served: no other one comes before the guest boots again. {}",
            replaced(known, vm)
        );
        return Some((Reason::AgentMissing, message));
    }
    let expired = vm.reason == Some(Reason::AgentDiscoveryExpired);
    expired.then(|| {
        let message = format!(
            "VM {} ({}, MAC {}) runs, and no Agent with its identity has registered in time: look at its console (does it boot the \
             ISO?), its network (DHCP, DNS, the way to the assisted service) and the InfraEnv",
            vm.name,
            vm.moref.as_deref().unwrap_or("no reference"),
            vm.mac_addresses.join(", ")
        );
        (Reason::AgentDiscoveryExpired, message)
    })
}

/// When the answer changes by time alone.
#[must_use]
pub fn wakes(known: &Known<'_>, vm: &VmStatus) -> Option<Duration> {
    let lost = known.lost.and(vm.agent_lost_since.as_ref());
    let lost = lost.map(|since| lost::left(since.0, known.patience, known.now));
    let agent = known.candidate.map(|agent| {
        if agent.is_claimed_or_bound() {
            stuck(agent, vm, known.steady).err().flatten()
        } else {
            lost::failing(agent, known.steady).err().flatten()
        }
    });
    let agent = agent.flatten().and_then(|d| Duration::try_from(d).ok());
    // A replaced network card is looked for again.
    let differs = concern(known, vm).is_some_and(|o| o.reason == Reason::MacDiffers);
    let card = differs.then_some(MISSING_PROBE);
    let due = lost
        .into_iter()
        .chain(agent)
        .chain(card)
        .filter(|d| !d.is_zero());
    due.min().map(|d| d + Duration::from_secs(1))
}

/// What happens to a VM whose Agent is lost.
fn replaced(known: &Known<'_>, vm: &VmStatus) -> String {
    let at = vm.agent_lost_since.as_ref().map_or(known.now, |t| t.0);
    let patience = SignedDuration::try_from(known.patience).unwrap_or_default();
    match at.checked_add(patience) {
        Ok(due) if due > known.now => format!("The VM is replaced if that is so until {due:.0}"),
        _ => "The VM is to be replaced".to_owned(),
    }
}

/// The concern for a free Agent that no Machine can claim.
fn unclaimable(known: &Known<'_>, vm: &VmStatus, agent: &Agent) -> Option<Obstacle> {
    let said = |reason, message| {
        Some(Obstacle {
            subject: subject(&known.child.key),
            reason,
            message,
        })
    };
    let (name, state) = (agent.name_any(), agent.state());
    if known.lost == Some(Lost::Disconnected) {
        return said(
            Reason::AgentDisconnected,
            format!(
                "Agent {name} is in state {state:?}: the service does not hear from its guest any more, and nobody can claim it. \
                 Look at the VM's console and its network. {}",
                replaced(known, vm)
            ),
        );
    }
    if known.lost.is_none() && lost::is_abandoned(agent) {
        return said(
            Reason::AgentDisconnected,
            format!(
                "Agent {name} is in state {state:?}: the service does not hear from its guest any more, and nobody can claim it. \
                 Its VM has served before, so it is not replaced: delete its Machine"
            ),
        );
    }
    if vm.reason == Some(Reason::AgentDiscoveryExpired) && lost::has_no_inventory(agent) {
        let next = if known.child.in_buffer {
            "The VM is to be replaced"
        } else {
            "No Machine can claim it: the VM is replaced when its Machine is deleted, or a person asks for that"
        };
        return said(
            Reason::AgentDiscoveryExpired,
            format!(
                "Agent {name} registered and sent no inventory in time: look at the VM's console and the agent service in its \
                 guest. {next}"
            ),
        );
    }
    let why = lost::failing(agent, known.steady).ok()?;
    said(
        Reason::AgentValidationsFailing,
        format!(
            "Agent {name} is in state {state:?} and cannot be claimed: {}. Mend what its conditions and status.validationsInfo say{}",
            if why.is_empty() {
                "its validations fail"
            } else {
                why.trim_end_matches('.')
            },
            if known.lost == Some(Lost::Insufficient) {
                format!(". {}", replaced(known, vm))
            } else {
                String::new()
            }
        ),
    )
}

/// Why a reserved Agent makes no progress by itself.
///
/// # Errors
/// How long until that is so. `None`: it makes progress.
fn stuck(agent: &Agent, vm: &VmStatus, now: Timestamp) -> Result<String, Option<SignedDuration>> {
    let state = agent.state();
    let detail = match state {
        "error" | "cancelled" | "installing-pending-user-action" | "pending-for-input" => {
            lost::first_line(agent.state_info())
        }
        "insufficient" => lost::failing(agent, now)?,
        "binding" => {
            let bound = agent.condition(BOUND).filter(|c| c.is_false());
            // A host that waited before was not bound either, so its condition is older than its claim.
            let since = bound.and_then(|c| c.last_transition_time.as_ref());
            let since = since.max(vm.last_transition_time.as_ref());
            let lasted = since.map_or(SignedDuration::ZERO, |t| now.duration_since(t.0));
            if lasted < BINDING {
                return Err(Some(BINDING - lasted));
            }
            "its guest does not answer".to_owned()
        }
        // A running node does not answer the service, and does not have to.
        _ if lost::is_silent(agent) && !agent.is_installed() => {
            "the service does not hear from its guest any more".to_owned()
        }
        _ => return Err(None),
    };
    let detail = if detail.is_empty() {
        detail
    } else {
        format!(" ({})", detail.trim_end_matches('.'))
    };
    Ok(format!(
        "Agent {} is reserved and in state {state:?}{detail}: see its conditions; only the deletion of its Machine sets it free",
        agent.name_any()
    ))
}
