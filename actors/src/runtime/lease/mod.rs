//! Who may act: one leader among several processes, decided from one Lease object of our own and from those that a
//! predecessor may hold ([`guard`]). Pure; `src/lease.rs` asks again and again and carries out what it says.
//!
//! Flow: read or written -> [`Election::shown`] / [`Election::written`] / [`Election::failed`] -> [`Election::next`].
//!
//! Guarantees (reliability.md: one leader)
//! - No clock but the caller's own monotonic one: another holder's lease is over when the object has not changed for as
//!   long as it promises, as seen from here. What it says about the wall clock is for people.
//! - A leader's time runs from the moment *before* its successful write was sent, so it is over here before it can be
//!   over for anybody else.
//! - Each write carries the resourceVersion that it was decided from: of two takers one wins.
//! - [`Next::Lost`] is final. Whoever lost ends its process and starts anew as a stranger.
//!
//! Assumptions: monotonic clocks run at about the same rate; nobody deletes the Lease while its holder lives (its rules
//! do not allow that to the operator).

mod fence;
pub mod guard;
mod timing;
#[cfg(test)]
mod world;

use std::time::Duration;

pub use self::{
    fence::{Barrier, Leadership, Need},
    guard::{Clear, Guard},
    timing::{BadTiming, Timing},
};

/// What a Lease says, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// resourceVersion.
    pub version: String,
    /// Who holds it; `None` after a release.
    pub holder: Option<String>,
    /// How long after its last change others leave it alone.
    pub duration: Duration,
}

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing, for so long.
    Wait(Duration),
    /// Read the Lease.
    Read,
    /// Create it with ourselves as its holder.
    Create,
    /// Replace the object of this resourceVersion by one with ourselves as its holder.
    Replace {
        /// resourceVersion it must still have.
        version: String,
        /// The holder changes: a transition.
        taken: bool,
    },
    /// A predecessor's Lease is in nobody's way, and is not held: act, as far as this one goes.
    Clear(Clear),
    /// Leadership is over, for good.
    Lost(Lost),
}

/// Why leadership ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// No write was acknowledged for the renew deadline.
    #[error(
        "the lease could not be renewed for {} s (is the API server reachable?)",
        .0.as_secs()
    )]
    NotRenewed(Duration),
    /// Somebody else holds it.
    #[error("{0} holds the lease now")]
    Taken(String),
    /// The object is gone, or names nobody.
    #[error("the lease was taken away: somebody deleted or emptied it")]
    Removed,
    /// What keeps it died.
    #[error("what keeps the lease died (see the panic in the log), so nobody renews it")]
    Unkept,
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
    /// When the last answer was taken in.
    read_at: Duration,
    /// The foreign holder's content, and when it was first seen.
    foreign: Option<(Record, Duration)>,
    /// When the write that made or kept us leader was sent.
    renewed_at: Option<Duration>,
    /// No call before that: the last one failed.
    rest_until: Duration,
    /// How a predecessor's Lease is treated; `None` for our own.
    guard: Option<Guard>,
    /// Since when each call is answered by "forbidden".
    forbidden_since: Option<Duration>,
}

impl Election {
    /// Candidate `me`; the name must be nobody else's.
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

    /// Candidate `me` for a Lease of the predecessor's. Asked only while this process holds its own Lease, where it has
    /// one.
    #[must_use]
    pub fn guarding(me: &str, timing: Timing, guard: Guard) -> Self {
        Self {
            guard: Some(guard.clone()),
            ..Self::new(guard.kin.named(me), timing)
        }
    }

    /// Who holds it, if that is neither us nor one of our own.
    #[must_use]
    pub fn stranger(&self) -> Option<&str> {
        let (record, _) = self.foreign.as_ref()?;
        record.holder.as_deref()
    }

    /// Whether `holder` must not be taken from before its time is over. One of our own has lost its own Lease to us by
    /// the time at which we ask, so it acts no more.
    fn is_stranger(&self, holder: &str) -> bool {
        let kin = self.guard.as_ref().map(|g| &g.kin);
        holder != self.me && !kin.is_some_and(|kin| kin.includes(holder))
    }

    /// The Lease was read, and the answer came at `now`; `None` where there is none.
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

    /// A write with ourselves as holder, sent at `sent`, was acknowledged with this resourceVersion.
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

    /// A call failed at `now`, or its end is unknown: nothing is known of the object any more.
    pub fn failed(&mut self, now: Duration) {
        self.forbidden_since = None;
        self.rests(now);
    }

    /// A call was answered at `now` by "forbidden".
    pub fn forbidden(&mut self, now: Duration) {
        self.forbidden_since.get_or_insert(now);
        self.rests(now);
    }

    fn rests(&mut self, now: Duration) {
        self.shown = Shown::Nothing;
        self.rest_until = now + self.timing.retry_period();
    }

    /// The same view with other moments and other records in it: how a model checker keeps a view without a clock that grows
    /// and versions that count. `now` is when it is looked at: a rest that is over by then is forgotten.
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

    /// The same view under another name: to a model checker two candidates that have changed places are one state.
    #[must_use]
    pub fn renamed(self, me: String) -> Self {
        Self { me, ..self }
    }

    /// Until when we lead; `None` while we do not.
    #[must_use]
    pub fn leads_until(&self) -> Option<Duration> {
        self.renewed_at.map(|at| at + self.timing.duration())
    }

    /// The resourceVersion to release, while we hold the Lease as far as is known.
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

    /// What a candidate for a predecessor's Lease does instead of `next`.
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

    /// What to do at `now` where we stand so with our own Lease. Nothing of the predecessor's is written when our own may
    /// be over before that arrives: whoever slept past it would take from one of ours that acts by now.
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
            // A look that is old is no ground to take anything.
            _ if now >= again => Next::Read,
            // Deleted while a holder that was seen may still act: its time is waited out.
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
