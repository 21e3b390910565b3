//! A bound that also holds for a process that stood still.
//!
//! `tokio::time::timeout` looks at the work before it looks at the clock: a process that is stopped (SIGSTOP, a paused
//! VM) and wakes up after the bound would first go on with the work, and send what nobody expects any more. Here the
//! clock comes first, on every poll (reliability.md: one leader).

use std::{
    future::{Future, poll_fn},
    task::Poll,
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

/// The bound was reached. The work was dropped where it stood.
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

/// Runs `work` until `end` at most; it is not polled from then on.
///
/// # Errors
/// [`Elapsed`].
pub fn until<T>(
    end: Instant,
    work: impl Future<Output = T>,
) -> impl Future<Output = Result<T, Elapsed>> {
    // On the heap: calls nest deeply, and each layer would hold all of the layers below it.
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

    /// The thread stands still between two steps of the work, as a stopped process does: the second one never runs.
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
