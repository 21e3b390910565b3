//! Who needs a host, where its Agents live, and what a pool may use in other namespaces.

pub mod agents_home;
pub mod boundary;
pub mod classify;
pub mod prepare;
