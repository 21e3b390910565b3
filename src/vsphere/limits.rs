//! Bounds per vCenter, whatever the session: two pools with two users still share one vCenter.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use agent_forge_actors::mutants::{Mutant, on};
use tokio::sync::Semaphore;

/// Semaphores for tasks in flight, one per vCenter (`host[:port]`).
#[derive(Debug)]
pub(super) struct Limits {
    max: usize,
    servers: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl Limits {
    /// At most `max` (at least one) tasks in flight per vCenter.
    pub(super) fn new(max: usize) -> Self {
        Self {
            max: if on(Mutant::OneAtATime) {
                1
            } else {
                max.max(1)
            },
            servers: Mutex::default(),
        }
    }

    /// The semaphore of a vCenter.
    pub(super) fn of(&self, server: &str) -> Arc<Semaphore> {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(
            servers
                .entry(server.to_owned())
                .or_insert_with(|| Arc::new(Semaphore::new(self.max))),
        )
    }
}
