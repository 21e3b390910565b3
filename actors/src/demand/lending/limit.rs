//! How many hosts of a pool the pools of one other namespace may have (`spec.reassign.maxPerNamespace`).

use std::collections::BTreeSet;

use agent_forge_crds::pool::VsphereAgentPool;

use super::refusal::Refusal;
use crate::{
    domain::{
        goal,
        managed_vm::ManagedVm,
        names::ObjectKey,
        upstream::{self, WaitingSign},
    },
    ports::cluster::View,
    world::boundary::Grants,
};

/// How many more hosts of the pool that made `child` the pools of the namespace of `taker` may get. `None`: it sets no limit.
///
/// Of several pools of that namespace, the first one that asks gets them: each sees the same cache, so together they stay below.
pub(super) fn left(
    view: &dyn View,
    grants: &Grants,
    taker: &VsphereAgentPool,
    child: &ManagedVm,
) -> Option<usize> {
    let (maker, to) = (child.maker(), ObjectKey::of(taker));
    if maker.namespace == to.namespace || child.pool.namespace == to.namespace {
        return None;
    }
    let reassign = view.pool(&maker)?.spec.reassign.clone()?;
    let most = usize::try_from(reassign.max_per_namespace?).unwrap_or_default();
    let is_before = |other: &VsphereAgentPool| {
        let key = ObjectKey::of(other);
        key.namespace == to.namespace && key < to && other.spec.group() == taker.spec.group()
    };
    let mut others = view.pools().into_iter();
    if others.any(|other| is_before(&other) && asks_itself(view, grants, &other)) {
        return Some(0);
    }
    let children = view.all_children().into_iter();
    let have =
        children.filter(|c| goal::maker(c) == maker && goal::user(c).namespace == to.namespace);
    Some(most.saturating_sub(have.count()))
}

/// What [`left`] says if that is nothing.
pub(super) fn limit(left: Option<usize>, child: &ManagedVm) -> Option<Refusal> {
    let maker = child.maker();
    (left == Some(0)).then(|| {
        Refusal::NamespaceLimit(format!(
            "the pools of the namespace have as many hosts of pool {maker} as it gives one namespace (spec.reassign.maxPerNamespace), or \
             another pool of the namespace asks first"
        ))
    })
}

/// An AgentMachine of that pool waits, and none of its VsphereAgents is for it.
pub(super) fn asks_itself(view: &dyn View, grants: &Grants, pool: &VsphereAgentPool) -> bool {
    let children = view.children(&ObjectKey::of(pool));
    let made: BTreeSet<&str> = children.iter().filter_map(|c| goal::wanted_by(c)).collect();
    let all = view.agent_machines(pool.control_plane());
    all.iter().any(|am| {
        let waits = upstream::waiting_sign(am) == WaitingSign::NoSuitableAgents;
        let served = am.agent_ref().is_some()
            || am
                .metadata
                .uid
                .as_ref()
                .is_some_and(|uid| made.contains(uid.as_str()));
        waits && !served && !am.is_deleting() && !am.is_paused() && grants.serves(pool, am)
    })
}
