//! Who may act: one leader among several processes. It is decided from one Lease object of our own and from the Leases that
//! a predecessor may hold ([`crate::migration::lease`]). Pure: `src/lease.rs` asks in a loop and carries out the answers.
//!
//! Flow: read or written -> [`Election::shown`] / [`Election::written`] / [`Election::failed`] -> [`Election::next`].
//!
//! Guarantees of one leader:
//! - Only the process's own monotonic clock counts. The lease of another holder is over when its object has not changed for
//!   the lease duration, as seen from here. Wall clock times in it are for users.
//! - A leader's time runs from the moment *before* it sent its successful write. So its lease is over here before it can be
//!   over for any other process.
//! - Each write carries the resourceVersion that it was decided from. Of two candidates one wins.
//! - [`Next::Lost`] is final. A process that lost leadership ends, and its successor starts as a stranger.
//!
//! Assumptions: monotonic clocks run at about the same rate. No user deletes the Lease while its holder lives; the
//! operator's own RBAC rules do not allow it.

mod fence;
mod timing;

use std::time::Duration;

use crate::migration::lease::{Clear, Guard};

pub use self::{
    fence::{Barrier, Leadership, Lost, Need},
    timing::{BadTiming, Timing},
};

/// The content of a Lease that matters here.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// resourceVersion.
    pub version: String,
    /// The holder; `None` after a release.
    pub holder: Option<String>,
    /// How long after its last change other processes do not take it.
    pub duration: Duration,
}

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing, for that time.
    Wait(Duration),
    /// Read the Lease.
    Read,
    /// Create it with this process as its holder.
    Create,
    /// Replace the object of this resourceVersion by one with this process as its holder.
    Replace {
        /// resourceVersion it must still have.
        version: String,
        /// The holder changes: a transition.
        taken: bool,
    },
    /// A predecessor's Lease blocks nothing, and need not be held. As far as this Lease matters, the process may act.
    Clear(Clear),
    /// Leadership is over, for good.
    Lost(Lost),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Shown {
    /// Not read yet, or not since a write failed.
    Nothing,
    Absent,
    There(Record),
}

/// One candidate's view of the Lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Election {
    me: String,
    timing: Timing,
    shown: Shown,
    /// When the last answer arrived.
    read_at: Duration,
    /// The foreign holder's content, and when it was first seen.
    foreign: Option<(Record, Duration)>,
    /// When the write was sent that made or kept this process the leader.
    renewed_at: Option<Duration>,
    /// No call before that: the last one failed.
    rest_until: Duration,
    /// How a predecessor's Lease is treated; `None` for our own.
    guard: Option<Guard>,
    /// Since when the API server answers each call with "forbidden".
    forbidden_since: Option<Duration>,
}

impl Election {
    /// Candidate `me`; no other process may have this name.
    #[must_use]
    pub fn new(me: String, timing: Timing) -> Self {
        Self {
            me,
            timing,
            shown: Shown::Nothing,
            read_at: Duration::ZERO,
            foreign: None,
            renewed_at: None,
            rest_until: Duration::ZERO,
            guard: None,
            forbidden_since: None,
        }
    }

    /// Candidate `me` for a Lease of the predecessor. The caller asks only while this process holds its own Lease, if it has
    /// one.
    #[must_use]
    pub fn guarding(me: &str, timing: Timing, guard: Guard) -> Self {
        Self {
            guard: Some(guard.clone()),
            ..Self::new(guard.kin.named(me), timing)
        }
    }

    /// The holder, if it is neither this process nor another of our replicas.
    #[must_use]
    pub fn stranger(&self) -> Option<&str> {
        let (record, _) = self.foreign.as_ref()?;
        record.holder.as_deref()
    }

    /// Whether a Lease that blocks nothing now is looked at again.
    #[must_use]
    pub fn follows(&self) -> bool {
        self.guard.as_ref().is_some_and(|guard| guard.follows)
    }

    /// Whether its lease must be over before this process may take it from `holder`. Another of our replicas has already
    /// lost its own Lease to this process, so it does not act any more.
    fn is_stranger(&self, holder: &str) -> bool {
        let kin = self.guard.as_ref().map(|g| &g.kin);
        holder != self.me && !kin.is_some_and(|kin| kin.includes(holder))
    }

    /// The Lease was read, and the answer arrived at `now`; `None` if there is no Lease.
    pub fn shown(&mut self, now: Duration, lease: Option<Record>) {
        self.read_at = now;
        self.forbidden_since = None;
        self.shown = match lease {
            None => Shown::Absent,
            Some(record) => {
                let foreign = record.holder.as_ref().is_some_and(|h| self.is_stranger(h));
                match &self.foreign {
                    _ if !foreign => self.foreign = None,
                    Some((known, _)) if *known == record => {}
                    _ => self.foreign = Some((record.clone(), now)),
                }
                Shown::There(record)
            }
        };
    }

    /// A write with this process as holder, sent at `sent`, was acknowledged with this resourceVersion.
    pub fn written(&mut self, sent: Duration, version: String) {
        self.foreign = None;
        self.forbidden_since = None;
        self.read_at = sent;
        self.renewed_at = Some(sent);
        self.shown = Shown::There(Record {
            version,
            holder: Some(self.me.clone()),
            duration: self.timing.duration(),
        });
    }

    /// A call failed at `now`, or its result is unknown. Nothing is known of the object any more.
    pub fn failed(&mut self, now: Duration) {
        self.forbidden_since = None;
        self.rests(now);
    }

    /// The API server answered a call at `now` with "forbidden".
    pub fn forbidden(&mut self, now: Duration) {
        self.forbidden_since.get_or_insert(now);
        self.rests(now);
    }

    fn rests(&mut self, now: Duration) {
        self.shown = Shown::Nothing;
        self.rest_until = now + self.timing.retry_period();
    }

    /// The same view with other times and other records. A model checker uses it to keep a view without growing clocks and
    /// versions. `now` is when it looks: a rest that is over by then is forgotten.
    #[must_use]
    pub fn retold(
        &self,
        now: Duration,
        moment: impl Fn(Duration) -> Duration,
        record: impl Fn(&Record) -> Record,
    ) -> Self {
        let rests = self.rest_until > now;
        Self {
            me: self.me.clone(),
            timing: self.timing,
            guard: self.guard.clone(),
            forbidden_since: self.forbidden_since.map(&moment),
            shown: match &self.shown {
                Shown::There(shown) => Shown::There(record(shown)),
                other => other.clone(),
            },
            read_at: moment(self.read_at),
            foreign: self
                .foreign
                .as_ref()
                .map(|(r, at)| (record(r), moment(*at))),
            renewed_at: self.renewed_at.map(&moment),
            rest_until: if rests {
                moment(self.rest_until)
            } else {
                Duration::ZERO
            },
        }
    }

    /// Until when this process leads; `None` while it does not lead.
    #[must_use]
    pub fn leads_until(&self) -> Option<Duration> {
        self.renewed_at.map(|at| at + self.timing.duration())
    }

    /// The resourceVersion to release, while this process holds the Lease as far as it knows.
    #[must_use]
    pub fn to_release(&self) -> Option<&str> {
        match &self.shown {
            Shown::There(r) if self.renewed_at.is_some() => Some(&r.version),
            _ => None,
        }
    }

    /// What to do at `now`.
    #[must_use]
    pub fn next(&self, now: Duration) -> Next {
        match self.renewed_at {
            Some(renewed) => self.as_leader(now, renewed),
            None => self.as_guard(now, self.as_candidate(now)),
        }
    }

    /// What a candidate for a predecessor's Lease does, instead of `next`.
    fn as_guard(&self, now: Duration, next: Next) -> Next {
        let Some(guard) = &self.guard else {
            return next;
        };
        let forbidden = self.forbidden_since;
        let for_good = forbidden.is_some_and(|at| now >= at + self.timing.duration());
        match next {
            _ if for_good && !guard.required => Next::Clear(Clear::Forbidden),
            Next::Create | Next::Replace { .. } if !guard.holds => Next::Clear(Clear::Free),
            next => next,
        }
    }

    /// What to do at `now`, given the state of our own Lease. The process does not write to the predecessor's Lease if our
    /// own Lease may be over before the write arrives. Otherwise a process that slept too long could take it from the
    /// replica that leads by then.
    #[must_use]
    pub fn next_beside(&self, now: Duration, own: &Leadership) -> Next {
        let next = self.next(now);
        let writes = matches!(next, Next::Create | Next::Replace { .. });
        let bound = self.timing.lease_call_bound();
        if writes && own.admits(Need::Whole, now, bound).is_err() {
            return Next::Wait(self.timing.retry_period());
        }
        next
    }

    fn as_leader(&self, now: Duration, renewed: Duration) -> Next {
        let deadline = renewed + self.timing.renew_deadline();
        if now >= deadline {
            return Next::Lost(Lost::NotRenewed(self.timing.renew_deadline()));
        }
        let record = match &self.shown {
            Shown::Nothing if now < self.rest_until => {
                return Next::Wait((self.rest_until.min(deadline)).saturating_sub(now));
            }
            Shown::Nothing => return Next::Read,
            Shown::Absent => return Next::Lost(Lost::Removed),
            Shown::There(record) => record,
        };
        match &record.holder {
            Some(holder) if *holder == self.me => {}
            Some(holder) => return Next::Lost(Lost::Taken(holder.clone())),
            None => return Next::Lost(Lost::Removed),
        }
        let due = renewed + self.timing.renew_every();
        if now < due {
            return Next::Wait(due - now);
        }
        Next::Replace {
            version: record.version.clone(),
            taken: false,
        }
    }

    fn as_candidate(&self, now: Duration) -> Next {
        if now < self.rest_until {
            return Next::Wait(self.rest_until - now);
        }
        let expires = self
            .foreign
            .as_ref()
            .map(|(record, since)| *since + record.duration);
        let over = expires.is_none_or(|at| now >= at);
        let again = self.read_at + self.timing.retry_period();
        match &self.shown {
            Shown::Nothing => Next::Read,
            // An old read is no reason to take a Lease.
            _ if now >= again => Next::Read,
            // The Lease was deleted while its last known holder may still act: wait until that lease is over.
            Shown::Absent if over => Next::Create,
            Shown::There(record) if over => Next::Replace {
                version: record.version.clone(),
                taken: record.holder.as_ref() != Some(&self.me),
            },
            _ => Next::Wait(again - now),
        }
    }
}

#[cfg(test)]
mod tests;
