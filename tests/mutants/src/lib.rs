//! Known faults, put back in one at a time: does the simulation find each of them?
//!
//! Flow: [`cases::CASES`] names for each [`Mutant`] its rows in the lists of the predecessor and of upstream, and the
//! plan that finds it. [`hunt`] plays that plan twice, without and with the mutant. [`docs`] makes the table of
//! tests/mutants/README.md.
//! Guarantee: the operator that is played here is a copy, which only this package compiles (docs/adr/0009-mutants.md).

pub mod cases;
pub mod defects;
pub mod docs;
pub mod hunt;
pub mod modelled;
pub mod scenes;
pub mod workloads;

pub use agent_forge_actors::mutants::Mutant;
