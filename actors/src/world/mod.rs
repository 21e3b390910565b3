//! What the caches say, as typed values: who needs a host, which host there is, and what a pool may use in other namespaces.
//!
//! An actor decides from these values. The rules of other projects, which say what an object means, are here and in
//! [`domain`](crate::domain).

pub mod agents_home;
pub mod boundary;
pub mod classify;
pub mod foreign;
pub mod half_moved;
pub mod host;
