//! Resets a VM whose guest booted the discovery ISO instead of its disk. The record comes first, so that the limit also
//! holds after a crash.

use agent_forge_crds::conditions::event;

use super::{
    executor::{Done, Executor, StepOutcome},
    last_look::Looked,
    task::ended,
};
use crate::{
    ports::vcenter::{Fault, VcError},
    vm::{boot_repair, memory::Memory},
};

impl Executor<'_> {
    /// Resets the VM as recorded. If vCenter certainly did nothing, the same reset is tried again.
    pub(super) async fn reset(&self, memory: &mut Memory, looked: Looked) -> Done {
        let Looked {
            session, permit, ..
        } = looked;
        let kind = permit.effect().kind;
        let mut refused = false;
        let started = async {
            let started = session.reset(&permit).await;
            refused = started.as_ref().is_err_and(is_refused);
            started
        };
        let started = ended(session.as_ref(), started);
        note_sent(memory, true);
        let ended = self.change(memory, session.as_ref(), kind, started).await;
        let off = matches!(&ended, Ok(Err(e)) if is_off(e));
        note_sent(memory, !refused && !off);
        self.operation(kind.name(), matches!(ended, Ok(Ok(_))));
        match ended? {
            Ok(_) => self.tell_reset(),
            // It is looked at again.
            Err(e) if is_off(&e) => {}
            Err(e) => return Err(e.into()),
        }
        Ok(StepOutcome::Same)
    }

    fn tell_reset(&self) {
        let count = self.vm().boot_repair.map_or(0, |repair| repair.count);
        let words = format!(
            "the guest booted the discovery ISO instead of its disk: its boot order was set and the VM was reset, {count} of {} times",
            boot_repair::MOST
        );
        self.event(true, event::VM_RESET, "ResetVM", &words);
    }
}

/// vCenter did not take the call. A VM that is busy may be busy with this reset, which reached it twice.
fn is_refused(e: &VcError) -> bool {
    !e.outcome_unknown() && !matches!(e.fault(), Some(Fault::TaskInProgress))
}

fn is_off(e: &VcError) -> bool {
    matches!(e.fault(), Some(Fault::InvalidPowerState { .. }))
}

fn note_sent(memory: &mut Memory, sent: bool) {
    let own = memory.reset.as_mut();
    if let Some(recorded) = own.and_then(|own| own.recorded.as_mut()) {
        recorded.sent = sent;
    }
}
