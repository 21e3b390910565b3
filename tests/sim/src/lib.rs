//! The simulation: the whole operator in one thread with virtual time, in a world that can fail at every effect and every
//! live read that guards one.
//!
//! Flow: a [`plan::Plan`] names a workload and faults. [`run::run`] plays it in a fresh [`world::World`] and reports
//! the broken promises ([`promise::Oracle`]). [`matrix`] makes the plans of a workload from a run without faults.
//! [`branches`] plays thousands of plans.
//! The simulation replaces only transports, ISO source, clock and gate. All other code is the product's: kube's client
//! and watches, the vSphere client, the actors and their decisions. The crates are the copies in which `tests/mutants` can
//! switch defects on; all of them are off here (docs/adr/0009-mutants.md).
//! Guarantee: the same plan gives the same trace every time, byte by byte.

pub mod around;
pub mod between;
pub mod branches;
pub mod call;
pub mod cost;
pub mod director;
pub mod edits;
pub mod hosted;
pub mod iso;
pub mod known;
pub mod kube;
pub mod matrix;
mod names;
pub mod news;
pub mod oracles;
pub mod plan;
pub mod process;
pub mod promise;
pub mod recovery;
pub mod rogue;
pub mod run;
pub mod sample;
pub mod scale;
pub mod shrink;
pub mod states;
pub mod strangers;
pub mod tolerances;
pub mod traffic;
pub mod vcenter;
pub mod waits;
pub mod workloads;
pub mod world;

/// A run makes many small objects on one thread. With this allocator it takes a fifth less time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
