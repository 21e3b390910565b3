//! The plan, tested: single edges, promises over all worlds, and properties.

mod crowd;
mod edges;
mod moves;
mod promises;
mod properties;
