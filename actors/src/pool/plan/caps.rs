//! The limits of a pool: which AgentMachines get a new VM now, and which wait. Pure.
//!
//! Guarantees
//! - A plan never creates more than the limits leave room for. A VM counts until its VsphereAgent is gone.
//! - The oldest AgentMachine is first. So none waits for ever while VMs come up and go.

use std::{collections::BTreeSet, sync::Arc};

use agent_forge_crds::{
    conditions::{Policy, Reason},
    external::agent_machine::AgentMachine,
};
use kube::ResourceExt as _;

use super::planned::{Action, Plan};
use crate::{domain::managed_vm::ManagedVm, pool::observed::Observed};

/// A limit, and how much of it is used.
struct Cap {
    field: &'static str,
    what: &'static str,
    limit: usize,
    current: usize,
}

impl Cap {
    fn left(&self) -> usize {
        self.limit.saturating_sub(self.current)
    }

    fn sentence(&self) -> String {
        format!(
            "spec.scaling.{} is {}, and the pool has {} {}",
            self.field, self.limit, self.current, self.what
        )
    }
}

/// How many more VMs the limits admit after those that are planned, and what the closest limit says. `None`: any number.
pub(super) fn room(s: &Observed, plan: &Plan) -> Option<(usize, String)> {
    let cap = caps(s).into_iter().min_by_key(Cap::left)?;
    let planned = plan.actions.iter();
    let planned = planned
        .filter(|planned| matches!(planned, Action::CreateChild { .. } | Action::Borrow { .. }));
    Some((cap.left().saturating_sub(planned.count()), cap.sentence()))
}

/// Removes the creations that exceed a limit, those of the youngest AgentMachines, and says why.
pub(super) fn apply(s: &Observed, plan: &mut Plan) {
    let Some(cap) = caps(s).into_iter().min_by_key(Cap::left) else {
        return;
    };
    let mut asking: Vec<Arc<AgentMachine>> =
        plan.actions
            .iter()
            .filter_map(|planned| match planned {
                Action::CreateChild { agent_machine, .. }
                | Action::Borrow { agent_machine, .. } => Some(agent_machine.clone()),
                _ => None,
            })
            .collect();
    asking.sort_by_key(|am| {
        let created = am.metadata.creation_timestamp.as_ref().map(|t| t.0);
        (created, am.name_any())
    });
    let late: Vec<_> = asking.into_iter().skip(cap.left()).collect();
    plan.capped = late.iter().filter_map(|am| am.uid()).collect();
    plan.actions.retain(|planned| match planned {
        Action::CreateChild { agent_machine, .. } | Action::Borrow { agent_machine, .. } => {
            !is_in(&plan.capped, agent_machine)
        }
        _ => true,
    });
    for (ahead, am) in late.iter().enumerate() {
        let message = format!("{}; AgentMachines ahead: {ahead}", cap.sentence());
        plan.wait(am.name_any(), Reason::CreateCapReached, message);
    }
}

fn is_in(uids: &BTreeSet<String>, am: &AgentMachine) -> bool {
    am.metadata
        .uid
        .as_ref()
        .is_some_and(|uid| uids.contains(uid))
}

fn caps(s: &Observed) -> Vec<Cap> {
    let scaling = s.pool.spec.scaling.clone().unwrap_or_default();
    let limit = |number: i32| usize::try_from(number).unwrap_or_default();
    // The cache does not show yet what was made a moment ago.
    let made = s.pending.made.len() + s.pending.made_for_buffer.len();
    let own = || s.children.iter().filter(|child| !child.adopted);
    let vms = scaling.max_vms.map(|max| Cap {
        field: "maxVMs",
        what: "VMs, including those that are being removed",
        limit: limit(max),
        current: own().count() + made,
    });
    let provisioning = scaling.max_provisioning.map(|max| Cap {
        field: "maxProvisioning",
        what: "VMs whose Agent has not registered",
        limit: limit(max),
        current: own().filter(|child| is_provisioned(s, child)).count() + made,
    });
    vms.into_iter().chain(provisioning).collect()
}

/// The VM is being made, or its guest has not registered yet.
fn is_provisioned(s: &Observed, child: &ManagedVm) -> bool {
    let is_stuck = child.obstacle().is_some_and(|o| o.has(Policy::Stuck));
    !child.deleting && !is_stuck && !child.has_served(&[]) && s.host(child).own.is_none()
}
