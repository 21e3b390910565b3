//! The effect gate in production. It traces and counts every effect.
//!
//! With leader election a second gate in front of it asks what holds an effect back (docs/explanation/reliability.md).

use std::{sync::Arc, time::Duration};

use agent_forge_actors::{
    ports::{
        clock::Clock,
        effect::{Effect, EffectKind, Gate, Hold, Nature, Settled},
    },
    runtime::{
        holds::{Facts, held},
        lease::Leadership,
    },
};
use async_trait::async_trait;
use tokio::sync::watch;

use crate::telemetry::metrics::Metrics;

/// Whether an effect is logged at `info`: effects that create, power, change or destroy a VM, and those on its
/// VsphereAgent, Agent and ISO.
const fn is_news(kind: EffectKind) -> bool {
    use EffectKind as E;
    match kind.nature() {
        Nature::Status | Nature::Event | Nature::Lease => false,
        Nature::Session => !matches!(kind, E::SessionView),
        Nature::Cluster => !matches!(
            kind,
            E::PinSelector
                | E::AddFinalizer
                | E::RemovePoolFinalizer
                | E::HoldSecret
                | E::ReleaseSecret
        ),
        Nature::Vcenter => !matches!(kind, E::AttachTags | E::MakeDirectory | E::CreateFolder),
    }
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
    async fn admit(&self, effect: &Effect) -> Result<(), Hold> {
        tracing::trace!(%effect, "admitted");
        Ok(())
    }

    fn settled(&self, effect: &Effect, outcome: Settled) {
        let word = match outcome {
            Settled::Done => "done",
            Settled::Refused => "refused",
            Settled::Unknown => "unknown",
        };
        let (name, object) = (effect.kind.name(), &effect.subject);
        if is_news(effect.kind) {
            tracing::info!(%object, outcome = word, "effect {name}");
        } else {
            tracing::debug!(%object, outcome = word, "effect {name}");
        }
        self.metrics.effect(effect.kind.name(), word);
    }
}

/// The gate that asks what holds an effect back ([`held`]), in front of another gate.
///
/// Assumption: the caller limits the call to `bound`, counted from before it asked this gate ([`crate::deadline`]).
pub struct HoldGate {
    inner: Arc<dyn Gate>,
    standing: watch::Receiver<Leadership>,
    clock: Arc<dyn Clock>,
    bound: Duration,
}

impl HoldGate {
    /// Asks for holds in front of `inner`. No admitted call takes longer than `bound`.
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

    fn ask(&self, effect: &Effect) -> Result<(), Hold> {
        // Read the clock after the leadership: a renewal in between then only makes the answer stricter.
        let leadership = self.standing.borrow().clone();
        let facts = Facts {
            leadership,
            now: self.clock.monotonic(),
            bound: self.bound,
        };
        held(effect, &facts).map_or(Ok(()), Err)
    }
}

#[async_trait]
impl Gate for HoldGate {
    async fn admit(&self, effect: &Effect) -> Result<(), Hold> {
        self.ask(effect)?;
        self.inner.admit(effect).await?;
        // The inner gate may have taken time.
        self.ask(effect)
    }

    fn settled(&self, effect: &Effect, outcome: Settled) {
        self.inner.settled(effect, outcome);
    }
}
