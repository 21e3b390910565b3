//! The effect gate in production: every effect is traced and counted, and, with leader election, fenced by the time
//! that the lease has left (reliability.md: one leader).

use std::{sync::Arc, time::Duration};

use agent_forge_actors::{
    ports::{
        clock::Clock,
        effect::{Effect, EffectKind, Gate, Held, Settled},
    },
    runtime::lease::{Leadership, Need},
};
use async_trait::async_trait;
use tokio::sync::watch;

use crate::telemetry::metrics::Metrics;

/// What people are told of in the log at `info`: what makes, switches, changes or ends a VM, its request, its Agent, its ISO.
const fn is_news(kind: EffectKind) -> bool {
    use EffectKind as E;
    matches!(
        kind,
        E::CreateChild
            | E::ReassignChild
            | E::DeleteChild
            | E::RemoveChildFinalizer
            | E::PrepareAgent
            | E::FenceAgent
            | E::DeleteAgent
            | E::CreateVm
            | E::Reconfigure
            | E::PowerOn
            | E::PowerOff
            | E::Destroy
            | E::EjectIso
            | E::Upload
            | E::Publish
            | E::DeleteFile
            | E::Login
            | E::Logout
    )
}

/// Lets every effect through and counts it.
pub struct OpenGate {
    metrics: Arc<Metrics>,
}

impl OpenGate {
    /// A gate that counts into `metrics`.
    #[must_use]
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics }
    }
}

#[async_trait]
impl Gate for OpenGate {
    async fn admit(&self, effect: &Effect) -> Result<(), Held> {
        tracing::trace!(%effect, "admitted");
        Ok(())
    }

    fn settled(&self, effect: &Effect, outcome: Settled) {
        let word = match outcome {
            Settled::Done => "done",
            Settled::Refused => "refused",
            Settled::Unknown => "unknown",
        };
        let (name, object) = (effect.kind.name(), &effect.key);
        if is_news(effect.kind) {
            tracing::info!(%object, outcome = word, "effect {name}");
        } else {
            tracing::debug!(%object, outcome = word, "effect {name}");
        }
        self.metrics.effect(effect.kind.name(), word);
    }
}

/// The fence before another gate: an effect begins only where its call, at its longest, ends within the lease.
///
/// Assumption: whoever is admitted bounds the call by `bound`, counted from before it asked ([`crate::deadline`]).
pub struct FencedGate {
    inner: Arc<dyn Gate>,
    standing: watch::Receiver<Leadership>,
    clock: Arc<dyn Clock>,
    bound: Duration,
}

impl FencedGate {
    /// A fence before `inner`; no admitted call takes longer than `bound`.
    #[must_use]
    pub fn new(
        inner: Arc<dyn Gate>,
        standing: watch::Receiver<Leadership>,
        clock: Arc<dyn Clock>,
        bound: Duration,
    ) -> Self {
        Self {
            inner,
            standing,
            clock,
            bound,
        }
    }

    fn fence(&self, effect: &Effect) -> Result<(), Held> {
        // The clock after the standing: a renewal in between only makes the answer stricter.
        let standing = self.standing.borrow().clone();
        standing
            .admits(Need::of(effect.kind), self.clock.monotonic(), self.bound)
            .map_err(|reason| Held {
                effect: effect.clone(),
                reason,
            })
    }
}

#[async_trait]
impl Gate for FencedGate {
    async fn admit(&self, effect: &Effect) -> Result<(), Held> {
        self.fence(effect)?;
        self.inner.admit(effect).await?;
        // The inner gate may have taken its time.
        self.fence(effect)
    }

    fn settled(&self, effect: &Effect, outcome: Settled) {
        self.inner.settled(effect, outcome);
    }
}
