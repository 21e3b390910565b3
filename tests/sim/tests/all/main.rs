//! The tests of the simulation, in one program: linking it is what they cost most.

mod conformance;
mod cost;
mod edits;
mod garbage;
mod names;
mod nodes;
mod plans;
mod provider;
mod scale;
mod serving;
mod states;
mod vcenter;
mod waits;
