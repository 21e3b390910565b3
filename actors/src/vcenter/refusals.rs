//! Which credential bytes vCenter refused, and when. Pure.
//!
//! Contract: bytes that are in here are not tried before [`LOCKOUT`] is over (a common lockout is 5 failures in 180 s,
//! house.md §5); bytes that vCenter takes leave at once. Only digests and times are in here, never a password.
//! One writer, the session actor; it publishes each change to whoever made it, and its successor begins with that. What
//! another process has to know stands in the status of the pools: which state of which Secret was refused, and when.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use agent_forge_crds::pool::VsphereAgentPool;
use jiff::Timestamp;

use super::login::Digest;
use crate::ports::{clock::Clock, cluster::SecretVersion};

/// The same refused credential bytes are not tried again before.
pub const LOCKOUT: Duration = Duration::from_secs(600);

/// A moment, as both clocks have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// For this process alone.
    pub monotonic: Duration,
    /// For what other processes read; whole seconds, as they stand in a status.
    pub wall: Timestamp,
}

impl Moment {
    /// Now.
    pub fn now(clock: &dyn Clock) -> Self {
        let wall = clock.wall();
        Self {
            monotonic: clock.monotonic(),
            wall: Timestamp::from_second(wall.as_second()).unwrap_or(wall),
        }
    }
}

/// A refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Refusal {
    at: Timestamp,
    /// End of the rest (monotonic).
    until: Duration,
}

/// Refused bytes, each with the login that was refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusals(BTreeMap<Digest, Refusal>);

impl Refusals {
    /// Whether these bytes were refused too lately to be tried again; `now` is monotonic.
    #[must_use]
    pub fn lately(&self, digest: &Digest, now: Duration) -> bool {
        self.0.get(digest).is_some_and(|r| now < r.until)
    }

    /// When these bytes were refused last.
    #[must_use]
    pub fn at(&self, digest: &Digest) -> Option<Timestamp> {
        self.0.get(digest).map(|r| r.at)
    }

    /// vCenter refused these bytes. That they were looked at again meanwhile, without a login, does not prolong their rest.
    pub fn refused(&mut self, digest: Digest, now: Moment) {
        self.note(digest, now.wall, LOCKOUT, now);
    }

    /// An earlier process was refused these bytes `at` that time: what is left of their rest they have.
    pub fn recall(&mut self, digest: Digest, at: Timestamp, now: Moment) {
        if let Some(left) = rest_left(at, now.wall) {
            self.note(digest, at, left, now);
        }
    }

    fn note(&mut self, digest: Digest, at: Timestamp, rest: Duration, now: Moment) {
        self.0.retain(|_, r| now.monotonic < r.until);
        self.0.entry(digest).or_insert(Refusal {
            at,
            until: now.monotonic.saturating_add(rest),
        });
    }

    /// vCenter took these bytes.
    pub fn taken(&mut self, digest: &Digest) {
        self.0.remove(digest);
    }
}

/// How long bytes still rest that were refused `at` that time; `None` once it is over. The clocks of two machines differ:
/// a refusal that is to come was just now, so that no clock makes a rest longer than [`LOCKOUT`].
fn rest_left(at: Timestamp, now: Timestamp) -> Option<Duration> {
    let age = Duration::try_from(now.duration_since(at)).unwrap_or_default();
    LOCKOUT.checked_sub(age).filter(|left| !left.is_zero())
}

/// When vCenter refused what that state of a Secret holds, by the last word of any pool.
#[must_use]
pub fn recorded(pools: &[Arc<VsphereAgentPool>], version: &SecretVersion) -> Option<Timestamp> {
    let records = pools.iter().filter_map(|p| {
        let status = p.status.as_ref()?;
        status.refused_credentials.as_ref()
    });
    records
        .filter(|r| {
            r.secret_uid == version.uid && r.secret_resource_version == version.resource_version
        })
        .filter_map(|r| Some(r.refused_at.as_ref()?.0))
        .max()
}

#[cfg(test)]
mod tests {
    use agent_forge_crds::{Time, pool::RefusedCredentials};

    use super::*;
    use crate::testing;

    /// A second, on both clocks.
    fn m(second: u64) -> Moment {
        Moment {
            monotonic: Duration::from_secs(second),
            wall: testing::at(second.cast_signed()),
        }
    }

    #[test]
    fn refused_bytes_rest_from_their_login_on_until_vcenter_takes_them() {
        let (a, b) = ([1; 32], [2; 32]);
        let s = Duration::from_secs;
        let mut refusals = Refusals::default();
        refusals.refused(a, m(0));
        refusals.refused(a, m(599));
        assert_eq!(refusals.at(&a), Some(m(0).wall));
        assert!(refusals.lately(&a, s(599)) && !refusals.lately(&b, s(599)));
        assert!(!refusals.lately(&a, s(600)), "a look is no login");
        refusals.refused(a, m(600));
        assert_eq!(refusals.at(&a), Some(m(600).wall), "refused anew");
        assert!(refusals.lately(&a, s(1199)));
        refusals.taken(&a);
        assert_eq!(refusals, Refusals::default());
        refusals.refused(a, m(1200));
        refusals.refused(b, m(1800));
        let mut only_b = Refusals::default();
        only_b.refused(b, m(1800));
        assert_eq!(refusals, only_b, "what is over is forgotten");
    }

    #[test]
    fn what_an_earlier_process_was_refused_has_the_rest_of_its_rest() {
        let a = [1; 32];
        // How old the refusal is when this process reads of it, by the wall clock; for how long the bytes rest then.
        let cases = [(0, 600), (1, 599), (599, 1), (600, 0), (9000, 0), (-5, 600)];
        for (age, rest) in cases {
            // A process that has just begun: its own clock begins with zero.
            let began = Moment {
                monotonic: Duration::ZERO,
                wall: testing::at(10_000),
            };
            let at = testing::at(10_000 - age);
            let mut refusals = Refusals::default();
            refusals.recall(a, at, began);
            let last = Duration::from_secs(rest);
            assert!(!refusals.lately(&a, last), "{age} s old");
            if rest == 0 {
                assert_eq!(refusals, Refusals::default(), "{age} s old");
                continue;
            }
            assert!(
                refusals.lately(&a, last - Duration::from_millis(1)),
                "{age}"
            );
            assert_eq!(refusals.at(&a), Some(at), "as it is recorded");
        }
        let mut refusals = Refusals::default();
        refusals.refused(a, m(100));
        let mut told = refusals.clone();
        told.recall(a, m(0).wall, m(110));
        assert_eq!(told, refusals, "its own knowledge is newer");
    }

    #[test]
    fn a_record_speaks_of_one_state_of_one_secret() {
        let version = |uid: &str, resource_version: &str| SecretVersion {
            uid: uid.to_owned(),
            resource_version: resource_version.to_owned(),
        };
        let pool = |uid: &str, resource_version: &str, second: Option<i64>| {
            let record = RefusedCredentials {
                refused_at: second.map(|s| Time(testing::at(s))),
                secret_resource_version: resource_version.to_owned(),
                secret_uid: uid.to_owned(),
            };
            Arc::new(testing::with(testing::pool("p"), |p| {
                p.status.get_or_insert_default().refused_credentials = Some(record);
            }))
        };
        let pools = [
            Arc::new(testing::pool("none")),
            pool("one", "7", Some(100)),
            pool("one", "7", Some(300)),
            pool("one", "7", Some(200)),
            pool("two", "7", Some(400)),
            pool("one", "8", Some(500)),
            pool("three", "7", None),
        ];
        let recorded = |uid, at| super::recorded(&pools, &version(uid, at));
        assert_eq!(recorded("one", "7"), Some(testing::at(300)), "the last");
        assert_eq!(recorded("two", "7"), Some(testing::at(400)));
        for (uid, at) in [("one", "6"), ("two", "8"), ("three", "7"), ("", "")] {
            assert_eq!(recorded(uid, at), None, "{uid} {at}");
        }
    }
}
