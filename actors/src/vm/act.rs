//! Carries out one step: the effects of a VM pass. This module decides nothing. It reports the result into [`Memory`].

mod create;
mod eject;
mod find;
mod give_up;
mod intent;
mod look;
mod power;
mod reassign;
mod recycle;
mod release;
mod reset;
mod task;
mod turn;

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use agent_forge_crds::{
    agent::{VmStatus, VsphereAgent, VsphereAgentStatus},
    conditions::Reason,
    pool::VsphereAgentPool,
};

use self::{look::Looked, turn::Turn};
use super::{
    memory::Memory,
    observed::Observed,
    ownership::Expected,
    pass::{known, write},
    place, status,
    step::Step,
    traced,
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
        vcenter::{Place, TaskRef, VCenter},
    },
    report::{Metric, Reports, tell, vm as report},
    sessions::of_vm::{self, Reached},
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

type Done = Result<StepOutcome, ReconcileError>;

/// Carries `step` out.
///
/// # Errors
/// The [`ReconcileError`] that stopped the step. `memory` then says what is unknown.
pub async fn perform(
    context: &Context,
    observed: &Observed,
    memory: &mut Memory,
    step: Step,
) -> Done {
    let executor = Executor {
        context,
        observed,
        reached: OnceLock::new(),
    };
    let done = carry_out(&executor, memory, step).await;
    if let Some(reached) = executor.reached.into_inner() {
        memory.reached = Some(reached);
    }
    done
}

async fn carry_out(executor: &Executor<'_>, memory: &mut Memory, step: Step) -> Done {
    if step == Step::Create {
        executor.may_create(memory)?;
    }
    if let Some(errand) = step.errand() {
        match executor.turn(memory, errand).await? {
            Turn::Now => {}
            Turn::Come => return Ok(StepOutcome::Same),
            Turn::Ahead => return Ok(StepOutcome::Pause(Duration::ZERO)),
        }
    }
    match step {
        Step::Hold { .. } | Step::Settled => Ok(StepOutcome::Same),
        Step::AddFinalizer => executor.add_finalizer().await,
        Step::RecordIdentity => executor.record_identity(memory).await,
        Step::FinishTask(task) => executor.finish_task(memory, &TaskRef(task)).await,
        Step::Lookup => executor.lookup(memory).await,
        Step::TakeOver => executor.take_over(memory).await,
        Step::PlaceAgain => executor.place_again(memory).await,
        Step::Create => executor.create(memory).await,
        Step::NextAttempt => executor.next_attempt(memory).await,
        Step::GiveUp => executor.give_up(memory).await,
        Step::RecordVm => executor.record_vm(memory).await,
        Step::RecordMarks => {
            let mut vm = executor.vm();
            memory.seen.marks().record(&mut vm);
            let kind = EffectKind::RecordObservation;
            Ok(StepOutcome::Object(executor.save(kind, vm, memory).await?))
        }
        Step::RecordLeftBound => executor.record_left_bound(memory).await,
        Step::RecordUnbound => {
            let vm = executor.vm();
            let kind = EffectKind::RecordObservation;
            Ok(StepOutcome::Object(executor.save(kind, vm, memory).await?))
        }
        Step::RecordRecycle => executor.record_recycle(memory).await,
        Step::BeginLife(life) => executor.begin_life(memory, life).await,
        Step::RecordLife(life) => executor.record_life(memory, life).await,
        Step::RecordTaken => executor.record_taken(memory).await,
        Step::Stamp => executor.stamp(memory).await,
        Step::MarkMayServe => executor.mark_may_serve(memory).await,
        Step::RecordStamped => executor.record_stamped(memory).await,
        Step::NotTaken => executor.not_taken(memory).await,
        Step::HandOver => executor.hand_over().await,
        Step::RecordRestart => executor.record_restart(memory).await,
        Step::SkipCleanup => executor.skip_cleanup(memory).await,
        Step::RecordBack => executor.record_back(memory).await,
        Step::NameVcenter => executor.name_vcenter(memory).await,
        Step::AttachTags => executor.attach_tags(memory).await,
        Step::EjectIso => executor.eject(memory).await,
        Step::RecordBootRepair => executor.record_boot_repair(memory).await,
        Step::FinishEjection => executor.finish_ejection(memory).await,
        Step::Disown => executor.disown(memory).await,
        Step::FenceAgent => executor.fence(memory).await,
        Step::SetBootOrder(_)
        | Step::PowerOn
        | Step::PowerOnAgain
        | Step::PowerOff
        | Step::ResetVm
        | Step::Renew(_)
        | Step::Destroy => {
            let kind = step.call().unwrap_or(EffectKind::Destroy);
            match Box::pin(executor.last_look(memory, &step, kind)).await? {
                Err(otherwise) => Ok(otherwise),
                Ok(looked) => change_vm(executor, memory, step, looked).await,
            }
        }
        Step::DeleteAgent => executor.delete_agent("its VM is proven absent").await,
        Step::ReleaseHook => {
            executor
                .delete_agent("the deletion of its Machine waits for it, and its VM is dead")
                .await
        }
        Step::RemoveFinalizer => executor.remove_finalizer(memory).await,
    }
}

/// Carries out a step that changes the VM, directly after the last look at it.
async fn change_vm(
    executor: &Executor<'_>,
    memory: &mut Memory,
    step: Step,
    looked: Looked,
) -> Done {
    match step {
        Step::SetBootOrder(keys) => executor.set_boot_order(memory, &keys, looked).await,
        Step::PowerOnAgain => executor.power_on_again(memory, looked).await,
        Step::ResetVm => executor.reset(memory, looked).await,
        Step::Renew(life) => executor.renew(memory, life, looked).await,
        _ => executor.power(memory, looked).await,
    }
}

struct Executor<'a> {
    context: &'a Context,
    observed: &'a Observed,
    /// The vCenter that the session of this step led to.
    reached: OnceLock<Reached>,
}

impl Executor<'_> {
    fn effect(&self, kind: EffectKind) -> Effect {
        Effect::new(kind, Subject::vm(&self.observed.child.object))
    }

    fn at(&self) -> Precondition {
        Precondition::of(self.observed.child.object.as_ref())
    }

    /// What the guard needs to know of the VM.
    fn case(&self) -> Case<'_> {
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

    fn vm(&self) -> VmStatus {
        self.observed.vm().cloned().unwrap_or_default()
    }

    fn attempt(&self) -> u32 {
        self.observed.child.attempt()
    }

    fn marker(&self) -> Marker {
        let cluster_id = self.context.view.cluster_id();
        self.observed.child.marker(cluster_id)
    }

    fn expected(&self) -> Expected {
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

    fn uuid(&self) -> Result<BiosUuid, ReconcileError> {
        let identity = self.observed.child.identity.as_ref();
        identity
            .map(|i| i.bios_uuid)
            .ok_or_else(|| defect("no BIOS uuid is recorded"))
    }

    fn place(&self) -> Result<Place, ReconcileError> {
        place::read(&self.vm()).ok_or_else(|| defect("the recorded placement is incomplete"))
    }

    fn pool(&self) -> Result<&Arc<VsphereAgentPool>, ReconcileError> {
        self.observed
            .pool
            .as_ref()
            .ok_or_else(|| defect("the pool is gone"))
    }

    /// The session by the recorded credentials. If those fail, the session by the pool's credentials, provided that
    /// they lead to the same vCenter. While the recorded credentials work, the pool is not needed, so a VM can be
    /// deleted without its pool.
    async fn session(&self) -> Result<Arc<dyn VCenter>, ReconcileError> {
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

    /// Records the vCenter of a VM that runs and needs nothing else. If that vCenter does not answer, this is no
    /// failure: the next process asks again.
    async fn name_vcenter(&self, memory: &mut Memory) -> Done {
        let mut vm = self.vm();
        let Ok(session) = self.session().await else {
            memory.reached = Some(Reached::as_recorded(&vm));
            return Ok(StepOutcome::Same);
        };
        let reached = Reached::by(session.as_ref());
        if reached.is_recorded(&vm) {
            return Ok(StepOutcome::Same);
        }
        reached.record(&mut vm);
        let kind = EffectKind::RecordObservation;
        Ok(StepOutcome::Object(self.save(kind, vm, memory).await?))
    }

    async fn save(
        &self,
        kind: EffectKind,
        vm: VmStatus,
        memory: &mut Memory,
    ) -> Result<Arc<VsphereAgent>, ReconcileError> {
        let mut record = self.observed.record();
        record.vm = Some(vm);
        self.save_record(kind, record, memory).await
    }

    /// Writes a status with which the VsphereAgent is for another VM, or for another life of its VM: what is read from the old one
    /// does not hold for it.
    async fn save_as(
        &self,
        kind: EffectKind,
        record: VsphereAgentStatus,
        memory: &mut Memory,
    ) -> Result<Arc<VsphereAgent>, ReconcileError> {
        let mut after = VsphereAgent::clone(&self.observed.child.object);
        after.status = Some(record.clone());
        let observed = Observed::gather(self.context.view.as_ref(), Arc::new(after));
        let executor = Executor {
            context: self.context,
            observed: &observed,
            reached: self.reached.clone(),
        };
        executor.save_record(kind, record, memory).await
    }

    /// Sends an Event about what was done with the VM, with the trace.
    fn event(&self, warning: bool, reason: &'static str, action: &'static str, words: &str) {
        let child = &self.observed.child;
        let event = report::notice(child, warning, reason, action, words);
        tell(self.context, Reports::event(event));
    }

    /// Counts a vSphere operation on the VM that ended.
    fn operation(&self, operation: &'static str, success: bool) {
        let metric = Metric::Operation(operation, success);
        tell(self.context, Reports::metric(metric));
    }

    async fn save_record(
        &self,
        kind: EffectKind,
        record: VsphereAgentStatus,
        memory: &mut Memory,
    ) -> Result<Arc<VsphereAgent>, ReconcileError> {
        let mut after = self.observed.child.object.as_ref().clone();
        after.status = Some(record.clone());
        traced::note_recorded(self.context, self.observed, &after, memory);
        let known = known(self.context, self.observed, None, memory);
        let rendered = status::render(&record, &known);
        Ok(write(
            self.context,
            &self.effect(kind),
            &self.observed.child.object,
            rendered,
            memory,
        )
        .await?)
    }
}

fn defect(message: &str) -> ReconcileError {
    ReconcileError {
        side: ErrorSource::Kubernetes,
        reason: Reason::InternalError,
        message: message.to_owned(),
        class: Class::Defect,
    }
}
