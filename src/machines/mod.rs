//! Machines as people see them. The commands and the web page select, sort and print what is here.

pub mod chain;
pub mod decide;
pub mod explain;
pub mod found;
pub mod join;
pub mod lives;
mod progress;
pub mod state;
pub mod waits;
