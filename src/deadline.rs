//! A time limit that also holds after the process was paused.
//!
//! `tokio::time::timeout` polls the work before it looks at the clock. A process that was stopped (SIGSTOP, a paused
//! VM) and continues after the limit would first go on with the work. It could send a request that must not be sent any
//! more. Here every poll looks at the clock first. The leader election depends on it: see
//! docs/explanation/reliability.md.

use std::{
    future::{Future, poll_fn},
    task::Poll,
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

/// The time limit has passed. The work was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

/// Runs `work` for at most `bound` from now.
///
/// # Errors
/// [`Elapsed`].
pub fn within<T>(
    bound: Duration,
    work: impl Future<Output = T>,
) -> impl Future<Output = Result<T, Elapsed>> {
    until(Instant::now() + bound, work)
}

/// Runs `work` until `end`. From then on it is not polled.
///
/// # Errors
/// [`Elapsed`].
pub fn until<T>(
    end: Instant,
    work: impl Future<Output = T>,
) -> impl Future<Output = Result<T, Elapsed>> {
    // On the heap: calls nest deeply, and otherwise each layer would hold the futures of all layers below it.
    let (mut alarm, mut work) = (Box::pin(sleep_until(end)), Box::pin(work));
    poll_fn(move |context| {
        if Instant::now() >= end || alarm.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(Elapsed));
        }
        work.as_mut().poll(context).map(Ok)
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn work_that_is_over_in_time_gives_its_value() {
        assert_eq!(within(Duration::from_secs(60), async { 7 }).await, Ok(7));
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_takes_too_long_is_dropped() {
        let never = std::future::pending::<()>();
        assert_eq!(within(Duration::from_secs(1), never).await, Err(Elapsed));
    }

    /// The thread sleeps between two steps of the work, as a stopped process does. The second step must never run.
    #[tokio::test]
    async fn nothing_goes_on_after_standing_still_past_the_bound() {
        let steps = Cell::new(0);
        let work = async {
            steps.set(1);
            std::thread::sleep(Duration::from_millis(1200));
            tokio::task::yield_now().await;
            steps.set(2);
        };
        assert_eq!(within(Duration::from_secs(1), work).await, Err(Elapsed));
        assert_eq!(steps.get(), 1);
    }
}
