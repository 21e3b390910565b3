//! The worlds of the model checker, in one program.

mod binding;
mod flight;
mod guarded;
mod lease;
mod machines;
