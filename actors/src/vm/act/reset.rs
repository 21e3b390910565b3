//! Resets a VM whose guest booted the discovery ISO instead of its disk. The record comes first, so that the limit also
//! holds after a crash.

use agent_forge_crds::{Time, agent::BootRepair, conditions::event};
use jiff::Timestamp;

use super::{Done, Executor, StepOutcome, defect, look::Looked, task::ended};
use crate::{
    ports::{
        effect::EffectKind,
        vcenter::{Fault, VcError},
    },
    vm::{
        boot_repair::{self, Recorded},
        memory::Memory,
    },
};

impl Executor<'_> {
    /// Records the next reset.
    pub(super) async fn record_boot_repair(&self, memory: &mut Memory) -> Done {
        let agent = self.observed.host.agent.as_ref();
        let agent = agent.ok_or_else(|| defect("no Agent runs on the VM"))?;
        let (mut vm, now) = (self.vm(), self.context.clock.wall());
        let before = boot_repair::last(vm.boot_repair.as_ref(), memory.reset.as_ref());
        let before = before.map_or(0, |repair| repair.count);
        let repair = BootRepair {
            count: before.saturating_add(1),
            at: Some(Time(Timestamp::from_second(now.as_second()).unwrap_or(now))),
            state_updated_at: boot_repair::occurrence(agent),
        };
        vm.boot_repair = Some(repair.clone());
        // Noted before the write: its reply may be lost.
        memory.reset.get_or_insert_default().recorded = Some(Recorded {
            repair,
            at: self.context.clock.monotonic(),
            sent: false,
        });
        let kind = EffectKind::RecordObservation;
        Ok(StepOutcome::Object(self.save(kind, vm, memory).await?))
    }

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
