//! Tests of the plan: single edges, guarantees over all worlds, and properties.

mod buffer;
mod caps;
mod crowd;
mod edges;
mod lend;
mod matching;
mod moves;
mod osac;
mod promises;
mod properties;
mod recycle;
mod size;
mod sizes;
