//! The wire format: our definitions compared with those of the predecessor and of the foreign kinds.

// A test reports failures by panicking.
#![allow(clippy::unwrap_used)]

mod contract;
mod defaults;
mod files;
mod foreign;
mod full;
mod generated;
mod lab_definitions;
mod objects;
mod predecessor;
mod refused;
