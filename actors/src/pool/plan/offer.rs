//! A host that is offered to its AgentMachine: what its Agent gets. Pure.

use agent_forge_crds::{
    conditions::Reason,
    external::{agent::Agent, agent_machine::AgentMachine},
};
use kube::ResourceExt;

use super::{
    demand,
    planned::{Action, Plan},
};
use crate::{
    demand::{buffer as waiting, prepare},
    domain::{belonging, managed_vm::ManagedVm, recycle::Stage},
    pool::observed::Observed,
    world::classify::{Demand, DemandState},
};

/// Prepares the Agent of a host for the AgentMachine that it is for, or says what that waits for.
pub(super) fn prepare_agent(
    s: &Observed,
    child: &ManagedVm,
    demand: Option<&Demand>,
    agent: &Agent,
    plan: &mut Plan,
) {
    // The VM was given up, and its Agent comes late. The VM actor fences the Agent and removes the VM.
    // Or it is on its way into another life, and what its Agent shows is out of date.
    if child.given_up || child.recycling() != Stage::No {
        return;
    }
    // Once its Agent is prepared, it may serve at any moment. The VM says so first: the VM actor sees to that.
    if !child.adopted && !child.is_marked() {
        return;
    }
    let Some(demand) = demand.filter(|c| c.state == DemandState::InFlight) else {
        return;
    };
    let home = agent.namespace().unwrap_or_default();
    if !s.grants.admit(&home, &s.pool) {
        let own = s.pool.namespace().unwrap_or_default();
        let message = s.grants.sentence(&[home], &own);
        plan.wait(demand.name(), Reason::NamespaceNotAllowed, message);
        return;
    }
    if s.host(child).approvable.is_none() && dispute(s, child, plan) {
        return;
    }
    let am = &demand.agent_machine;
    // The pin must be in the AgentMachine before its Agent can be chosen.
    let Some(pin) = belonging::pinned(am) else {
        demand::pin_if_needed(s, am, plan);
        return;
    };
    let hostname = hostname(s, child, am, agent);
    let prepared = prepare::prepare_as(s.pool_of(child), am, pin, &hostname, agent);
    match prepared {
        Ok(Some(patch)) => plan.actions.push(Action::Prepare {
            patch,
            child: child.clone(),
        }),
        Ok(None) if prepare::awaits_approval(&s.pool, agent) => {
            plan.wait(
                child.key.name.clone(),
                Reason::ApprovalRequired,
                format!(
                    "spec.agent.approve is false: approve Agent {} to let it join",
                    agent.name_any()
                ),
            );
        }
        Ok(None) => {}
        Err(why) => plan.wait(
            demand.name(),
            Reason::SelectorUnsatisfiable,
            why.to_string(),
        ),
    }
}

/// The name of the Node. A host of the buffer has its hostname already: then the claim changes labels only.
fn hostname(s: &Observed, child: &ManagedVm, am: &AgentMachine, agent: &Agent) -> String {
    let name = if child.is_of_buffer() {
        waiting::hostname(child)
    } else {
        am.name_any()
    };
    // Two Nodes cannot have one name: if another Agent has this one, the name gets a suffix.
    if s.is_hostname_taken(&name, agent) {
        prepare::pin_value(am, true)
    } else {
        name
    }
}

/// Reports why no Agent of this VM is approved, if an Agent names it.
pub(super) fn dispute(s: &Observed, child: &ManagedVm, plan: &mut Plan) -> bool {
    let Some(doubt) = s.host(child).doubt.clone() else {
        return false;
    };
    plan.wait(child.key.name.clone(), doubt.reason, doubt.message);
    true
}
