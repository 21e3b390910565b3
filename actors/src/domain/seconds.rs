//! Times as a status has them.

use jiff::Timestamp;

/// That time in whole seconds: the API server keeps no more. What is recorded and what is remembered then are equal.
#[must_use]
pub fn whole(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}
