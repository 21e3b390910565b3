//! The actor as a whole, on in-memory ports and virtual time.

mod faults;
mod left;
mod life;
mod lost;
mod recall;
mod sharing;
mod upkeep;
mod users;
