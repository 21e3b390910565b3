//! The gate of the commands: it admits logins and nothing else.

use agent_forge_actors::ports::effect::{Effect, Gate, Hold, Nature, Settled};
use agent_forge_crds::conditions::Reason;
use async_trait::async_trait;

/// Refuses each effect that changes something. Sessions of vCenter are excepted: nothing can be read without them.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadOnly;

#[async_trait]
impl Gate for ReadOnly {
    async fn admit(&self, effect: &Effect) -> Result<(), Hold> {
        if effect.kind.nature() == Nature::Session {
            return Ok(());
        }
        Err(Hold {
            reason: Reason::EffectHeld,
            holder: "command".to_owned(),
            why: "this command changes nothing".to_owned(),
            until: None,
        })
    }

    fn settled(&self, _: &Effect, _: Settled) {}
}

#[cfg(test)]
mod tests {
    use agent_forge_actors::ports::effect::{EffectKind, Subject};

    use super::*;

    #[tokio::test]
    async fn only_sessions_are_admitted() {
        let mut admitted = Vec::new();
        for kind in EffectKind::ALL {
            let effect = Effect::new(*kind, Subject::Server("vc".to_owned()));
            if ReadOnly.admit(&effect).await.is_ok() {
                admitted.push(*kind);
            }
        }
        use EffectKind as E;
        assert_eq!(admitted, [E::Login, E::Logout, E::SessionView]);
    }
}
