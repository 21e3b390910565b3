//! Time limits for everything that must happen. They only catch a hang.
//!
//! They are no promise of speed. A shared machine may run at a quarter of its speed and pause for seconds. So a limit
//! must be reached only if the event never comes. As long as all is well, a long limit costs nothing. A limit that is
//! itself a promise is defined where that promise is tested.

use std::time::Duration;

/// For what needs several parts and many steps: a program that starts, machines that come up or are deleted.
pub const HANG: Duration = Duration::from_secs(600);
/// For one answer of a part that is running.
pub const ANSWER: Duration = Duration::from_secs(120);
/// For one request that is repeated without an answer. A server that is still starting may have dropped it.
pub const LOOK: Duration = Duration::from_secs(20);
