//! Waiting for a task slot.

use std::{sync::Arc, time::Duration};

use super::Executor;
use crate::{
    domain::{failure::ReconcileError, names::ObjectKey},
    ports::slots::turns::Errand,
    vm::memory::Memory,
};

/// How long a pass waits for a slot before it looks what became of its object; the place in the line is kept.
pub const LOOK_UP: Duration = Duration::from_secs(30);

/// How it stands with a task slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It is there, and nobody had to wait.
    Now,
    /// It came after a wait: what is done with it is decided again, for the world went on.
    Come,
    /// Others are ahead yet.
    Ahead,
}

impl Executor<'_> {
    /// Takes a slot, unless this pass has one that serves.
    pub(super) async fn turn(
        &self,
        memory: &mut Memory,
        errand: Errand,
    ) -> Result<Turn, ReconcileError> {
        if memory.slot.as_ref().is_some_and(|s| s.serves(errand)) {
            return Ok(Turn::Now);
        }
        let ticket = match memory.ticket.take() {
            Some(ticket) => ticket,
            None => {
                let child = &self.observed.child;
                let pool = &child.object.spec.pool_ref.name;
                let pool = ObjectKey::new(&child.key.namespace, pool);
                Arc::new(self.session().await?.slots().ask(errand, &pool))
            }
        };
        if let Some(slot) = ticket.fetch() {
            memory.slot = Some(Arc::new(slot));
            return Ok(Turn::Now);
        }
        let granted = tokio::time::timeout(LOOK_UP, ticket.granted()).await;
        Ok(match granted {
            Ok(slot) => {
                memory.slot = Some(Arc::new(slot));
                Turn::Come
            }
            Err(_) => {
                memory.ticket = Some(ticket);
                Turn::Ahead
            }
        })
    }
}
