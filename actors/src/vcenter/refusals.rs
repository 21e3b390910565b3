//! Which credential bytes vCenter refused, and when. Pure.
//!
//! Contract: bytes that are in here are not tried before [`LOCKOUT`] is over (a common lockout is 5 failures in 180 s,
//! house.md §5); bytes that vCenter takes leave at once. Only digests and times are in here, never a password.
//! One writer, the session actor; it publishes each change to whoever made it, and its successor begins with that. The
//! times are of this process's clock: another process knows nothing of them.

use std::{collections::BTreeMap, time::Duration};

use super::login::Digest;

/// The same refused credential bytes are not tried again before.
pub const LOCKOUT: Duration = Duration::from_secs(600);

/// Refused bytes, each with the time (monotonic) of the login that was refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusals(BTreeMap<Digest, Duration>);

impl Refusals {
    /// Whether these bytes were refused too lately to be tried again.
    #[must_use]
    pub fn lately(&self, digest: &Digest, now: Duration) -> bool {
        let at = self.0.get(digest);
        at.is_some_and(|at| now.saturating_sub(*at) < LOCKOUT)
    }

    /// vCenter refused these bytes. That they were looked at again meanwhile, without a login, does not prolong their rest.
    pub fn refused(&mut self, digest: Digest, now: Duration) {
        self.0.retain(|_, at| now.saturating_sub(*at) < LOCKOUT);
        self.0.entry(digest).or_insert(now);
    }

    /// vCenter took these bytes.
    pub fn taken(&mut self, digest: &Digest) {
        self.0.remove(digest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_bytes_rest_from_their_login_on_until_vcenter_takes_them() {
        let (a, b) = ([1; 32], [2; 32]);
        let s = Duration::from_secs;
        let mut refusals = Refusals::default();
        refusals.refused(a, s(0));
        refusals.refused(a, s(599));
        assert!(refusals.lately(&a, s(599)) && !refusals.lately(&b, s(599)));
        assert!(!refusals.lately(&a, s(600)), "a look is no login");
        refusals.refused(a, s(600));
        assert!(refusals.lately(&a, s(1199)), "refused anew");
        refusals.taken(&a);
        assert_eq!(refusals, Refusals::default());
        refusals.refused(a, s(1200));
        refusals.refused(b, s(1800));
        let mut only_b = Refusals::default();
        only_b.refused(b, s(1800));
        assert_eq!(refusals, only_b, "what is over is forgotten");
    }
}
