//! Limits per vCenter. They do not depend on the session: two pools with two users share one vCenter.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use agent_forge_actors::ports::slots::{Slots, turns};

use super::{circuit_breaker::CircuitBreaker, locked};

/// What all sessions with one vCenter share.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    /// For tasks in flight.
    pub(crate) slots: Slots,
    /// For connections while vCenter is away.
    pub(crate) reach: Arc<CircuitBreaker>,
}

/// Limits by vCenter (`host[:port]`).
#[derive(Debug)]
pub(crate) struct Limits {
    tasks: turns::Limits,
    servers: Mutex<HashMap<String, Bounds>>,
}

impl Limits {
    /// These limits for each vCenter, and at least one task.
    pub(crate) fn new(tasks: turns::Limits) -> Self {
        Self {
            tasks: turns::Limits {
                tasks: tasks.tasks.max(1),
                creates: tasks.creates.max(1),
                creates_per_datastore: tasks.creates_per_datastore.max(1),
            },
            servers: Mutex::default(),
        }
    }

    /// The limits of a vCenter.
    pub(crate) fn of(&self, server: &str) -> Bounds {
        let mut servers = locked(&self.servers);
        let bounds = servers.entry(server.to_owned()).or_insert_with(|| Bounds {
            slots: Slots::new(self.tasks),
            reach: Arc::default(),
        });
        bounds.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_vcenter_has_one_bound_and_another_its_own() {
        let limits = Limits::new(turns::Limits::tasks(2));
        let held = limits.of("vc.example").slots.count("d");
        let again = limits.of("vc.example");
        assert_eq!(again.slots.free(), 1, "whatever session asks");
        assert!(Arc::ptr_eq(&again.reach, &limits.of("vc.example").reach));
        let other = limits.of("vc.example:8443");
        assert_eq!(other.slots.free(), 2);
        assert!(!Arc::ptr_eq(&again.reach, &other.reach));
        drop(held);
        assert_eq!(again.slots.free(), 2);
    }

    #[test]
    fn one_task_at_least_goes_on() {
        assert_eq!(
            Limits::new(turns::Limits::tasks(0))
                .of("vc.example")
                .slots
                .free(),
            1
        );
    }
}
