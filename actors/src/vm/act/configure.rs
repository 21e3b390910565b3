//! Changes the configuration of a VM: the one way for all that a change may say.

use super::{
    executor::{Done, Executor, StepOutcome},
    last_look::{Looked, SOON},
};
use crate::{
    ports::{
        permit::Permit,
        vcenter::{TaskEnd, VCenter, VmAt, VmChange, VmObservation},
    },
    vm::{config, memory::Memory, ownership::Ownership, step::Change},
};

impl Executor<'_> {
    /// Changes it directly after the last look.
    pub(super) async fn change_config(
        &self,
        memory: &mut Memory,
        change: &Change,
        looked: Looked,
    ) -> Done {
        let Looked {
            session,
            shown,
            pool,
            permit,
        } = looked;
        let (marker, pool) = (self.marker(), pool.as_deref());
        match config::wanted(change, self.observed, marker, pool, &shown)? {
            Some(wanted) => {
                self.send(memory, session.as_ref(), &permit, &wanted, shown)
                    .await
            }
            None => Ok(StepOutcome::Pause(SOON)),
        }
    }

    /// Sends `change` to the VM, which was `shown` directly before. Where it cannot be told what the VM shows after it, a look is
    /// next.
    pub(super) async fn send(
        &self,
        memory: &mut Memory,
        session: &dyn VCenter,
        permit: &Permit<VmAt>,
        change: &VmChange,
        shown: VmObservation,
    ) -> Done {
        let ended = self.configure(memory, session, permit, change).await;
        if change.life.is_some() {
            let done = matches!(ended, Ok(Some(_)));
            self.operation(permit.effect().kind.name(), done);
        }
        let told = match &ended {
            Ok(Some(TaskEnd::Success(_))) => config::after(change, shown),
            _ => None,
        };
        if told.is_none() || change.may_serve.is_some() {
            // Its changeVersion is another one by now: the next change is preceded by a look.
            memory.looked_at = None;
        }
        memory.seen = told.map_or(Ownership::NotAsked, |vm| Ownership::Ours(Box::new(vm)));
        Ok(ended?.map_or(StepOutcome::Pause(SOON), |_| StepOutcome::Same))
    }
}
