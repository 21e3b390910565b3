//! Hosts that people give to a pool ([`crate::domain::moving`]).

use std::sync::Arc;

use agent_forge_crds::pool::VsphereAgentPool;
use jiff::Timestamp;

use crate::{
    domain::{managed_vm::ManagedVm, moving, names::ObjectKey},
    ports::cluster::View,
};

/// A person gives `child` to `pool`.
#[must_use]
pub fn is_for(child: &ManagedVm, pool: &VsphereAgentPool, now: Timestamp) -> bool {
    moving::to(&child.object, now).is_some_and(|to| to == ObjectKey::of(pool))
}

/// A person gives a host of the pool `other` to `pool`.
pub(super) fn gives(
    view: &dyn View,
    (pool, other): (&VsphereAgentPool, &Arc<VsphereAgentPool>),
    now: Timestamp,
) -> bool {
    let (to, key) = (ObjectKey::of(pool), ObjectKey::of(other.as_ref()));
    let mut children = view.children(&key).into_iter();
    children.any(|c| moving::to(&c, now).is_some_and(|wish| wish == to))
}
