//! Waiting for a task slot.

use std::{sync::Arc, time::Duration};

use super::Executor;
use crate::{
    domain::{failure::ReconcileError, names::ObjectKey},
    ports::slots::turns::{Cap, Errand},
    vm::memory::Memory,
};

/// How long a pass waits for a slot before it checks its object again. It keeps its place in the line.
pub const LOOK_UP: Duration = Duration::from_secs(30);

/// The answer to a request for a task slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The slot is free, and there was no wait.
    Now,
    /// The slot is free after a wait. The step is decided again, because the state may have changed.
    Come,
    /// Others are still ahead. A create has a sentence about the limit that it waits for.
    Ahead(Option<String>),
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
                let child = &self.observed.child;
                let pool = &child.object.spec.pool_ref.name;
                let pool = ObjectKey::new(&child.key.namespace, pool);
                let slots = self.session().await?.slots();
                Arc::new(match errand {
                    Errand::Create => slots.ask_create(&pool, &self.datastore()?),
                    _ => slots.ask(errand, &pool),
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
                let cap = ticket.cap();
                memory.ticket = Some(ticket);
                Turn::Ahead(cap.map(|cap| self.explain(cap)))
            }
        })
    }

    /// The limit in words. Who is ahead is left out: each change of that number would be written to the status.
    fn explain(&self, cap: Cap) -> String {
        let vm = self.vm();
        let server = vm.server.as_deref().unwrap_or("?");
        let (limit, what, flag) = match cap {
            Cap::Creates(n) => (n, "creates".to_owned(), "--max-concurrent-creates"),
            Cap::Datastore(n) => {
                let place = vm.placement.as_ref();
                let name = place.and_then(|p| p.datastore.as_deref()).unwrap_or("?");
                let what = format!("creates on datastore {name}");
                (n, what, "--max-concurrent-creates-per-datastore")
            }
            Cap::Tasks(n) => (n, "tasks".to_owned(), "--max-concurrent-vcenter-tasks"),
        };
        format!("vCenter {server} may run {limit} {what} at once ({flag}), and others are ahead")
    }
}
