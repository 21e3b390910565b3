//! The effect gate in production. It traces and counts every effect.
//!
//! With leader election a second gate in front of it checks that enough time of the Lease is left
//! (docs/explanation/reliability.md).

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

/// Whether an effect is logged at `info`: effects that create, power, change or destroy a VM, and those on its
/// VsphereAgent, Agent and ISO.
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

/// Admits every effect and counts it.
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

/// The gate that checks the Lease, in front of another gate. It admits an effect only if the call will end before the
/// Lease runs out, even if the call takes its longest time.
///
/// Assumption: the caller limits the call to `bound`, counted from before it asked this gate ([`crate::deadline`]).
pub struct FencedGate {
    inner: Arc<dyn Gate>,
    standing: watch::Receiver<Leadership>,
    clock: Arc<dyn Clock>,
    bound: Duration,
}

impl FencedGate {
    /// A Lease check in front of `inner`. No admitted call takes longer than `bound`.
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
        // Read the clock after the leadership: a renewal in between then only makes the answer stricter.
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
        // The inner gate may have taken time.
        self.fence(effect)
    }

    fn settled(&self, effect: &Effect, outcome: Settled) {
        self.inner.settled(effect, outcome);
    }
}
