//! What the actors need from outside, one small trait per consumer. `src/` implements them over the real thing; the
//! simulation implements them in memory.

pub mod clock;
pub mod cluster;
pub mod effect;
pub mod instruments;
pub mod iso_source;
pub mod sessions;
pub mod slots;
pub mod tracer;
pub mod vcenter;
