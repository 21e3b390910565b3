//! Dead on arrival: may a VM whose Agent is overdue be given up, and how does one that was go?

use agent_forge_crds::{
    conditions::{reason, vm_reason},
    pool::CleanupPolicy,
};

use super::{
    CONFLICT_PROBE, Facts, PROOFS, Step, ambiguous, bare, down, has_new_mac, hold, serves,
};
use crate::{
    ports::vcenter::VmObservation,
    vm::{
        arrival::{self, Arrival, Cause},
        lost::Lost,
        ownership::Ownership,
    },
};

/// Its Agent is overdue, and this is how the VM looks now.
pub(super) fn overdue(f: &Facts<'_>, shown: &VmObservation) -> Step {
    let Arrival::Overdue {
        cause,
        exhausted,
        allowed,
    } = f.arrival
    else {
        return Step::Settled;
    };
    let ask = |reason, message: String| hold(reason, message, Some(CONFLICT_PROBE));
    let class = arrival::class(shown);
    let advice = arrival::advice(class);
    let (happened, reason) = (cause.explain(), said_as(cause));
    let allow = format!(
        "to have it replaced, annotate the VsphereAgent with agent-forge.containeroo.ch/replace={}",
        f.vm.and_then(|v| v.attempt).unwrap_or(1)
    );
    if f.policy == Some(CleanupPolicy::Retain) {
        return ask(
            reason,
            format!("{happened} ({class}), and cleanupPolicy Retain keeps the VM; {advice}"),
        );
    }
    if allowed {
        return Step::GiveUp;
    }
    if exhausted {
        return ask(
            reason::REPLACEMENTS_EXHAUSTED,
            format!(
                "{happened} ({class}), as with the {} VMs before it: another one will not mend it; {advice}; {allow}",
                arrival::REPLACEMENTS
            ),
        );
    }
    if f.guest_may_be_node || arrival::may_serve(shown) && !f.powered_on_by_us {
        return ask(
            reason,
            format!(
                "{happened}, and the guest calls itself {:?}, or did before: it may be a node whose Agent is missing here \
                 (was the hub restored from a backup?), so it is left alone; {allow}",
                shown.guest_host.as_deref().unwrap_or_default()
            ),
        );
    }
    Step::GiveUp
}

/// The reason under which a cause is said.
fn said_as(cause: Cause) -> &'static str {
    match cause {
        Cause::Lost(Lost::Disconnected) => reason::AGENT_DISCONNECTED,
        Cause::Lost(Lost::Gone) => reason::AGENT_MISSING,
        Cause::NotRegistered => vm_reason::AGENT_DISCOVERY_EXPIRED,
        Cause::Asked => reason::REPLACE_REFUSED,
    }
}

/// The VM was given up: away with it, then the next attempt.
pub(super) fn given_up(f: &Facts<'_>) -> Step {
    if let Some(agent) = f.unproven.filter(|_| f.agent_bound && !f.has_served) {
        return hold(
            reason::AGENT_UNPROVEN,
            format!(
                "the VM was given up, and Agent {agent} names it and serves a Machine: the VM is left alone. If that is another \
                 host, delete that Agent, or delete the VsphereAgent with the annotation \
                 agent-forge.containeroo.ch/force-delete=true"
            ),
            None,
        );
    }
    if serves(f) {
        return hold(
            reason::AGENT_BOUND,
            "the VM was given up, and at the last moment its Agent was bound, or had been: it is left alone, and goes with its Machine",
            None,
        );
    }
    if f.agent_present && !f.agent_fenced {
        return Step::FenceAgent;
    }
    match f.seen {
        Ownership::NotAsked => Step::Lookup,
        // Its Agent is told by the addresses on record: without them it would be left behind.
        Ownership::Ours(vm) if has_new_mac(f, vm) => Step::RecordVm,
        Ownership::Ours(vm) => down(f, vm),
        Ownership::Several(all) => ambiguous(all.len()),
        Ownership::Bare { what, at } => bare(f, what, *at),
        Ownership::Foreign { what, .. } => hold(
            reason::OWNERSHIP_UNPROVEN,
            format!("{what} is not proven to be the VM that was given up; it is left alone"),
            Some(CONFLICT_PROBE),
        ),
        Ownership::Absent { proofs } if *proofs < PROOFS => Step::Lookup,
        Ownership::Absent { .. } if f.agent_present => Step::DeleteAgent,
        Ownership::Absent { .. } => Step::NextAttempt,
    }
}
