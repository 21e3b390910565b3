//! The fence: whether a mutating call may begin, given the time that the lease has left.

use std::time::Duration;

use super::Lost;
use crate::effect::EffectKind;

/// How this process stands; what the gate asks before each effect. Times are monotonic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leadership {
    /// Somebody else leads, or nobody yet.
    Standby,
    /// We lead until then, unless renewed.
    Leading {
        /// Monotonic.
        until: Duration,
    },
    /// We led and do not any more.
    Lost(Lost),
    /// We let go at the end of the process.
    Released,
}

/// How much of the lease an effect needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// None: it is the lease's own.
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
    /// May an effect begin at `now`, if its call takes at most `bound`?
    ///
    /// # Errors
    /// Why not, in a sentence.
    pub fn admits(&self, need: Need, now: Duration, bound: Duration) -> Result<(), String> {
        let left = match self {
            _ if need == Need::Nothing => return Ok(()),
            Self::Standby => return Err("another instance leads".to_owned()),
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

    #[test]
    fn a_call_begins_only_where_it_ends_within_the_lease() {
        let s = Duration::from_secs;
        let leading = Leadership::Leading { until: s(45) };
        let ok = |state: &Leadership, kind, now| state.admits(Need::of(kind), now, s(30)).is_ok();
        assert!(ok(&leading, EffectKind::Destroy, s(14)));
        assert!(!ok(&leading, EffectKind::Destroy, s(15)));
        assert!(!ok(&leading, EffectKind::Destroy, s(100)));
        // The move is fenced as all others; the upload before it may begin late.
        assert!(!ok(&leading, EffectKind::Publish, s(15)));
        assert!(ok(&leading, EffectKind::Upload, s(44)));
        assert!(!ok(&leading, EffectKind::Upload, s(45)));
        assert!(ok(&leading, EffectKind::Lease, s(100)));
        for over in [
            Leadership::Standby,
            Leadership::Released,
            Leadership::Lost(Lost::Removed),
        ] {
            assert!(!ok(&over, EffectKind::Event, s(0)), "{over:?}");
            assert!(!ok(&over, EffectKind::Upload, s(0)), "{over:?}");
            assert!(ok(&over, EffectKind::Lease, s(0)), "{over:?}");
        }
    }
}
