//! Hosts that people give to a pool ([`crate::domain::moving`]).

use std::sync::Arc;

use agent_forge_crds::pool::VsphereAgentPool;
use jiff::Timestamp;

use crate::{
    domain::{managed_vm::ManagedVm, moving, names::ObjectKey, sizes::Sizes, template},
    placement::request,
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

/// The class in which the pool of these `sizes` keeps a host that a person gives to it. Only exactly its hardware fits: another host
/// would be replaced in the buffer.
///
/// # Errors
/// Why it cannot keep the host, as the end of a sentence.
pub fn class_for<'a>(sizes: &'a Sizes, child: &ManagedVm) -> Result<Option<&'a str>, String> {
    let pool = sizes.pool(None);
    let own = pool.metadata.namespace.as_deref() == Some(&child.key.namespace);
    if !pool.has_node_pool() && !own {
        return Err(format!(
            "a pool of namespace {} made it, and this pool has no NodePool: pools of a third namespace could not take it from here",
            child.key.namespace
        ));
    }
    let made = child.vm().filter(|vm| template::recorded(vm).is_some());
    let made = made.ok_or("its hardware is not on record")?;
    let changes = |class| request::template_changes(sizes.pool(class), made);
    let fits = sizes.names().find(|class| changes(*class).is_empty());
    fits.ok_or_else(|| {
        let differs = template::explain(&changes(None));
        format!(
            "no class of the pool has exactly its hardware, so it would be replaced ({differs})"
        )
    })
}
