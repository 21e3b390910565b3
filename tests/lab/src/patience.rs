//! How long anybody waits for what has to happen: the one home of bounds that only catch a hang.
//!
//! They promise nothing of anybody's speed. A shared machine runs at a quarter of its pace and stands still for seconds at a
//! time, so a bound must be out of reach of all but what never comes; where all is well a long one costs nothing. A bound that
//! is itself a promise stands where that promise is tested, and says what it is measured against.

use std::time::Duration;

/// For what takes several parts and many steps: a program that comes up, machines that run or are gone.
pub const HANG: Duration = Duration::from_secs(600);
/// For one answer of a part that is up.
pub const ANSWER: Duration = Duration::from_secs(120);
/// For one look that is repeated where nothing comes back: whoever is still coming up may have dropped the question.
pub const LOOK: Duration = Duration::from_secs(20);
