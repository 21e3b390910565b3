//! The moments in the life of a machine that a pass sees.

use super::{memory::Memory, observed::Observed, status};
use crate::{
    context::Context,
    iso::of_pool,
    ports::vcenter::PowerState,
    report::{exports, timeline::Moments},
};

/// Notes what has happened by now.
pub fn note(context: &Context, observed: &Observed, memory: &mut Memory) {
    let child = &observed.child;
    let (object, meta) = (&child.object, &child.object.metadata);
    let seen = Moments {
        demanded: observed.demanded(),
        accepted: meta.creation_timestamp.as_ref().map(|t| t.0),
        iso_ready: observed
            .pool
            .as_ref()
            .is_some_and(|p| of_pool::iso_path(p).is_some()),
        vm: object.status.as_ref().and_then(|s| s.vm.as_ref()),
        shown: memory.seen.ours().map(|vm| vm.power == PowerState::On),
        agent: observed.host.agent.as_deref(),
        prepared: observed
            .host
            .agent
            .as_ref()
            .is_some_and(|a| status::prepared(a, child)),
        installing: false,
        deleting: meta.deletion_timestamp.as_ref().map(|t| t.0),
        now: context.clock.wall(),
    };
    let recorded = exports::recorded(child, object.status.as_ref());
    memory.told.note(child.trace(), recorded, &seen);
}
