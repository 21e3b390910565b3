//! What the actors need from outside, one small trait per consumer. `src/` implements the traits over the real systems. The
//! simulation implements them in memory.

pub mod byoh;
pub mod clock;
pub mod cluster;
pub mod effect;
pub mod instruments;
pub mod iso_source;
pub mod nodes;
pub mod permit;
pub mod sessions;
pub mod slots;
pub mod tracer;
pub mod vcenter;
