//! Known faults, put back in one at a time: does the simulation, or the model checker, find each of them?
//!
//! Flow: a page of `tests/mutants/defects` names for each [`Mutant`] the plan or the small world that finds it
//! ([`cases`]). [`hunt`] plays such a plan twice, without and with the mutant. [`modelled`] explores such a world.
//! Guarantee: simulation and model checker always play a copy of the operator. All mutants are off in it until a test of
//! this package switches one on (docs/adr/0009-mutants.md).

pub mod cases;
pub mod defects;
pub mod hunt;
mod leaving;
pub mod modelled;
pub mod same;
pub mod scenes;
pub mod workloads;

pub use agent_forge_actors::mutants::Mutant;
