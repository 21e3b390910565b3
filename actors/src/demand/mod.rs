//! Which AgentMachines need a host, where their Agents are, and what a pool may use in other namespaces.

pub mod agents_home;
pub mod boundary;
pub mod buffer;
pub mod classify;
pub mod lending;
pub mod prepare;
