//! What is proven live before a VM is destroyed that no VsphereAgent records.

use std::sync::Arc;

use agent_forge_crds::{agent::VsphereAgent, pool::VsphereAgentPool};

use super::pausing::Pausing;
use crate::{
    context::Context,
    domain::{
        failure::ReconcileError,
        names::{MoRef, ObjectKey},
    },
    ports::{
        cluster::View,
        effect::{Effect, EffectKind, Subject},
        permit::Permit,
        vcenter::{VCenter, VmAt, VmObservation},
    },
    runtime::holds,
};

/// A VM with our mark, without a VsphereAgent.
pub struct Stray<'a> {
    /// The VsphereAgent that its mark names.
    pub owner: ObjectKey,
    /// Its reference.
    pub moref: &'a MoRef,
    /// Whether the VsphereAgent of that name, as it was read, is not its owner.
    pub is_nobodys: &'a (dyn Fn(Option<&VsphereAgent>) -> bool + Send + Sync),
    /// Whether none of these pools keeps it.
    pub may_go: &'a (dyn Fn(&[Arc<VsphereAgentPool>]) -> bool + Send + Sync),
    /// Whether it is still as the scan saw it.
    pub is_unchanged: &'a (dyn Fn(&VmObservation) -> bool + Send + Sync),
}

/// What was read of it.
pub enum Found {
    /// It stays.
    Stays,
    /// vCenter does not know it any more.
    Gone,
    /// It may be destroyed.
    MayGo(Permit<VmAt>),
}

impl Stray<'_> {
    /// Reads the VsphereAgent, the pools of its namespace with all that can hold them, and the VM last.
    ///
    /// # Errors
    /// A read failed.
    pub async fn permit(
        &self,
        context: &Context,
        session: &dyn VCenter,
    ) -> Result<Found, ReconcileError> {
        let live = context.cluster.live_child(&self.owner).await?;
        if !(self.is_nobodys)(live.as_ref()) {
            return Ok(Found::Stays);
        }
        let view = pausing(context, &self.owner.namespace).await?;
        let subject = Subject::Vm {
            key: self.owner.clone(),
            pool: None,
        };
        let (effect, now) = (
            Effect::new(EffectKind::Destroy, subject),
            context.clock.wall(),
        );
        let held = holds::ask(view.as_ref(), &effect, now).is_some();
        if held || !(self.may_go)(&view.pools()) {
            return Ok(Found::Stays);
        }
        Ok(match session.observe(self.moref).await? {
            None => Found::Gone,
            Some(shown) if (self.is_unchanged)(&shown) => {
                Found::MayGo(Permit::issue(effect, VmAt::of(&shown)))
            }
            Some(_) => Found::Stays,
        })
    }
}

/// What the caches show, with what can hold the pools of that namespace as the API server has it.
async fn pausing(context: &Context, namespace: &str) -> Result<Arc<dyn View>, ReconcileError> {
    let (cached, cluster) = (&context.view, context.cluster.as_ref());
    let mut view = cached.clone();
    let pools = cached.pools().into_iter();
    for pool in pools.filter(|p| p.metadata.namespace.as_deref() == Some(namespace)) {
        let key = ObjectKey::of(pool.as_ref());
        let live = Pausing::read(cached.as_ref(), cluster, &key, None).await?;
        view = live.over(view);
    }
    Ok(view)
}
