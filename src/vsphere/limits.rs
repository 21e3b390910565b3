//! Limits per vCenter. They hold for all sessions: two pools with two users still share one vCenter.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use agent_forge_actors::{
    mutants::{Mutant, on},
    ports::slots::Slots,
};

use super::circuit_breaker::CircuitBreaker;

/// What all sessions with one vCenter share.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    /// Slots for running tasks.
    pub(super) slots: Slots,
    /// Limits connections while the vCenter is unreachable.
    pub(super) reach: Arc<CircuitBreaker>,
}

/// The limits of each vCenter (`host[:port]`).
#[derive(Debug)]
pub(super) struct Limits {
    max: usize,
    servers: Mutex<HashMap<String, Bounds>>,
}

impl Limits {
    /// At most `max` running tasks per vCenter, at least one.
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

    /// The limits of a vCenter.
    pub(super) fn of(&self, server: &str) -> Bounds {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let bounds = servers.entry(server.to_owned()).or_insert_with(|| Bounds {
            slots: Slots::new(self.max),
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
        let limits = Limits::new(2);
        let held = limits.of("vc.example").slots.count();
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
        assert_eq!(Limits::new(0).of("vc.example").slots.free(), 1);
    }
}
