//! The three times of a lease, and the relations between them.

use std::time::Duration;

/// Times that satisfy the relations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timing {
    duration: Duration,
    renew_deadline: Duration,
    retry_period: Duration,
}

/// A relation that the times do not satisfy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTiming {
    /// See the text.
    #[error(
        "the lease duration must be at least 2 s longer than the renew deadline: that is all the time a call has"
    )]
    Duration,
    /// See the text.
    #[error("the renew deadline must be at least three times the retry period")]
    RenewDeadline,
    /// See the text.
    #[error("the retry period must be at least 100 ms")]
    RetryPeriod,
    /// The API server counts whole seconds.
    #[error("the lease duration must be whole seconds")]
    WholeSeconds,
}

impl Timing {
    /// Checks and takes three times: how long other processes leave a lease alone, after how long without an acknowledged
    /// renewal its holder gives up, and how often a candidate looks.
    ///
    /// # Errors
    /// [`BadTiming`] names the relation that does not hold.
    pub fn new(
        duration: Duration,
        renew_deadline: Duration,
        retry_period: Duration,
    ) -> Result<Self, BadTiming> {
        if retry_period < Duration::from_millis(100) {
            return Err(BadTiming::RetryPeriod);
        }
        if renew_deadline < retry_period.saturating_mul(3) {
            return Err(BadTiming::RenewDeadline);
        }
        if duration.subsec_nanos() != 0 {
            return Err(BadTiming::WholeSeconds);
        }
        if duration < renew_deadline + Duration::from_secs(2) {
            return Err(BadTiming::Duration);
        }
        Ok(Self {
            duration,
            renew_deadline,
            retry_period,
        })
    }

    /// How long after its last change other processes do not take the lease.
    #[must_use]
    pub fn duration(&self) -> Duration {
        self.duration
    }

    /// After how long without an acknowledged renewal the holder gives up.
    #[must_use]
    pub fn renew_deadline(&self) -> Duration {
        self.renew_deadline
    }

    /// How often a candidate looks, and how long each process waits after a failed call.
    #[must_use]
    pub fn retry_period(&self) -> Duration {
        self.retry_period
    }

    /// How often the holder renews.
    #[must_use]
    pub fn renew_every(&self) -> Duration {
        self.renew_deadline / 5
    }

    /// Longest mutating call. A call that begins just before the holder gives up has ended before another process may begin
    /// one.
    #[must_use]
    pub fn call_bound(&self) -> Duration {
        self.duration - self.renew_deadline
    }

    /// Bound of one call for the Lease itself: several fit into the renew deadline.
    #[must_use]
    pub fn lease_call_bound(&self) -> Duration {
        self.renew_deadline / 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_do_not_fit_together_are_refused() {
        let s = Duration::from_secs;
        let ms = Duration::from_millis;
        let timing = Timing::new(s(45), s(15), ms(1500)).expect("the defaults");
        assert_eq!(timing.call_bound(), s(30));
        assert_eq!(timing.renew_every(), s(3));
        assert_eq!(timing.lease_call_bound(), s(5));
        for (given, wrong) in [
            ((s(16), s(15), s(1)), BadTiming::Duration),
            ((s(10), s(15), s(1)), BadTiming::Duration),
            ((s(45), s(15), ms(5001)), BadTiming::RenewDeadline),
            ((s(45), s(15), ms(99)), BadTiming::RetryPeriod),
            ((ms(45_500), s(15), s(1)), BadTiming::WholeSeconds),
        ] {
            assert_eq!(Timing::new(given.0, given.1, given.2), Err(wrong));
        }
        for least in [
            (s(17), s(15), s(1)),
            (s(45), s(15), s(5)),
            (s(45), s(15), ms(100)),
        ] {
            assert!(Timing::new(least.0, least.1, least.2).is_ok(), "{least:?}");
        }
    }
}
