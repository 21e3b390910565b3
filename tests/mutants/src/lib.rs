//! Known faults, put back in one at a time: does the simulation find each of them?
//!
//! Flow: [`cases::CASES`] says of each [`Mutant`] which rows of the predecessor's and the upstream's lists it stands for,
//! and by which plan it is found; [`hunt`] runs that plan twice, without and with the mutant; [`docs`] makes the table of
//! tests/mutants/README.md.
//! Guarantee: the operator that is played here is a copy, compiled for this package alone (docs/adr/0009-mutants.md).

pub mod cases;
pub mod defects;
pub mod docs;
pub mod hunt;
pub mod scenes;
pub mod workloads;

pub use agent_forge_actors::mutants::Mutant;
