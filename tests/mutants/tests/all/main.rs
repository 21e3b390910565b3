//! The tests of the planted defects, in one program.

mod copies;
mod found;
