//! Permits: a dangerous call takes one instead of an [`Effect`].
//!
//! Guarantees
//! - Only the room `guard` issues permits, after live reads (`actors/tests/floors.rs` compares that with the sources).
//! - A permit is for one operation on one object as it was read, and for [`VALID`]. After a longer wait, as for a new login, the
//!   adapter refuses it, and the caller proves all of it again.

use std::time::Duration;

use tokio::time::Instant;

use super::effect::{Effect, Hold};

/// How long a permit is valid: one answer of a slow vCenter (30 s, the limit of a call), and a moment. A renewal and an ejection
/// read the devices of the VM before they send anything, and such a vCenter must not starve them.
pub const VALID: Duration = Duration::from_secs(35);

/// Live reads have just shown that this operation may be done to `Of`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permit<Of> {
    effect: Effect,
    of: Of,
    until: Instant,
}

impl<Of> Permit<Of> {
    /// A permit from now on. Only the room `guard` may issue one.
    #[must_use]
    pub fn issue(effect: Effect, of: Of) -> Self {
        Self {
            effect,
            of,
            until: Instant::now() + VALID,
        }
    }

    /// What it permits.
    #[must_use]
    pub const fn effect(&self) -> &Effect {
        &self.effect
    }

    /// To what, as it was read.
    #[must_use]
    pub const fn of(&self) -> &Of {
        &self.of
    }
}

/// What an adapter asks the gate with.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// What is to be done.
    pub effect: &'a Effect,
    until: Option<Instant>,
}

impl Ask<'_> {
    /// The permit is too old: nothing may be sent.
    ///
    /// # Errors
    /// The [`Hold`] that says so.
    pub fn check(&self) -> Result<(), Hold> {
        match self.until {
            Some(until) if Instant::now() > until => Err(Hold::outdated()),
            _ => Ok(()),
        }
    }
}

impl<'a> From<&'a Effect> for Ask<'a> {
    fn from(effect: &'a Effect) -> Self {
        Self {
            effect,
            until: None,
        }
    }
}

impl<'a, Of> From<&'a Permit<Of>> for Ask<'a> {
    fn from(permit: &'a Permit<Of>) -> Self {
        Self {
            effect: &permit.effect,
            until: Some(permit.until),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        domain::names::ObjectKey,
        ports::effect::{EffectKind, Subject},
    };

    #[tokio::test(start_paused = true)]
    async fn a_permit_is_refused_when_what_was_read_for_it_is_too_old() {
        let key = ObjectKey::new("demo", "a");
        let permit = Permit::issue(Effect::new(EffectKind::Destroy, Subject::Object(key)), ());
        tokio::time::advance(VALID).await;
        assert_eq!(Ask::from(&permit).check(), Ok(()));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(Ask::from(&permit).check().is_err());
        assert_eq!(
            Ask::from(permit.effect()).check(),
            Ok(()),
            "an effect that needs none"
        );
    }
}
