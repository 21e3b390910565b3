//! What every step has at hand: the record, the session, and the way to write a status.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use agent_forge_crds::{
    agent::{VmStatus, VsphereAgent, VsphereAgentStatus},
    conditions::Reason,
    pool::VsphereAgentPool,
};

use crate::{
    context::Context,
    domain::{
        failure::{Class, ErrorSource, ReconcileError},
        identity::BiosUuid,
        marker::Marker,
    },
    guard::Case,
    ports::{
        cluster::Precondition,
        effect::{Effect, EffectKind, Subject},
        vcenter::{Place, VCenter},
    },
    report::{Metric, Reports, tell, vm as report},
    sessions::of_vm::{self, Reached},
    vm::{
        decision, known::known, memory::Memory, moments, observed::Observed, ownership::Expected,
        place, status, write::write,
    },
};

/// What follows a step.
pub enum StepOutcome {
    /// Decide again, with this object.
    Object(Arc<VsphereAgent>),
    /// Decide again.
    Same,
    /// End the pass and look again after that long.
    Pause(Duration),
    /// The object is released: nothing more to do.
    Gone,
}

pub(super) type Done = Result<StepOutcome, ReconcileError>;

/// Carries out the steps of one decision.
pub(super) struct Executor<'a> {
    pub(super) context: &'a Context,
    pub(super) observed: &'a Observed,
    /// The vCenter that the session of this step led to.
    pub(super) reached: OnceLock<Reached>,
}

impl Executor<'_> {
    pub(super) fn effect(&self, kind: EffectKind) -> Effect {
        Effect::new(kind, Subject::vm(&self.observed.child.object))
    }

    pub(super) fn at(&self) -> Precondition {
        Precondition::of(self.observed.child.object.as_ref())
    }

    /// What the guard needs to know of the VM.
    pub(super) fn case(&self) -> Case<'_> {
        let (context, observed) = (self.context, self.observed);
        Case {
            context,
            child: &observed.child,
            pool: observed.pool.as_deref(),
            control_plane: observed.control_plane(),
            possible: &observed.host.possible,
            own: observed.host.agent.as_deref(),
            can_be_chosen: Box::new(|agent| observed.fencing(context, agent).is_some()),
        }
    }

    pub(super) fn vm(&self) -> VmStatus {
        self.observed.vm().cloned().unwrap_or_default()
    }

    pub(super) fn attempt(&self) -> u32 {
        self.observed.child.attempt()
    }

    pub(super) fn marker(&self) -> Marker {
        let cluster_id = self.context.view.cluster_id();
        self.observed.child.marker(cluster_id)
    }

    pub(super) fn expected(&self) -> Expected {
        let vm = self.vm();
        let source = self.observed.child.taken_from.as_ref();
        let lender = source.filter(|_| self.observed.child.is_taking());
        Expected {
            lender: lender.map(|source| source.marker(self.context.view.cluster_id())),
            marker: self.marker(),
            moref: vm.moref,
            instance_uuid: vm.instance_uuid,
        }
    }

    pub(super) fn uuid(&self) -> Result<BiosUuid, ReconcileError> {
        let identity = self.observed.child.identity.as_ref();
        identity
            .map(|i| i.bios_uuid)
            .ok_or_else(|| defect("no BIOS uuid is recorded"))
    }

    pub(super) fn place(&self) -> Result<Place, ReconcileError> {
        place::read(&self.vm()).ok_or_else(|| defect("the recorded placement is incomplete"))
    }

    pub(super) fn pool(&self) -> Result<&Arc<VsphereAgentPool>, ReconcileError> {
        self.observed
            .pool
            .as_ref()
            .ok_or_else(|| defect("the pool is gone"))
    }

    /// The session by the recorded credentials. If those fail, the session by the pool's credentials, provided that
    /// they lead to the same vCenter. While the recorded credentials work, the pool is not needed, so a VM can be
    /// deleted without its pool.
    pub(super) async fn session(&self) -> Result<Arc<dyn VCenter>, ReconcileError> {
        let (session, reached) = of_vm::session(
            self.context.sessions.as_ref(),
            &self.context.settings.secret_namespaces,
            &self.observed.child,
            self.observed.pool.as_deref(),
        )
        .await?;
        // A step that asks twice gets the same vCenter.
        let _ = self.reached.set(reached);
        Ok(session)
    }

    pub(super) async fn save(
        &self,
        kind: EffectKind,
        vm: VmStatus,
        memory: &mut Memory,
    ) -> Result<Arc<VsphereAgent>, ReconcileError> {
        let mut record = self.observed.record();
        record.vm = Some(vm);
        self.save_record(kind, record, memory).await
    }

    /// Sends an Event about what was done with the VM, with the trace.
    pub(super) fn event(
        &self,
        warning: bool,
        reason: &'static str,
        action: &'static str,
        words: &str,
    ) {
        let child = &self.observed.child;
        let event = report::notice(child, warning, reason, action, words);
        tell(self.context, Reports::event(event));
    }

    /// Counts a vSphere operation on the VM that ended.
    pub(super) fn operation(&self, operation: &'static str, success: bool) {
        let metric = Metric::Operation(operation, success);
        tell(self.context, Reports::metric(metric));
    }

    /// Writes a status, read as the VsphereAgent is with it. If the next step is to wait, it says so already: no second write
    /// follows.
    pub(super) async fn save_record(
        &self,
        kind: EffectKind,
        record: VsphereAgentStatus,
        memory: &mut Memory,
    ) -> Result<Arc<VsphereAgent>, ReconcileError> {
        let mut after = VsphereAgent::clone(&self.observed.child.object);
        after.status = Some(record.clone());
        let observed = Observed::gather(self.context.view.as_ref(), Arc::new(after));
        moments::note(self.context, &observed, memory);
        let wait = decision::wait(self.context, &observed, memory);
        let known = known(self.context, &observed, wait.as_ref(), memory);
        let rendered = status::render(&record, &known);
        let effect = self.effect(kind);
        let object = &self.observed.child.object;
        Ok(write(self.context, &effect, object, rendered, memory).await?)
    }
}

pub(super) fn defect(message: &str) -> ReconcileError {
    ReconcileError {
        side: ErrorSource::Kubernetes,
        reason: Reason::InternalError,
        message: message.to_owned(),
        class: Class::Defect,
    }
}
