//! The worlds of the model checker, in one program.

mod binding;
mod guarded;
mod machines;
