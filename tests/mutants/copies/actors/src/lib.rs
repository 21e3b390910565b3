//! `actors/` once more, with defects that tests can switch on. Docs: docs/adr/0009-mutants.md.
//!
//! The build script writes what is included here. Unit tests run with the original, so there is nothing for them.

#[cfg(not(test))]
include!(concat!(env!("OUT_DIR"), "/src/lib.rs"));

pub mod mutants;
