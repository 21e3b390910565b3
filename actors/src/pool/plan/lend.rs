//! Free hosts of the other pools of the group, and own hosts that another VsphereAgent has. Pure.

use agent_forge_crds::conditions::Reason;

use super::{matching::Want, planned::Plan};
use crate::{
    demand::lending::{self, Offer},
    domain::managed_vm::ManagedVm,
    placement::request,
    pool::observed::Observed,
    world::classify::Demand,
};

/// The hosts of other pools that AgentMachines of this one can get. The best one is the last.
pub(super) fn hosts(s: &Observed) -> Vec<&Offer> {
    let mut all = lending::for_pool(&s.group.lenders);
    all.retain(|host| !s.pending.passed_over.contains(&host.child.uid));
    all
}

/// What an AgentMachine wants of a host.
pub(super) fn want(s: &Observed, demand: &Demand) -> Want {
    let class = demand.class.clone();
    Want {
        hardware: request::hardware(s.sizes.pool(class.as_deref())).ok(),
        class,
    }
}

/// Says in the log why no host of another pool is for that one.
pub(super) fn tell_refused(s: &Observed, want: &Want) {
    for lender in &s.group.lenders {
        if let Some(refusal) = &lender.refusal {
            tracing::debug!(object = %s.key, "pool {} gives nothing: {refusal}", lender.key);
        }
        for host in &lender.hosts {
            let refusal = want
                .hardware
                .as_ref()
                .and_then(|w| lending::refuses(host, w));
            if let Some(refusal) = refusal {
                tracing::debug!(object = %s.key, "host {} is not given: {refusal}", host.child.key);
            }
        }
    }
}

/// A release before 1.0 was moving the host to another VsphereAgent: it is left alone.
pub(super) fn is_half_moved(s: &Observed, child: &ManagedVm, plan: &mut Plan) -> bool {
    let taker = s.group.half_moved.get(&child.uid);
    if let Some(taker) = taker {
        plan.wait(
            child.key.name.clone(),
            Reason::HostLent,
            format!(
                "VsphereAgent {taker} takes this host over: nothing is done to it here, and this VsphereAgent goes then"
            ),
        );
    }
    taker.is_some()
}

/// What a pool that goes waits for: hosts that it made, and that pools of other namespaces use.
pub(super) fn tell_shared(s: &Observed, plan: &mut Plan) {
    for child in &s.group.shared {
        let message = format!(
            "pool {} uses the host: it stays until that pool ends it",
            child.pool
        );
        plan.wait(child.key.name.clone(), Reason::HostLent, message);
    }
}

/// Hosts with which nothing is done, since a namespace took its grant back.
pub(super) fn tell_withheld(s: &Observed, plan: &mut Plan) {
    for child in s.withheld() {
        let message = format!(
            "the namespaces {} and {} do not admit each other's pools (allow-pools-from): nothing is done with this host until they do",
            child.key.namespace, s.key.namespace
        );
        plan.wait(child.key.name.clone(), Reason::NamespaceNotAllowed, message);
    }
}
