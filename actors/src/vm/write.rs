//! The only write of a VsphereAgent's status.

use std::sync::Arc;

use agent_forge_crds::agent::{VsphereAgent, VsphereAgentStatus};

use super::memory::Memory;
use crate::{
    context::Context,
    domain::managed_vm::ManagedVm,
    ports::{
        cluster::{ClusterResult, Precondition},
        effect::Effect,
    },
    report::{exports, tell},
};

/// Writes a status with its precondition. Returns the object as it is then.
///
/// # Errors
/// As [`crate::ports::cluster::Cluster::child_status`].
pub async fn write(
    context: &Context,
    effect: &Effect,
    object: &Arc<VsphereAgent>,
    status: VsphereAgentStatus,
    memory: &mut Memory,
) -> ClusterResult<Arc<VsphereAgent>> {
    let at = Precondition::of(object.as_ref());
    let version = context.cluster.child_status(effect, &at, &status).await;
    let view = context.view.as_ref();
    let next = memory.status.record(view, object, status, version)?;
    if let Some(status) = &next.status {
        let child = ManagedVm::read(object.clone());
        tell(
            context,
            exports::written(&child, status, context.clock.wall()),
        );
    }
    Ok(next)
}
