//! The ISO cache: one actor for each (vCenter, datacenter, datastore) uploads ISOs and removes old ones.
//!
//! Flow:
//! 1. A pool asks ([`ensure`]).
//! 2. The pure table ([`flight`]) answers at once, and lists the flights to start.
//! 3. A flight runs beside the mailbox and reports.
//! 4. The actor wakes the pools that wait, and they ask again.
//!
//! Guarantees
//! - A handler never awaits anything outside. A request is answered while an upload runs.
//! - One transfer fetches a content, and one transfer runs at a time. A pool whose file is there waits for no upload.
//! - The end of the actor, for whatever reason, aborts its flights.
//! - No message holds the source's URL.
//!
//! Assumptions: pools ask again when woken, every two seconds while they wait, and at each resync, with a fresh URL.
//! The pool's status records the file.
//!
//! Caveat: two caches of one datastore (two vCenters, two operators) do not know of each other. Their transfers cannot
//! harm each other: partial names are unique, final names are digests, and a move does not overwrite. Retention can do
//! harm. Two management clusters with one directory and equal bytes have one file. One cluster deletes it while the
//! other's pools need it, unless a VM of its vCenter has it mounted. So they need different directories.

mod bounds;
pub mod content;
pub mod flight;
mod fly;
pub mod infra_env;
pub mod infra_env_guards;
mod meter;
pub mod msg;
pub mod of_pool;
pub mod partial;
mod ports;
mod retention;
mod transfer;
mod upkeep;

pub(crate) use self::retention::is_ours;
pub use self::{ports::Ports, retention::PruneNews};

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use agent_forge_crds::conditions::Reason;
use futures::FutureExt;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort, rpc::CallResult};
use tokio::{sync::watch, task::JoinSet};
use tracing::{Instrument, field::Empty};

use self::{
    flight::{FlightTable, Start, Task, Turn},
    fly::fly,
    msg::{FlightNews, IsoKey, IsoMsg, IsoState, IsoWant, Lane},
    partial::Origin,
};
use crate::{
    domain::{
        failure::{Class, ErrorSource, ReconcileError},
        names::ObjectKey,
    },
    ports::{
        clock::Clock,
        instruments::Instruments,
        iso_source::IsoSource,
        sessions::{Sessions, Waker},
        tracer,
    },
    runtime::{
        mailbox::{Counted, Queued},
        shell::Description,
    },
};

/// How long an answer of the cache may take. The cache only looks at its table.
const ANSWER: Duration = Duration::from_secs(10);

/// Least time between two lines in the log about a transfer's progress.
const LOG: Duration = Duration::from_secs(10);

/// What an ISO cache needs.
pub struct IsoCacheArgs {
    /// Which cache it is.
    pub key: IsoKey,
    /// Identity of the management cluster, which the names of its partial files carry.
    pub cluster_id: String,
    /// vCenter sessions by Secret.
    pub sessions: Arc<dyn Sessions>,
    /// Where ISOs come from.
    pub source: Arc<dyn IsoSource>,
    /// Wakes the pools that wait.
    pub waker: Arc<dyn Waker>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Counters.
    pub instruments: Arc<dyn Instruments>,
}

/// The actor.
#[derive(Clone, Copy, Debug, Default)]
pub struct IsoCache;

/// The state of the actor. All of it is a cache.
pub struct IsoCacheState {
    /// Aborted when it is dropped.
    flights: JoinSet<()>,
    ports: Ports,
    lane: watch::Sender<Lane>,
    waker: Arc<dyn Waker>,
    table: FlightTable,
    /// When progress was last logged.
    logged: Option<Duration>,
    /// The pool whose transfer began last, and its uid, for the log lines about progress.
    carried_for: Option<(ObjectKey, String)>,
    about: Description,
}

/// Asks a cache for an ISO. Answers at once how far the ISO is. The pool is woken when that changes.
///
/// # Errors
/// `ISOCacheUnavailable` if the actor is gone or does not answer within 10 s. It is being restarted, so ask again.
pub async fn ensure(cache: &Counted<IsoMsg>, want: IsoWant) -> Result<IsoState, ReconcileError> {
    call(cache, |reply, queued| {
        IsoMsg::Ensure(Box::new(want), reply, queued)
    })
    .await
}

/// Asks a cache to remove what a pool has left on its datastore (`left.prunable`). The answer names the files that are
/// gone by now, and the files that stay for a reason that was not reported before. The pool is woken when that changes.
///
/// # Errors
/// As [`ensure`].
pub async fn clear(cache: &Counted<IsoMsg>, left: IsoWant) -> Result<PruneNews, ReconcileError> {
    call(cache, |reply, queued| {
        IsoMsg::Clear(Box::new(left), reply, queued)
    })
    .await
}

async fn call<T: Send + 'static>(
    cache: &Counted<IsoMsg>,
    ask: impl FnOnce(RpcReplyPort<T>, Queued) -> IsoMsg,
) -> Result<T, ReconcileError> {
    let unavailable = |why: &str| {
        let message = format!("the ISO cache {why}; it is asked again");
        ReconcileError::transient(ErrorSource::Iso, Reason::IsoCacheUnavailable, message)
    };
    let queued = cache.send();
    match cache
        .actor
        .call(|reply| ask(reply, queued), Some(ANSWER))
        .await
    {
        Ok(CallResult::Success(answer)) => Ok(answer),
        Ok(CallResult::Timeout) => Err(unavailable("did not answer within 10 s")),
        Ok(CallResult::SenderError) => Err(unavailable("ended before it answered")),
        Err(_) => Err(unavailable("is not running")),
    }
}

/// Informs a cache that this pool is being deleted.
pub fn leave(cache: &Counted<IsoMsg>, pool: &ObjectKey) {
    let left = IsoMsg::Leave(pool.clone(), cache.send());
    // A cache that is gone has nothing of the pool left.
    let _ = cache.actor.send_message(left);
}

impl IsoCacheState {
    fn asked(&mut self, want: &IsoWant) {
        self.about.wakes += 1;
        self.about.last_wake = want.pool.to_string();
    }

    fn ask(&mut self, mut want: IsoWant) -> IsoState {
        self.asked(&want);
        if want.directory.datastore != self.ports.key.datastore {
            let (directory, datastore) = (&want.directory, &self.ports.key.datastore);
            let message = format!("{directory} was asked of the cache of datastore {datastore}");
            return IsoState::Failed(defect(message));
        }
        // A record of another datastore (the pool's spec changed) does not count for this one.
        want.known = want
            .known
            .filter(|file| file.path.datastore == self.ports.key.datastore);
        let (answer, start) = self.table.ask(want, self.ports.clock.monotonic());
        self.settle(BTreeSet::new(), start);
        answer
    }

    fn clear(&mut self, left: IsoWant) -> PruneNews {
        self.asked(&left);
        let (news, start) = self.table.clear(left, self.ports.clock.monotonic());
        self.settle(BTreeSet::new(), start);
        news
    }

    /// Wakes pools and starts flights.
    fn settle(&mut self, wake: BTreeSet<ObjectKey>, start: Vec<Start>) {
        for pool in wake {
            self.waker.wake_pool(&pool, "iso");
        }
        while self.flights.try_join_next().is_some() {}
        let now = self.table.lane();
        self.lane
            .send_if_modified(|lane| std::mem::replace(lane, now) != now);
        for start in start {
            self.about.passes += 1;
            self.launch(start);
        }
    }

    /// Reports progress to the log and the metrics.
    fn report(&mut self, news: &FlightNews) {
        let cache = self.ports.key.to_string();
        let FlightNews::Progress(done, Some(total)) = *news else {
            if self.table.lane().transfer.is_none() {
                self.ports.instruments.iso_transfer(&cache, None);
            }
            return;
        };
        self.ports
            .instruments
            .iso_transfer(&cache, Some((done, total)));
        let now = self.ports.clock.monotonic();
        if self.logged.is_none_or(|at| now.saturating_sub(at) >= LOG) {
            self.logged = Some(now);
            let rate = self.table.speed();
            let left = total.saturating_sub(done);
            let eta_seconds = rate.filter(|r| *r > 0).map(|r| left.div_ceil(r));
            let pool = self.carried_for.as_ref();
            tracing::info!(
                object = pool.map(|(key, _)| tracing::field::display(key)),
                uid = pool.map(|(_, uid)| uid.as_str()),
                cache,
                done,
                total,
                bytes_per_second = rate,
                eta_seconds,
                "ISO transfer"
            );
        }
    }

    fn launch(&mut self, start: Start) {
        let ports = self.ports.clone();
        if matches!(start.task, Task::Transfer) {
            self.carried_for = Some((start.want.pool.clone(), start.want.uid.clone()));
        }
        let span = tracing::error_span!(
            parent: None,
            "iso.flight",
            cache = %ports.key,
            object = %start.want.pool,
            uid = start.want.uid,
            task = start.task.name(),
            otel.status_code = Empty,
            error.type = Empty,
        );
        let flight = async move {
            let id = start.id;
            let news = AssertUnwindSafe(fly(&ports, start))
                .catch_unwind()
                .await
                .unwrap_or_else(|_| {
                    FlightNews::Failed(defect("a flight of the ISO cache panicked".to_owned()))
                });
            if let FlightNews::Failed(trouble) = &news {
                tracer::fault(&tracing::Span::current(), trouble);
                tracing::warn!(reason = trouble.reason.as_str(), error = %trouble, "ISO flight failed");
            }
            (ports.tell)(id, news);
        };
        self.flights.spawn(flight.instrument(span));
    }
}

fn defect(message: String) -> ReconcileError {
    ReconcileError {
        side: ErrorSource::Iso,
        reason: Reason::InternalError,
        message,
        class: Class::Defect,
    }
}

impl Actor for IsoCache {
    type Msg = IsoMsg;
    type State = IsoCacheState;
    type Arguments = IsoCacheArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<IsoMsg>,
        args: IsoCacheArgs,
    ) -> Result<Self::State, ActorProcessingErr> {
        let origin = Origin::new(&args.cluster_id, &args.key, args.clock.wall());
        // An earlier actor that ended during a transfer has left its bytes in this metric.
        args.instruments.iso_transfer(&args.key.to_string(), None);
        let (lane, _) = watch::channel(Lane::default());
        let about = Description {
            kind: "iso-cache".to_owned(),
            key: args.key.to_string(),
            ..Description::default()
        };
        Ok(IsoCacheState {
            ports: Ports {
                key: args.key,
                origin,
                sessions: args.sessions,
                source: args.source,
                clock: args.clock,
                instruments: args.instruments,
                // The actor may be gone: then this flight ends with it.
                later: {
                    let myself = myself.clone();
                    Arc::new(move |work| drop(myself.send_message(IsoMsg::Later(work))))
                },
                tell: Arc::new(move |id, news| drop(myself.send_message(IsoMsg::Flight(id, news)))),
                lane: lane.subscribe(),
            },
            lane,
            waker: args.waker,
            table: FlightTable::default(),
            flights: JoinSet::new(),
            logged: None,
            carried_for: None,
            about,
        })
    }

    async fn handle(
        &self,
        _: ActorRef<IsoMsg>,
        message: IsoMsg,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            IsoMsg::Ensure(want, reply, queued) => {
                drop(queued);
                let _ = reply.send(state.ask(*want));
            }
            IsoMsg::Clear(left, reply, queued) => {
                drop(queued);
                let _ = reply.send(state.clear(*left));
            }
            IsoMsg::Leave(pool, queued) => {
                drop(queued);
                state.table.leave(&pool);
                state.settle(BTreeSet::new(), Vec::new());
            }
            IsoMsg::Flight(id, news) => {
                let now = state.ports.clock.monotonic();
                let Turn { wake, start } = state.table.news(id, news.clone(), now);
                state.report(&news);
                state.settle(wake, start);
            }
            IsoMsg::Later(work) => {
                state.flights.spawn(work);
            }
            IsoMsg::Describe(reply) => {
                let (waiting_on, failures) = state.table.waiting_on();
                let running = state.table.is_flying();
                let _ = reply.send(Description {
                    waiting_on,
                    failures,
                    running,
                    ..state.about.clone()
                });
            }
            IsoMsg::Panic => return Err("killed by the debug endpoint".into()),
        }
        Ok(())
    }
}
