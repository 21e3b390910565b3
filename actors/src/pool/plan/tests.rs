//! Tests of the plan: single edges, guarantees over all worlds, and properties.

mod crowd;
mod edges;
mod moves;
mod promises;
mod properties;
