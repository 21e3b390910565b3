//! The table: its times, and its guarantees.

use super::*;

mod edges;
mod model;
