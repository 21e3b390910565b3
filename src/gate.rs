//! The effect gate in production. It traces and counts every effect.
//!
//! A second gate in front of it asks what holds an effect back (docs/explanation/reliability.md).

use std::{sync::Arc, time::Duration};

use agent_forge_actors::{
    ports::{
        clock::Clock,
        cluster::View,
        effect::{Effect, EffectKind, Gate, Hold, Nature, Settled},
    },
    runtime::{
        holds::{self, Facts, LeaseFacts, held},
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
                | E::HoldInstaller
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

/// What the gate knows of the election.
pub struct Election {
    /// Whether this process leads.
    pub standing: watch::Receiver<Leadership>,
    /// The longest time that an admitted call takes.
    ///
    /// Assumption: the caller limits the call to it, counted from before it asked the gate ([`crate::deadline`]).
    pub bound: Duration,
}

/// The gate that asks what holds an effect back ([`held`]), in front of another gate.
pub struct HoldGate {
    inner: Arc<dyn Gate>,
    /// `None` without leader election.
    election: Option<Election>,
    view: Arc<dyn View>,
    clock: Arc<dyn Clock>,
}

impl HoldGate {
    /// Asks for holds in front of `inner`. `view` shows what people have paused or forbidden.
    #[must_use]
    pub fn new(
        inner: Arc<dyn Gate>,
        election: Option<Election>,
        view: Arc<dyn View>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            inner,
            election,
            view,
            clock,
        }
    }

    fn ask(&self, effect: &Effect) -> Result<(), Hold> {
        let facts = Facts {
            lease: self.election.as_ref().map(|election| LeaseFacts {
                // Read the clock after the leadership: a renewal in between then only makes the answer stricter.
                leadership: election.standing.borrow().clone(),
                now: self.clock.monotonic(),
                bound: election.bound,
            }),
            holds: holds::of(self.view.as_ref(), &effect.subject),
            now: self.clock.wall(),
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
