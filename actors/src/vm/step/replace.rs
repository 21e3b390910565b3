//! A VM whose Agent does not come: whether it may be given up, and how one that was given up is replaced.

use agent_forge_crds::conditions::Reason;

use super::{
    facts::Facts,
    guest,
    owned::{OwnedVm, Purpose, resolve_ownership},
    remove,
    steps::{Attempt, Step},
    wait::{CONFLICT_PROBE, Met, hold},
};
use crate::{
    domain::recycle::Stage,
    lifecycle::{self, End, Unneeded},
    ports::vcenter::VmObservation,
    vm::{
        arrival::{self, Arrival, Cause},
        lost::Lost,
    },
};

/// The Agent of `shown` is overdue: the VM is given up, unless a person has to decide.
pub(super) fn give_up(f: &Facts<'_>, shown: &VmObservation) -> Met {
    let Arrival::Overdue {
        cause,
        exhausted,
        allowed,
    } = f.arrival
    else {
        return Ok(());
    };
    let ask = |reason, message: String| Err(hold(reason, message, Some(CONFLICT_PROBE)));
    let (class, advice) = evidence(cause, shown);
    let (happened, reason) = (cause.explain(), said_as(cause));
    let allow = format!(
        "to have it replaced, annotate the VsphereAgent with agent-forge.containeroo.ch/replace={}",
        f.record.vm.and_then(|v| v.attempt).unwrap_or(1)
    );
    let unneeded = Unneeded::AgentOverdue {
        keeps_disk: f.recycle.keeps_disk,
    };
    let end = lifecycle::end(unneeded, f.pool.policy);
    if end == End::LeaveToPeople {
        return ask(
            reason,
            format!(
                "{happened} ({class}), and {} keeps the VM; {advice}",
                f.pool.policy
            ),
        );
    }
    if allowed {
        return Err(Step::Attempt(Attempt::GivenUp));
    }
    guest::record_is_current(f)?;
    if end == End::Hold {
        return ask(
            reason,
            format!(
                "{happened} ({class}), and the disk of the VM has, or may have, data of its life before (spec.release.disk Keep): \
                 it is not removed for that; {advice}; {allow}"
            ),
        );
    }
    if exhausted {
        return ask(
            Reason::ReplacementsExhausted,
            format!(
                "{happened} ({class}), as with the {} VMs before it: another one will not mend it; {advice}; {allow}",
                arrival::REPLACEMENTS
            ),
        );
    }
    if let Some(why) = may_be_node(f, cause, shown) {
        return ask(
            reason,
            format!("{happened} ({class}), and {why}, so it is left alone; {allow}"),
        );
    }
    Err(Step::Attempt(Attempt::GivenUp))
}

/// Why the guest of a VM whose Agent is overdue may be a node.
fn may_be_node(f: &Facts<'_>, cause: Cause, shown: &VmObservation) -> Option<String> {
    // In its life before, at least.
    let registered = f.recycle.stage == Stage::Begun
        || matches!(
            cause,
            Cause::NoInventory | Cause::Lost(Lost::Disconnected | Lost::Gone)
        );
    if registered && f.may_be_silent_node() {
        return Some(
            "nothing proves that its guest never served: it may be a node that this hub has forgotten (was it restored from a \
             backup?)"
                .to_owned(),
        );
    }
    let has_name = f.agent.guest_may_be_node || arrival::may_serve(shown) && !f.vm.powered_on_by_us;
    // With another template, that is decided before: [`crate::vm::drift`]. A guest whose
    // validations fail runs the discovery image: it is no node. So does one without inventory that nobody was offered.
    let decided = match cause {
        Cause::TemplateChanged | Cause::Lost(Lost::Insufficient) => true,
        Cause::NoInventory => f.mark.offered_to_nobody,
        _ => false,
    };
    (has_name && !decided).then(|| {
        format!(
            "the guest calls itself {:?}, or did before: it may be a node whose Agent is missing here (was the hub restored from \
             a backup?)",
            shown.guest_host.as_deref().unwrap_or_default()
        )
    })
}

/// What the VM shows of its guest, in a word, and what a person can do.
fn evidence(cause: Cause, shown: &VmObservation) -> (&'static str, &'static str) {
    match cause {
        Cause::Lost(Lost::Insufficient) => {
            let advice = "see status.validationsInfo of the Agent";
            (arrival::class_of(cause, shown), advice)
        }
        Cause::NoInventory => {
            let advice = "look at the agent service in its guest";
            (arrival::class_of(cause, shown), advice)
        }
        _ => {
            let class = arrival::class(shown);
            (class, arrival::advice(class))
        }
    }
}

/// The reason that people see for `cause`.
fn said_as(cause: Cause) -> Reason {
    match cause {
        Cause::Lost(Lost::Disconnected) => Reason::AgentDisconnected,
        Cause::Lost(Lost::Gone) => Reason::AgentMissing,
        Cause::Lost(Lost::Insufficient) => Reason::AgentValidationsFailing,
        Cause::NotRegistered | Cause::NoInventory => Reason::AgentDiscoveryExpired,
        Cause::Asked => Reason::ReplaceRefused,
        Cause::TemplateChanged => Reason::TemplateChanged,
    }
}

/// The VM was given up: it is removed, then comes the next attempt.
pub(super) fn replace(f: &Facts<'_>) -> Met {
    agent_never_served(f)?;
    guest::agent_is_fenced(f)?;
    match resolve_ownership(f, Purpose::Replace)? {
        OwnedVm::There(_)
            if lifecycle::end(Unneeded::GivenUp, f.pool.policy) == End::LeaveToPeople =>
        {
            let message = format!(
                "the VM was given up, and {} keeps it: take that off to have the VM replaced",
                f.pool.policy
            );
            Err(hold(Reason::Retained, message, Some(CONFLICT_PROBE)))
        }
        OwnedVm::There(shown) => remove::take_down(f, shown),
        OwnedVm::Absent => {
            guest::agent_is_deleted(f)?;
            Err(Step::Attempt(Attempt::Next))
        }
    }
}

fn agent_never_served(f: &Facts<'_>) -> Met {
    if !f.serves() {
        return Ok(());
    }
    let unproven = f.agent.unproven.filter(|_| f.agent.bound);
    if let Some(agent) = unproven.filter(|_| !f.agent.has_served) {
        let message = format!(
            "the VM was given up, and Agent {agent} names it and serves a Machine: the VM is left alone. If that is another \
             host, delete that Agent, or delete the VsphereAgent with the annotation \
             agent-forge.containeroo.ch/force-delete=true"
        );
        return Err(hold(Reason::AgentUnproven, message, None));
    }
    Err(hold(
        Reason::AgentBound,
        "the VM was given up, and at the last moment its Agent was bound, or had been: it is left alone, and goes with its Machine",
        None,
    ))
}
