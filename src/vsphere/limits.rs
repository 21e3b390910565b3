//! Bounds per vCenter, whatever the session: two pools with two users still share one vCenter.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use agent_forge_actors::mutants::{Mutant, on};
use tokio::sync::Semaphore;

use super::reach::Reach;

/// What all sessions with one vCenter share.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    /// For tasks in flight.
    pub(super) slots: Arc<Semaphore>,
    /// For connections while there are none.
    pub(super) reach: Arc<Reach>,
}

/// Bounds by vCenter (`host[:port]`).
#[derive(Debug)]
pub(super) struct Limits {
    max: usize,
    servers: Mutex<HashMap<String, Bounds>>,
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

    /// The bounds of a vCenter.
    pub(super) fn of(&self, server: &str) -> Bounds {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let bounds = servers.entry(server.to_owned()).or_insert_with(|| Bounds {
            slots: Arc::new(Semaphore::new(self.max)),
            reach: Arc::default(),
        });
        bounds.clone()
    }
}
