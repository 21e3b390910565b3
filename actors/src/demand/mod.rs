//! What an Agent gets, how hosts wait in the buffer, and which hosts pools give each other.

pub mod applied;
pub mod buffer;
pub mod lending;
pub mod prepare;
