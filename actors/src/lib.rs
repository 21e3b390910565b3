//! Decisions and actors of agent-forge.
//!
//! This crate decides. It never talks to a cluster or a vCenter itself. It knows ports (traits, [`ports`]). `src/`
//! implements them over kube and reqwest, and tests implement them in memory. Time, randomness and the environment enter as
//! values.
//!
//! Reading order:
//! - [`domain`]: what things are.
//! - [`world`]: what the caches say, as typed values.
//! - [`demand`] and [`lifecycle`]: what a host gets, and what happens to a VM that no Machine needs.
//! - [`guard`]: what is proven live before a call that may harm a host.
//! - [`report`]: which Events, log lines, spans and metrics the states of machines and pools give.
//! - [`pool`] and [`vm`]: the pure decisions, and the actors that carry them out.
//! - [`news`]: what vCenters report of running VMs.
//! - [`nodes`]: the Nodes of a hosted cluster beside the VMs.
//! - [`byoh`]: scripts for hosts of BYOH; off by default.
//! - [`iso`], [`sessions`], [`supervisor`]: the ISO caches, the vCenter sessions, and the tree of actors.

pub mod byoh;
pub mod context;
pub mod demand;
pub mod domain;
pub mod guard;
pub mod iso;
pub mod lifecycle;
pub mod migration;
pub mod news;
pub mod nodes;
pub mod orphans;
pub mod placement;
pub mod pool;
pub mod ports;
pub mod report;
pub mod runtime;
pub mod sessions;
pub mod supervisor;
pub mod vm;
pub mod world;

#[cfg(test)]
mod testing;
