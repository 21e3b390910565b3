//! Tasks that change a VM. The operator never runs two at a time, and always limits how long it waits for one.

use agent_forge_crds::conditions::Reason;

use super::executor::Executor;
use crate::{
    domain::failure::{Class, ReconcileError},
    ports::{
        effect::EffectKind,
        permit::Permit,
        vcenter::{
            Ended, Fault, TASK_PATIENCE, TaskEnd, TaskRef, VCenter, VcError, VcResult, VmAt,
            VmChange,
        },
    },
    vm::{memory::Memory, ownership::Ownership, refused::Busy},
};

impl Executor<'_> {
    /// Lets vCenter change the VM in the slot of this pass, and waits for the end of the task that `started` begins.
    /// Until the end is known, the state of the VM is unknown.
    ///
    /// # Errors
    /// The VM is busy, with this task or another, and is left alone for a while ([`Busy`]). The inner result says how
    /// the task ended otherwise.
    pub(super) async fn change(
        &self,
        memory: &mut Memory,
        session: &dyn VCenter,
        kind: EffectKind,
        started: impl Future<Output = VcResult<Ended<'_>>> + Send,
    ) -> Result<VcResult<TaskEnd>, ReconcileError> {
        let _running = self.context.in_flight(session.server(), kind);
        memory.seen = Ownership::NotAsked;
        memory.call_refused = false;
        let ended = match started.await {
            Ok(ended) => match tokio::time::timeout(TASK_PATIENCE, ended).await {
                Ok(ended) => {
                    memory.call_refused = ended.as_ref().is_err_and(has_failed);
                    ended
                }
                // The task continues. Others need the slot, and a deletion must be noticed.
                Err(_) => return Err(self.endless(memory, kind)),
            },
            Err(e) => {
                memory.call_refused = !e.outcome_unknown();
                Err(e)
            }
        };
        match &ended {
            Err(e) if matches!(e.fault(), Some(Fault::TaskInProgress)) => {
                if let Some(trouble) = self.refused(memory, kind) {
                    return Err(trouble);
                }
            }
            // There was no answer about the VM.
            Err(e) if e.fault().is_none() => {}
            _ => memory.busy = None,
        }
        Ok(ended)
    }

    /// Changes the configuration of the VM, if that is as it was when it was permitted. `None`: it is not, and is looked at again.
    pub(super) async fn configure(
        &self,
        memory: &mut Memory,
        session: &dyn VCenter,
        permit: &Permit<VmAt>,
        change: &VmChange,
    ) -> Result<Option<TaskEnd>, ReconcileError> {
        let kind = permit.effect().kind;
        let started = session.configure(permit, change);
        match self.change(memory, session, kind, started).await? {
            Ok(end) => {
                memory.outrun = 0;
                Ok(Some(end))
            }
            Err(e) if memory.note_outrun(&e) => Ok(None),
            Err(e) => match e.fault() {
                // Only one that is switched off begins another life, and somebody was faster.
                Some(Fault::InvalidPowerState { .. }) if change.life.is_some() => Ok(None),
                // Too often by now: people learn of it.
                Some(Fault::ConcurrentAccess) => Err(ReconcileError {
                    class: Class::Transient,
                    ..e.into()
                }),
                _ => Err(e.into()),
            },
        }
    }

    /// The task runs for longer than the operator waits.
    fn endless(&self, memory: &mut Memory, kind: EffectKind) -> ReconcileError {
        let why = format!(
            "{} of VM {:?} has not ended within {} s; {LOOK}",
            method(kind),
            self.observed.child.vm_name,
            TASK_PATIENCE.as_secs()
        );
        let now = self.context.clock.monotonic();
        let busy = Busy::for_long(kind, Reason::VmBusy, why, now);
        memory.busy.insert(busy).trouble()
    }

    /// Another task blocks ours. `None`: not for long, so the actor tries again soon.
    fn refused(&self, memory: &mut Memory, kind: EffectKind) -> Option<ReconcileError> {
        let why = format!(
            "vCenter refuses {} of VM {:?} since another task works on it and does not end; {LOOK}",
            method(kind),
            self.observed.child.vm_name
        );
        let now = self.context.clock.monotonic();
        let busy = Busy::again(memory.busy.take(), kind, why, now);
        let busy = memory.busy.insert(busy);
        busy.is_for_long().then(|| busy.trouble())
    }
}

/// The end of the task that such a call begins.
pub(super) async fn ended<'a>(
    session: &'a dyn VCenter,
    started: impl Future<Output = VcResult<TaskRef>> + Send,
) -> VcResult<Ended<'a>> {
    let task = started.await?;
    Ok(Box::pin(async move { session.wait(&task).await.flatten() }))
}

/// The task itself failed. Without the right to see its end, nobody knows that.
fn has_failed(e: &VcError) -> bool {
    let unseen = |fault: &Fault| {
        matches!(
            fault,
            Fault::NotAuthenticated | Fault::InvalidLogin | Fault::NoPermission { .. }
        )
    };
    !e.outcome_unknown() && e.fault().is_some_and(|fault| !unseen(fault))
}

/// What a person can do about it.
const LOOK: &str = "look at the VM's recent tasks and its questions in the vSphere client: nothing else is done to the VM before \
                    that is over";

/// Name of the call in vCenter.
const fn method(kind: EffectKind) -> &'static str {
    match kind {
        EffectKind::PowerOn => "PowerOnVM_Task",
        EffectKind::PowerOff => "PowerOffVM_Task",
        EffectKind::Destroy => "Destroy_Task",
        EffectKind::Reset => "ResetVM_Task",
        _ => "ReconfigVM_Task",
    }
}
