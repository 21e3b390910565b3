//! The pool's decision: from one [`Observed`] to one [`Plan`]. Pure: the same facts give the same plan.
//!
//! Guarantees
//! - An AgentMachine has at most one VsphereAgent: one that exists or is being deleted holds back the next.
//! - An Agent is prepared only if the identity rule says that it runs on a VM of ours, and its AgentMachine waits.
//! - An Agent whose Machine is being deleted is fenced before anything else is decided about its VM.
//! - A VsphereAgent is released only if its Agent is fenced and unbound. The executor first proves by live reads that
//!   the Machine is gone.

mod buffer;
mod caps;
mod demand;
pub mod iso;
mod lend;
mod matching;
mod offer;
pub mod planned;
pub mod secrets;
mod stay;
#[cfg(test)]
mod tests;
mod unsure;
mod vm;

use std::collections::BTreeSet;

use agent_forge_crds::names::POOL_FINALIZER;
use kube::ResourceExt;

pub(super) use self::buffer::BUFFER;
pub use self::planned::{Action, BufferCount, Plan, Waiting};
use super::{index::Records, observed::Observed};
use crate::{
    domain::{managed_vm::ManagedVm, names::ObjectKey},
    sessions::secret_ref,
    world::{agents_home, classify},
};

/// Decides.
#[must_use]
pub fn plan(s: &Observed) -> Plan {
    let mut plan = Plan::default();
    let deleting = s.pool.metadata.deletion_timestamp.is_some();
    let stop_begins = s.stop().is_some() && !s.was_stopped;
    plan.leave_iso = deleting || s.may_have_lost_source() || stop_begins;
    let guard = s.guard();
    let has_finalizer = s.pool.finalizers().iter().any(|f| f == POOL_FINALIZER);
    plan.demands = classify::classify(&classify::Facts {
        pool: &s.pool,
        sizes: &s.sizes,
        grants: &s.grants,
        other_pools: &s.other_pools,
        agent_machines: &s.agent_machines,
        machines: &s.machines,
        agents: &s.agents,
        agent_namespace: &s.infra_env_key.namespace,
        foreign: &s.foreign,
        in_flight: &|am| s.is_in_flight(am),
        on_record: &|am| s.child_for(am).is_some_and(|c| c.identity.is_some()),
        made_by_others: &s.made_by_others,
        guard: guard.as_ref(),
        waiting_since: &s.waiting_since,
        now: s.now,
        wall: s.wall,
    });
    if deleting {
        if !has_finalizer {
            return plan;
        }
        if s.pool.status.as_ref().and_then(|st| st.closed) != Some(true) {
            plan.actions.push(Action::Close);
        } else if s.hosts_left() == 0 && secret_ref::on_record(&s.pool).is_empty() {
            plan.actions.push(Action::RemoveFinalizer);
        }
        lend::tell_shared(s, &mut plan);
    } else if !has_finalizer {
        plan.actions.push(Action::AddFinalizer);
    }
    lend::tell_withheld(s, &mut plan);
    lend::tell_moves(s, &mut plan);
    let records = Records::of(&plan.demands);
    let reassigned = if deleting {
        BTreeSet::new()
    } else {
        let (mut reassigned, supply) = demand::assign_hosts(s, &records, &mut plan);
        buffer::fill(s, &mut reassigned, supply, &mut plan);
        reassigned
    };
    // An AgentMachine that a limit holds back waits for exactly such a VM to go.
    let others = plan.demands.iter();
    let others = others.filter(|c| !plan.capped.contains(&c.uid()));
    plan.wait_left = others.filter_map(|c| vm::keeps(s, c)).max();
    for child in s.children.iter().filter(|c| !reassigned.contains(&c.key)) {
        vm::plan_vm(s, child, &records, deleting, &mut plan);
    }
    // Each looks at its VM, and a fence must not wait for that.
    plan.actions
        .sort_by_key(|action| matches!(action, Action::Take { .. } | Action::Bring { .. }));
    plan.secrets = secrets::plan(s);
    plan
}

/// Agents to read live before the child's VM may be removed. They are those that may run there, the one that was last
/// seen there, and those with a name of the VM's Agents.
#[must_use]
pub fn agents_to_ask(s: &Observed, child: &ManagedVm) -> BTreeSet<ObjectKey> {
    s.host(child)
        .possible
        .iter()
        .map(|a| ObjectKey::of(a.as_ref()))
        .chain(child.agent.clone())
        .chain(agents_home::names(Some(&s.pool), child))
        .collect()
}
