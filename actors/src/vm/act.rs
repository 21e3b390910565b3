//! Carries out one step: the effects of a VM pass. This module decides nothing. It reports the result into [`Memory`].

mod configure;
mod create;
mod eject;
mod executor;
mod find;
mod give_up;
mod intent;
mod last_look;
mod power;
mod reassign;
mod record;
mod recycle;
mod release;
mod reset;
mod task;
mod turn;

use std::{sync::OnceLock, time::Duration};

pub use self::executor::StepOutcome;
use self::{
    executor::{Done, Executor},
    last_look::Looked,
    turn::Turn,
};
use super::{
    memory::Memory,
    observed::Observed,
    step::{AgentWork, Attempt, Change, Finalizer, Power, Step},
};
use crate::{
    context::Context,
    ports::{effect::EffectKind, vcenter::TaskRef},
};

/// Carries `step` out.
///
/// # Errors
/// The [`ReconcileError`](crate::domain::failure::ReconcileError) that stopped the step. `memory` then says what is unknown.
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
        Step::Attempt(Attempt::Identity) => executor.record_identity(memory).await,
        Step::Attempt(Attempt::Next) => executor.next_attempt(memory).await,
        Step::Attempt(Attempt::GivenUp) => executor.give_up(memory).await,
        Step::Attempt(Attempt::NotTaken) => executor.not_taken(memory).await,
        Step::Record(entry) => executor.record(memory, entry).await,
        Step::Create => executor.create(memory).await,
        Step::Await(task) => executor.finish_task(memory, &TaskRef(task)).await,
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
