//! Adapters and wiring of agent-forge: everything that talks to the outside. Decisions are in `agent_forge_actors`.

pub mod args;
pub mod chaos;
pub mod clock;
pub mod cluster;
pub mod commands;
pub mod deadline;
pub mod debug;
pub mod gate;
mod health;
pub mod hosted_nodes;
pub mod iso_source;
pub mod lease;
pub mod machines;
pub mod run;
mod servers;
mod shared_reads;
mod standby;
pub mod telemetry;
#[cfg(test)]
mod testing;
pub mod vsphere;
pub mod web;
