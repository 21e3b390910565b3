//! Free hosts of the other pools of the group, and own hosts that another VsphereAgent has. Pure.

use std::{collections::BTreeSet, time::Duration};

use agent_forge_crds::conditions::Reason;

use super::{
    matching::{Supply, Want},
    planned::{Action, Plan},
};
use crate::{
    demand::lending::{self, Offer},
    domain::{managed_vm::ManagedVm, moving},
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

/// The free hosts that people give to this pool, each with the class that it has here. An AgentMachine that asks may have got one
/// already.
pub(super) fn given<'a>(
    s: &'a Observed,
    supply: &Supply<'_>,
    plan: &mut Plan,
) -> Vec<(&'a Offer, Option<String>)> {
    let taken = plan.actions.iter().filter_map(|action| match action {
        Action::Take { host, .. } => Some(host.child.uid.clone()),
        _ => None,
    });
    let taken: BTreeSet<String> = taken.collect();
    let hosts = s.group.lenders.iter().flat_map(|lender| &lender.hosts);
    let given = hosts.filter(|host| {
        let (child, uid) = (&host.child, &host.child.uid);
        host.refusal.is_none()
            && lending::is_for(child, &s.pool, s.wall)
            && !taken.contains(uid)
            && !s.pending.passed_over.contains(uid)
            && !supply
                .unsure
                .iter()
                .any(|(whose, other)| other == uid && whose != uid)
    });
    let mut found = Vec::new();
    for host in given {
        match lending::class_for(&s.sizes, &host.child) {
            Ok(class) => found.push((host, class.map(str::to_owned))),
            Err(why) => {
                let message =
                    format!("a person gives the host to this pool; {why}: it stays where it is");
                plan.wait(host.child.key.to_string(), Reason::TakingHost, message);
            }
        }
    }
    found
}

/// What is said of hosts that people give to other pools.
pub(super) fn tell_moves(s: &Observed, plan: &mut Plan) {
    for child in &s.children {
        match moving::read(&child.object) {
            Err(why) => plan.wait(child.key.name.clone(), Reason::MoveUnreadable, why),
            Ok(Some(wish)) if s.wall < wish.until => {
                let message = format!(
                    "a person gives the host to pool {}: it goes there when it is free and ready, until {}",
                    wish.to, wish.until
                );
                plan.wait(child.key.name.clone(), Reason::MovingToPool, message);
                let left = wish.until.duration_since(s.wall);
                plan.look_again(Duration::try_from(left).unwrap_or_default());
            }
            Ok(_) => {}
        }
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
