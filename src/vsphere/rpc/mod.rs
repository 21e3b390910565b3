//! How a call gets to vCenter and back: trust, connections, sessions, the effect gate, shapes on the wire, faults.

pub(crate) mod automation;
pub(crate) mod call;
pub(crate) mod circuit_breaker;
pub(crate) mod client;
pub(crate) mod fault;
pub(crate) mod http;
pub(crate) mod limits;
pub(crate) mod login;
pub(crate) mod options;
#[cfg(test)]
pub(crate) mod played;
pub(crate) mod properties;
pub(crate) mod reply;
pub(crate) mod resolver;
pub(crate) mod session;
pub(crate) mod transport;
pub(crate) mod trust;
pub(crate) mod wire;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also after a panic of another holder: all values here are whole between two statements.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
