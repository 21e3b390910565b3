//! Free hosts that change their pool: which one an AgentMachine gets from another pool, and what the lender leaves alone. Pure.

use std::{collections::BTreeSet, sync::Arc};

use agent_forge_crds::{
    conditions::Reason, external::agent::Agent, names::RESERVED_FOR_ANNOTATION,
};
use kube::ResourceExt as _;

use super::planned::{Action, Plan};
use crate::{
    demand::lending,
    domain::{managed_vm::ManagedVm, reassign::Reservation},
    placement::request,
    pool::observed::{Observed, RESERVED},
    ports::cluster::AgentPatch,
};

/// The host of another pool for the VsphereAgent of that name. `borrowed`: uids of the VsphereAgents whose hosts this plan
/// takes.
pub(super) fn host_for(
    s: &Observed,
    name: &str,
    borrowed: &mut BTreeSet<String>,
) -> Option<(ManagedVm, Arc<Agent>)> {
    let own = Reservation {
        pool: s.pool.uid()?,
        name: name.to_owned(),
    };
    let wanted = request::hardware(&s.pool).ok()?;
    let Some(host) = lending::choose(&s.lenders, &own, &wanted, borrowed) else {
        tell_refusals(s, &own);
        return None;
    };
    let agent = host.agent.clone()?;
    borrowed.insert(host.child.uid.clone());
    Some((host.child.clone(), agent))
}

/// Logs why no other pool lends a host.
fn tell_refusals(s: &Observed, own: &Reservation) {
    let Ok(wanted) = request::hardware(&s.pool) else {
        return;
    };
    for lender in &s.lenders {
        if let Some(refusal) = &lender.refusal {
            tracing::debug!(object = %s.key, "pool {} lends nothing: {refusal}", lender.key);
        }
        for host in &lender.hosts {
            if let Some(refusal) = lending::refuses(host, own, &wanted) {
                tracing::debug!(object = %s.key, "host {} is not lent: {refusal}", host.child.key);
            }
        }
    }
}

/// Another pool takes the host over: it is left alone. A reservation that means nothing any more goes.
pub(super) fn is_lent(s: &Observed, child: &ManagedVm, plan: &mut Plan) -> bool {
    if let Some(taker) = s.lent.to.get(&child.uid) {
        plan.wait(
            child.key.name.clone(),
            Reason::HostLent,
            format!(
                "VsphereAgent {taker} takes this host over: nothing is done to it here, and this VsphereAgent goes then"
            ),
        );
        // A reservation ends by time alone.
        plan.look_again(RESERVED);
        return true;
    }
    if child.in_buffer
        && s.lent.stale.contains(&child.uid)
        && let Some(agent) = &s.host(child).own
    {
        plan.actions.push(Action::Unreserve {
            patch: AgentPatch {
                annotations: [(RESERVED_FOR_ANNOTATION.to_owned(), None)].into(),
                ..AgentPatch::of(agent)
            },
            child: child.clone(),
        });
        // The other patches of this pass are made from the same state of the Agent.
        return true;
    }
    false
}

/// The patch that prepares `agent`, and also ends its reservation, if the lender's record is gone or the reservation means
/// nothing. A reservation alone is no reason for a patch.
pub(super) fn with_end(
    s: &Observed,
    child: &ManagedVm,
    agent: &Agent,
    patch: Option<AgentPatch>,
) -> Option<AgentPatch> {
    let reserved = agent.annotations().contains_key(RESERVED_FOR_ANNOTATION);
    let mut patch = patch?;
    let ended = s.settled.contains(&child.uid) || s.lent.stale.contains(&child.uid);
    if reserved && ended {
        let key = RESERVED_FOR_ANNOTATION.to_owned();
        patch.annotations.insert(key, None);
    }
    Some(patch)
}
