//! The shell of an actor: it gathers wakes and runs passes.
//!
//! Flow: `Wake` (any number) -> one debounced `Tick` -> one pass, spawned -> `Ended` -> next tick by event, deadline,
//! backoff or resync.
//!
//! Guarantees
//! - A handler never waits for anything outside. While a pass waits for vCenter, the mailbox answers.
//! - At most one pass runs at a time. Wakes during a pass lead to exactly one more pass.
//! - Every end of the actor aborts its pass: no work continues for a dead actor. A stop (not a kill) is complete only when
//!   the pass has ended.
//!
//! Assumption: a pass starts from what it reads. So a pass that was aborted anywhere can be repeated. Caveat: a pass that
//! panics ends the actor. The supervisor starts a new one.

use std::{panic::AssertUnwindSafe, time::Duration};

use agent_forge_crds::conditions::Reason;
use futures::{FutureExt, future::BoxFuture};
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use serde::Serialize;
use tokio::{task::JoinHandle, time::Instant};
use tracing::Instrument;

use super::mailbox::Queued;
use crate::{
    domain::failure::Class,
    ports::instruments::{Instruments, NoInstruments},
    runtime::backoff,
};

/// The result of a pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Run again after at most that time (the resync limits it).
    pub again: Option<Duration>,
    /// The pass failed in this way.
    pub failure: Option<Class>,
    /// Why nothing more was done: reason and sentence.
    pub waiting_on: Vec<(Reason, String)>,
}

/// The work of one actor.
pub trait Worker: Send + Sync + 'static {
    /// What it remembers between passes. A cache: losing it costs time, never correctness.
    type Memory: Default + Send + 'static;
    /// Kind of actor, for metrics and descriptions.
    fn kind(&self) -> &'static str;
    /// The object that the actor is for.
    fn key(&self) -> String;
    /// What counts its passes and wakes.
    fn instruments(&self) -> &dyn Instruments {
        &NoInstruments
    }
    /// How long the shell gathers wakes before a pass.
    fn debounce(&self) -> Duration;
    /// One pass.
    fn pass(&self, memory: Self::Memory) -> BoxFuture<'static, (Self::Memory, Verdict)>;
}

/// Messages of a shell.
pub enum ShellMsg {
    /// Look again. It carries no data except its token of the mailbox.
    Wake(&'static str, Option<Queued>),
    /// A gathered wake, a deadline or the resync is due.
    Tick(u64),
    /// The pass of that epoch is over; `None` when it panicked.
    Ended(u64, Option<Verdict>),
    /// Describe yourself.
    Describe(RpcReplyPort<Description>),
    /// Die in a handler (debug endpoint only).
    Panic,
}

/// An actor as the debug endpoint shows it.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Description {
    /// Kind of actor.
    pub kind: String,
    /// Object.
    pub key: String,
    /// A pass is running.
    pub running: bool,
    /// Passes so far.
    pub passes: u64,
    /// Wakes so far.
    pub wakes: u64,
    /// Last wake's reason.
    pub last_wake: String,
    /// Seconds since the last wake; `null` before the first one, and for actors without passes.
    pub last_wake_seconds: Option<u64>,
    /// Failures in a row.
    pub failures: u32,
    /// Why nothing more was done: reason and sentence.
    pub waiting_on: Vec<(Reason, String)>,
}

/// Actor behaviour around a [`Worker`].
pub struct Shell<W>(std::marker::PhantomData<fn() -> W>);

impl<W> Default for Shell<W> {
    fn default() -> Self {
        Self(std::marker::PhantomData)
    }
}

/// State of a shell.
pub struct ShellState<W: Worker> {
    worker: W,
    memory: Slot<W::Memory>,
    pass: Option<AbortOnDrop>,
    begun: Option<Instant>,
    timer: Option<(Instant, AbortOnDrop)>,
    epoch: u64,
    woken: bool,
    /// A wake waits for the next pass.
    asked: bool,
    woken_at: Option<Instant>,
    wakes: Vec<tracing::Span>,
    about: Description,
}

type Slot<M> = std::sync::Arc<std::sync::Mutex<Option<M>>>;

struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl AbortOnDrop {
    /// Aborts the task, and waits until no part of it runs any more.
    async fn ended(mut self) {
        self.0.abort();
        // Cancelled or already over: both are fine.
        let _ = (&mut self.0).await;
    }
}

/// Minimum time between a failed pass and a pass for a wake. The wake may come from the actor's own status write.
const WAKE_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// The most wakes that a pass is linked to.
const MAX_LINKS: usize = 16;

impl<W: Worker> ShellState<W> {
    fn schedule(&mut self, myself: &ActorRef<ShellMsg>, after: Duration) {
        let due = Instant::now() + after;
        if self.timer.as_ref().is_some_and(|(at, _)| *at <= due) {
            return;
        }
        let (epoch, to) = (self.epoch, myself.clone());
        let task = tokio::spawn(async move {
            tokio::time::sleep_until(due).await;
            let _ = to.send_message(ShellMsg::Tick(epoch));
        });
        self.timer = Some((due, AbortOnDrop(task)));
    }

    /// Begins a span from the wake to the pass that answers it.
    fn note_wake(&mut self, reason: &'static str) {
        let wake = tracing::debug_span!(
            parent: None,
            "actor.wake",
            otel.kind = "consumer",
            reason,
            object = %self.about.key,
        );
        if !wake.is_disabled() && self.wakes.len() < MAX_LINKS {
            self.wakes.push(wake);
        }
    }

    fn wake_delay(&self) -> Duration {
        if self.about.failures == 0 {
            self.worker.debounce()
        } else {
            WAKE_AFTER_FAILURE.max(self.worker.debounce())
        }
    }

    fn begin(&mut self, myself: &ActorRef<ShellMsg>) {
        self.timer = None;
        self.woken = false;
        self.asked = false;
        self.epoch += 1;
        self.about.passes += 1;
        self.begun = Some(Instant::now());
        self.about.running = true;
        let memory = self
            .memory
            .lock()
            .ok()
            .and_then(|mut m| m.take())
            .unwrap_or_default();
        let (pass, slot) = (self.worker.pass(memory), self.memory.clone());
        let (epoch, to) = (self.epoch, myself.clone());
        // A root span of its own: a pass outlives the wake that caused it, and answers many wakes.
        let span = tracing::error_span!(
            parent: None,
            "actor.pass",
            otel.name = %format_args!("{}.pass", self.about.kind),
            kind = %self.about.kind,
            object = %self.about.key,
            pass = self.about.passes,
            wake = %self.about.last_wake,
            uid = tracing::field::Empty,
            trace_id = tracing::field::Empty,
            otel.status_code = tracing::field::Empty,
            error.type = tracing::field::Empty,
            waiting_on = tracing::field::Empty,
        );
        // Linked, not nested: the sender of a wake does not wait for the pass.
        for wake in self.wakes.drain(..) {
            span.follows_from(&wake);
        }
        let pass = pass.instrument(span.clone());
        let task = tokio::spawn(async move {
            let verdict = match AssertUnwindSafe(pass).catch_unwind().await {
                Ok((memory, verdict)) => {
                    if let Ok(mut m) = slot.lock() {
                        *m = Some(memory);
                    }
                    if let Some(class) = verdict.failure {
                        span.record("otel.status_code", "ERROR");
                        span.record("error.type", tracing::field::debug(class));
                    }
                    if let Some((reason, _)) = verdict.waiting_on.first() {
                        span.record("waiting_on", reason.as_str());
                    }
                    Some(verdict)
                }
                Err(_) => None,
            };
            let _ = to.send_message(ShellMsg::Ended(epoch, verdict));
        });
        self.pass = Some(AbortOnDrop(task));
    }

    fn end(&mut self, myself: &ActorRef<ShellMsg>, verdict: Verdict) {
        self.pass = None;
        self.about.running = false;
        self.about.waiting_on = verdict.waiting_on;
        if let Some(begun) = self.begun.take() {
            let seconds = begun.elapsed().as_secs_f64();
            let instruments = self.worker.instruments();
            instruments.pass(self.worker.kind(), seconds, verdict.failure.is_none());
        }
        self.about.failures = if verdict.failure.is_some() {
            self.about.failures.saturating_add(1)
        } else {
            0
        };
        let planned = verdict
            .again
            .unwrap_or(backoff::RESYNC)
            .min(backoff::RESYNC);
        let after = match verdict.failure {
            Some(class) => planned.min(backoff::delay(class, self.about.failures, &self.about.key)),
            None => planned,
        };
        let after = if self.woken {
            after.min(self.wake_delay())
        } else {
            after
        };
        self.schedule(myself, after);
    }
}

impl<W: Worker> Actor for Shell<W> {
    type Msg = ShellMsg;
    type State = ShellState<W>;
    type Arguments = W;

    async fn pre_start(
        &self,
        myself: ActorRef<ShellMsg>,
        worker: W,
    ) -> Result<Self::State, ActorProcessingErr> {
        let about = Description {
            kind: worker.kind().to_owned(),
            key: worker.key(),
            ..Description::default()
        };
        let mut state = ShellState {
            worker,
            memory: Slot::default(),
            pass: None,
            begun: None,
            timer: None,
            epoch: 0,
            woken: false,
            asked: false,
            woken_at: None,
            wakes: Vec::new(),
            about,
        };
        state.schedule(&myself, Duration::ZERO);
        Ok(state)
    }

    async fn post_stop(
        &self,
        _: ActorRef<ShellMsg>,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        if let Some(pass) = state.pass.take() {
            pass.ended().await;
        }
        Ok(())
    }

    async fn handle(
        &self,
        myself: ActorRef<ShellMsg>,
        message: ShellMsg,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ShellMsg::Wake(reason, queued) => {
                drop(queued);
                let coalesced = std::mem::replace(&mut state.asked, true);
                let kind = state.worker.kind();
                state.worker.instruments().woken(kind, coalesced);
                state.about.wakes += 1;
                state.note_wake(reason);
                reason.clone_into(&mut state.about.last_wake);
                state.woken_at = Some(Instant::now());
                if state.pass.is_some() {
                    state.woken = true;
                } else {
                    let after = state.wake_delay();
                    state.schedule(&myself, after);
                }
            }
            ShellMsg::Tick(epoch) if epoch == state.epoch && state.pass.is_none() => {
                state.begin(&myself)
            }
            ShellMsg::Tick(_) => {}
            ShellMsg::Ended(epoch, verdict) if epoch == state.epoch => match verdict {
                Some(verdict) => state.end(&myself, verdict),
                None => {
                    return Err(format!(
                        "a pass of {} {} panicked",
                        state.about.kind, state.about.key
                    )
                    .into());
                }
            },
            ShellMsg::Ended(..) => {}
            ShellMsg::Describe(reply) => {
                let mut about = state.about.clone();
                about.last_wake_seconds = state.woken_at.map(|at| at.elapsed().as_secs());
                let _ = reply.send(about);
            }
            ShellMsg::Panic => return Err("killed by the debug endpoint".into()),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
