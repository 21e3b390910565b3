//! Ends the move of a VM that a release before 1.0 began: lets go of it, or hands it over.

use std::sync::Arc;

use agent_forge_crds::{
    agent::VmStatus,
    conditions::{Reason, event},
    names::{AGENT_FINALIZER, TAKEN_FROM_ANNOTATION, VM_NAME_ANNOTATION},
};
use kube::ResourceExt;

use super::{
    executor::{Done, Executor, StepOutcome},
    last_look::SOON,
    release::held,
};
use crate::{
    domain::{failure::ReconcileError, managed_vm::ManagedVm, reassign::Taking},
    ports::{cluster::OwnPatch, effect::EffectKind},
    report::{Metric, Reports, tell},
    vm::{memory::Memory, step::Lent},
};

impl Executor<'_> {
    /// The VM is another one's, or is gone: an own one is made.
    pub(super) async fn not_taken(&self, memory: &mut Memory) -> Done {
        let child = &self.observed.child;
        if child.taking() == Taking::Asked {
            return self.forget_source().await;
        }
        let own_name = child.object.annotations().get(VM_NAME_ANNOTATION).cloned();
        let mut status = self.observed.record();
        status.vm = Some(VmStatus {
            name: own_name.unwrap_or_else(|| child.object.name_any()),
            attempt: Some(1),
            ..VmStatus::default()
        });
        let next = self
            .save_record(EffectKind::RecordIdentity, status, memory)
            .await?;
        memory.forget_vm();
        tell(self.context, Reports::metric(Metric::Reassigned("lost")));
        Ok(StepOutcome::Object(next))
    }

    /// Nothing is on record of the VM that it was to take over. Unless the record was taken away, no request was sent.
    async fn forget_source(&self) -> Done {
        if self.is_marked().await? {
            return Err(held(
                Reason::RecordLost,
                "a VM with our mark stands in vCenter and status.vm is gone: restore it, or remove the VM by hand and delete \
                 the VsphereAgent"
                    .to_owned(),
            ));
        }
        let patch = OwnPatch {
            annotations: [(TAKEN_FROM_ANNOTATION.to_owned(), None)].into(),
            ..OwnPatch::default()
        };
        let proof = Box::pin(self.case().read_or_fail(EffectKind::ReassignChild)).await?;
        let permit = proof.permit_at(self.observed.child.object.as_ref())?;
        self.context.cluster.patch_child(&permit, &patch).await?;
        tell(self.context, Reports::metric(Metric::Reassigned("lost")));
        // The watch shows the object without it.
        Ok(StepOutcome::Pause(SOON))
    }

    /// Another VsphereAgent has the VM: this one goes, and touches neither VM nor Agent.
    pub(super) async fn hand_over(&self) -> Done {
        let child = &self.observed.child;
        let Lent::Over(to) = &self.observed.lent else {
            return Ok(StepOutcome::Same);
        };
        let taker = self.context.cluster.live_child(to).await?;
        let taker = taker.map(|c| ManagedVm::read(Arc::new(c)));
        let vm = |c: &ManagedVm| c.identity.as_ref().map(|i| i.bios_uuid);
        let source = taker
            .filter(|taker| taker.taking() == Taking::Done && vm(taker) == vm(child))
            .and_then(|taker| taker.taken_from);
        if source.is_none_or(|s| s.key != child.key || s.attempt != self.attempt()) {
            return Ok(StepOutcome::Pause(SOON));
        }
        let kind = if child.deleting {
            EffectKind::RemoveChildFinalizer
        } else {
            EffectKind::DeleteChild
        };
        let proof = Box::pin(self.case().read_or_fail(kind)).await?;
        let permit = proof.permit_at(child.object.as_ref())?;
        if !child.deleting {
            self.context.cluster.delete_child(&permit).await?;
            tell(self.context, Reports::metric(Metric::Reassigned("lent")));
            self.event(
                false,
                event::HOST_LENT,
                "LendHost",
                &format!("host {} went to VsphereAgent {to}", child.vm_name),
            );
            // The watch shows that it is being deleted.
            return Ok(StepOutcome::Pause(SOON));
        }
        let finalizers = child.object.finalizers().iter();
        let finalizers = finalizers.filter(|f| *f != AGENT_FINALIZER);
        let patch = OwnPatch {
            finalizers: Some(finalizers.cloned().collect()),
            ..OwnPatch::default()
        };
        self.context.cluster.patch_child(&permit, &patch).await?;
        Ok(StepOutcome::Gone)
    }

    /// A VM in vCenter has the mark of this VsphereAgent.
    async fn is_marked(&self) -> Result<bool, ReconcileError> {
        let (survey, own) = (self.session().await?.survey().await?, self.marker());
        Ok(survey.marked.iter().any(|vm| vm.marker.same_owner(&own)))
    }
}
