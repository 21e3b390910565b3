//! The fence: whether a mutating call may begin, given the time that the lease has left.

use std::time::Duration;

use crate::ports::effect::EffectKind;

/// Whether this process leads. The gate asks this before each effect. Times are monotonic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leadership {
    /// Another process leads, or none yet.
    Standby,
    /// This process would lead, but a Lease of the predecessor is in the way.
    Barred(Barrier),
    /// This process leads until then, unless it renews the lease.
    Leading {
        /// Monotonic.
        until: Duration,
    },
    /// This process led and does not lead any more.
    Lost(Lost),
    /// This process released the lease at its end.
    Released,
}

/// Why leadership ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// No write was acknowledged within the renew deadline.
    #[error(
        "the lease could not be renewed for {} s (is the API server reachable?)",
        .0.as_secs()
    )]
    NotRenewed(Duration),
    /// Another process holds it.
    #[error("{0} holds the lease now")]
    Taken(String),
    /// The object is gone, or has no holder.
    #[error("the lease was taken away: somebody deleted or emptied it")]
    Removed,
    /// The task that renews it died.
    #[error("what keeps the lease died (see the panic in the log), so nobody renews it")]
    Unkept,
}

/// What blocks a process that holds our own Lease, or needs none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Barrier {
    /// Another process holds it.
    #[error(
        "{holder} holds the predecessor's Lease {lease}: scale the predecessor to zero, and this operator takes over when \
         the Lease is let go or runs out"
    )]
    Held {
        /// `namespace/name`.
        lease: String,
        /// The holder.
        holder: String,
    },
    /// It cannot be read or written.
    #[error(
        "whether the predecessor acts is not known, its Lease {lease} is out of reach: {why}; grant get, create and update \
         of it (config/overlays/predecessor-lease), or correct --predecessor-lease-namespace"
    )]
    Unknown {
        /// `namespace/name`.
        lease: String,
        /// The answer of the API server.
        why: String,
    },
}

/// How much of the lease an effect needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// None: it is an effect on the lease itself.
    Nothing,
    /// To lead when it begins. It lasts longer than any lease, and writes only under a name of its own.
    Begin,
    /// All the time that the call may take.
    Whole,
}

impl Need {
    /// What an effect of that kind needs.
    #[must_use]
    pub const fn of(kind: EffectKind) -> Self {
        match kind {
            EffectKind::Lease => Self::Nothing,
            EffectKind::Upload => Self::Begin,
            _ => Self::Whole,
        }
    }
}

impl Leadership {
    /// The state of a process that needs all of these Leases. It leads while it holds each of them, and has lost when one is
    /// lost.
    #[must_use]
    pub fn joined(all: &[Self]) -> Self {
        let rank = |s: &Self| match s {
            Self::Lost(_) => 0,
            Self::Released => 1,
            Self::Standby => 2,
            Self::Barred(_) => 3,
            Self::Leading { .. } => 4,
        };
        let until = |s: &Self| match s {
            Self::Leading { until } => *until,
            _ => Duration::ZERO,
        };
        let least = all.iter().min_by_key(|s| (rank(s), until(s)));
        least.cloned().unwrap_or(Self::Standby)
    }

    /// May an effect begin at `now`, if its call takes at most `bound`?
    ///
    /// # Errors
    /// The reason, in a sentence.
    pub fn admits(&self, need: Need, now: Duration, bound: Duration) -> Result<(), String> {
        let left = match self {
            _ if need == Need::Nothing => return Ok(()),
            Self::Standby => return Err("another instance leads".to_owned()),
            Self::Barred(barrier) => return Err(barrier.to_string()),
            Self::Lost(why) => return Err(format!("this instance leads no more: {why}")),
            Self::Released => return Err("this instance is ending".to_owned()),
            Self::Leading { until } => until.saturating_sub(now),
        };
        let needed = if need == Need::Whole {
            bound
        } else {
            Duration::ZERO
        };
        if left > needed {
            return Ok(());
        }
        Err(format!(
            "the lease has {:.1} s left, and the call may take {:.1} s",
            left.as_secs_f64(),
            needed.as_secs_f64()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn barrier() -> Barrier {
        Barrier::Held {
            lease: "ns/lease".to_owned(),
            holder: "predecessor".to_owned(),
        }
    }

    #[test]
    fn who_needs_several_leases_leads_as_long_as_the_shortest_and_loses_with_the_first() {
        use Leadership::{Barred, Leading, Lost as Over, Released, Standby};
        let leading = |seconds| Leading {
            until: Duration::from_secs(seconds),
        };
        let lost = Over(Lost::Removed);
        for (all, joined) in [
            (vec![leading(45), leading(40), leading(50)], leading(40)),
            (vec![leading(45), Standby], Standby),
            (vec![leading(45), Barred(barrier())], Barred(barrier())),
            (vec![Standby, Barred(barrier())], Standby),
            (
                vec![leading(45), lost.clone(), Barred(barrier())],
                lost.clone(),
            ),
            (vec![Released, leading(45)], Released),
            (vec![], Standby),
        ] {
            assert_eq!(Leadership::joined(&all), joined, "{all:?}");
        }
    }

    #[test]
    fn a_call_begins_only_where_it_ends_within_the_lease() {
        let s = Duration::from_secs;
        let leading = Leadership::Leading { until: s(45) };
        let ok = |state: &Leadership, kind, now| state.admits(Need::of(kind), now, s(30)).is_ok();
        assert!(ok(&leading, EffectKind::Destroy, s(14)));
        assert!(!ok(&leading, EffectKind::Destroy, s(15)));
        assert!(!ok(&leading, EffectKind::Destroy, s(100)));
        // The move is fenced like all other effects. The upload before it may begin late.
        assert!(!ok(&leading, EffectKind::Publish, s(15)));
        assert!(ok(&leading, EffectKind::Upload, s(44)));
        assert!(!ok(&leading, EffectKind::Upload, s(45)));
        assert!(ok(&leading, EffectKind::Lease, s(100)));
        for over in [
            Leadership::Standby,
            Leadership::Barred(barrier()),
            Leadership::Released,
            Leadership::Lost(Lost::Removed),
        ] {
            assert!(!ok(&over, EffectKind::Event, s(0)), "{over:?}");
            assert!(!ok(&over, EffectKind::Upload, s(0)), "{over:?}");
            assert!(ok(&over, EffectKind::Lease, s(0)), "{over:?}");
        }
    }
}
