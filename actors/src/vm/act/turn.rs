//! Waiting for a task slot.

use std::{sync::Arc, time::Duration};

use super::executor::Executor;
use crate::{domain::failure::ReconcileError, ports::slots::turns::Errand, vm::memory::Memory};

/// How long a pass waits for a slot before it checks its object again. It keeps its place in the line.
pub const LOOK_UP: Duration = Duration::from_secs(30);

/// The answer to a request for a task slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The slot is free, and there was no wait.
    Now,
    /// The slot is free after a wait. The step is decided again, because the state may have changed.
    Come,
    /// Others are still ahead. The place in the line is kept. The status of the pool says how many VMs wait so.
    Ahead,
}

impl Executor<'_> {
    /// Id of the datastore on record.
    pub(super) fn datastore(&self) -> Result<String, ReconcileError> {
        self.place().map(|place| place.datastore.1.id)
    }

    /// Takes a slot, unless this pass already has one that fits.
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
                let pool = &self.observed.child.pool;
                let slots = self.session().await?.slots();
                Arc::new(match errand {
                    Errand::Create => slots.ask_create(pool, &self.datastore()?),
                    _ => slots.ask(errand, pool),
                })
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
