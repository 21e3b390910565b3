//! Carries out one step: the effects of a VM pass. This module decides nothing. It reports the result into [`Memory`].

mod configure;
mod create;
mod eject;
mod find;
mod give_up;
mod intent;
mod look;
mod power;
mod reassign;
mod record;
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
    pass::{self, known, write},
    place, status,
    step::{AgentWork, Change, Finalizer, Power, Step},
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
        Step::Look => executor.lookup(memory).await,
        Step::Prove => executor.take_over(memory).await,
        Step::Place => executor.place_again(memory).await,
        Step::Record(entry) => executor.record(memory, entry).await,
        Step::Create => executor.create(memory).await,
        Step::Await(task) => executor.finish_task(memory, &TaskRef(task)).await,
        Step::Configure(Change::TakeMark) => executor.stamp(memory).await,
        Step::Configure(Change::Eject) => executor.eject(memory).await,
        Step::Configure(Change::FinishEjection) => executor.finish_ejection(memory).await,
        Step::Configure(_) | Step::Power(_) | Step::Destroy => {
            let kind = step.call().unwrap_or(EffectKind::Destroy);
            match Box::pin(executor.last_look(memory, &step, kind)).await? {
                Err(otherwise) => Ok(otherwise),
                Ok(looked) => change_vm(executor, memory, step, looked).await,
            }
        }
        Step::Tag => executor.attach_tags(memory).await,
        Step::Agent(AgentWork::Fence) => executor.fence(memory).await,
        Step::Agent(AgentWork::SkipCleanup) => executor.skip_cleanup(memory).await,
        Step::Agent(AgentWork::Delete) => executor.delete_agent("its VM is proven absent").await,
        Step::Agent(AgentWork::ReleaseHook) => {
            executor
                .delete_agent("the deletion of its Machine waits for it, and its VM is dead")
                .await
        }
        Step::Finalizer(Finalizer::On) => executor.add_finalizer().await,
        Step::Finalizer(Finalizer::Off) => executor.remove_finalizer(memory).await,
        Step::HandOver => executor.hand_over().await,
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
        Step::Configure(change) => executor.change_config(memory, &change, looked).await,
        Step::Power(Power::OnAgain) => executor.power_on_again(memory, looked).await,
        Step::Power(Power::Reset) => executor.reset(memory, looked).await,
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

    /// Writes a status, read as the VsphereAgent is with it. If the next step is to wait, it says so already: no second write
    /// follows.
    async fn save_record(
        &self,
        kind: EffectKind,
        record: VsphereAgentStatus,
        memory: &mut Memory,
    ) -> Result<Arc<VsphereAgent>, ReconcileError> {
        let mut after = VsphereAgent::clone(&self.observed.child.object);
        after.status = Some(record.clone());
        let observed = Observed::gather(self.context.view.as_ref(), Arc::new(after));
        traced::note(self.context, &observed, memory);
        let wait = pass::wait(self.context, &observed, memory);
        let known = known(self.context, &observed, wait.as_ref(), memory);
        let rendered = status::render(&record, &known);
        let effect = self.effect(kind);
        let object = &self.observed.child.object;
        Ok(write(self.context, &effect, object, rendered, memory).await?)
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
