//! Holds: whether an effect may run now, and if not, who holds it back. The effect gate asks once before each effect.

use std::time::Duration;

use super::lease::{Leadership, Need};
use crate::ports::effect::{Effect, Hold};

/// What the gate knows when an effect asks. Times are monotonic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Whether this process leads.
    pub leadership: Leadership,
    /// Now, read after `leadership`.
    pub now: Duration,
    /// The longest time that a call takes.
    pub bound: Duration,
}

/// The first hold on that effect, if there is one.
#[must_use]
pub fn held(effect: &Effect, facts: &Facts) -> Option<Hold> {
    let need = Need::of(effect.kind);
    let admitted = facts.leadership.admits(need, facts.now, facts.bound);
    admitted.err().map(Hold::Lease)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::effect::{EffectKind, Subject};

    #[test]
    fn the_lease_of_another_holds_everything_back_but_the_lease() {
        let facts = Facts {
            leadership: Leadership::Standby,
            now: Duration::ZERO,
            bound: Duration::from_secs(30),
        };
        for kind in EffectKind::ALL {
            let effect = Effect::new(*kind, Subject::Server("vc".to_owned()));
            let hold = Hold::Lease("another instance leads".to_owned());
            let expected = (*kind != EffectKind::Lease).then_some(hold);
            assert_eq!(held(&effect, &facts), expected, "{effect}");
        }
    }
}
