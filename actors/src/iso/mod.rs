//! The ISO cache: one actor per (vCenter, datastore) serialises uploads.
//!
//! Flow: a pool asks ([`ensure`]) -> the pure table (`flight`) answers at once and says what to start -> a flight runs
//! beside the mailbox and reports -> the pools that wait are woken and ask again.
//!
//! Guarantees
//! - A handler never awaits anything outside; an ask is answered while an upload runs.
//! - One transfer per content and at most one transfer at a time; a pool whose file is there waits for nobody's upload.
//! - The actor's end, however it comes, aborts its flights.
//! - No message holds the source's URL.
//!
//! Assumptions: pools ask again when woken and at each resync, with a fresh URL; the pool's status records the file.
//! Caveat: two caches of one datastore (two vCenters, two operators) do not know of each other. Their transfers cannot
//! harm each other: partial names are unique, final names are digests, and a move does not overwrite. Retention can: two
//! management clusters with one directory and equal bytes have one file, which the one deletes while the other's pools
//! rely on it, unless a VM of its vCenter has it mounted. They need different directories.

pub mod bare;
mod flight;
pub mod infra_env;
pub mod infra_env_guards;
mod meter;
pub mod msg;
pub mod of_pool;
mod partial;
mod retention;
mod transfer;
mod upkeep;

pub use self::retention::PruneNews;
pub(crate) use self::retention::is_ours;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};

use agent_forge_crds::conditions::reason;
use futures::FutureExt;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort, rpc::CallResult};
use tokio::{
    sync::watch,
    task::{AbortHandle, JoinSet},
};
use tracing::{Instrument, field::Empty};

use self::{
    flight::{FlightTable, Start, Task},
    msg::{FlightNews, IsoKey, IsoMsg, IsoState, IsoWant, PendingSweep},
    partial::Origin,
    upkeep::Found,
};
use crate::{
    domain::{
        failure::{Class, ErrorSource, ReconcileError},
        names::{DatastorePath, ObjectKey},
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

/// How long an answer of the cache may take. It does nothing but look at its table.
const ANSWER: Duration = Duration::from_secs(10);

/// Least time between two lines in the log about a transfer's progress.
const LOG: Duration = Duration::from_secs(10);

/// What was sent by a transfer that failed has arrived after that long, if it does: a client waits for half of it.
const LATE: Duration = Duration::from_secs(600);
/// Looks for it, one each [`LATE`], before it is left.
const LOOKS: u32 = 6;

/// What an ISO cache needs.
pub struct IsoCacheArgs {
    /// Which cache it is.
    pub key: IsoKey,
    /// Identity of the management cluster, by which partial files are told from those of others.
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

/// What a flight needs.
#[derive(Clone)]
struct Ports {
    key: IsoKey,
    origin: Origin,
    sessions: Arc<dyn Sessions>,
    source: Arc<dyn IsoSource>,
    clock: Arc<dyn Clock>,
    instruments: Arc<dyn Instruments>,
    /// Tells the actor.
    tell: Arc<dyn Fn(IsoMsg) + Send + Sync>,
    /// The flight that may write to the datastore just now, as the actor told; it does before that flight starts.
    writer: watch::Receiver<Option<u64>>,
}

/// The actor.
#[derive(Clone, Copy, Debug, Default)]
pub struct IsoCache;

/// Its state: a cache, all of it.
pub struct IsoCacheState {
    /// Dropped with the state, and before the table, whose end would recall what flies: that aborts it.
    flights: JoinSet<()>,
    ports: Ports,
    /// Tells flights which of them may write.
    writer: watch::Sender<Option<u64>>,
    waker: Arc<dyn Waker>,
    table: FlightTable,
    /// Directories in which this life has looked for what dead ones left.
    swept: BTreeSet<DatastorePath>,
    /// Where a transfer failed, and when (monotonic) it is looked for what arrived late.
    doubtful: BTreeMap<DatastorePath, (Duration, Box<PendingSweep>)>,
    alarm: Option<(Duration, AbortHandle)>,
    /// When progress was last logged.
    logged: Option<Duration>,
    /// The pool whose transfer began last, and its uid: whom the lines about progress name.
    carried_for: Option<(ObjectKey, String)>,
    about: Description,
}

/// Asks a cache for an ISO: how far it is, at once. The pool is woken when that changes.
///
/// # Errors
/// `ISOCacheUnavailable` when the actor is gone or does not answer within 10 s; it is being restarted, so ask again.
pub async fn ensure(cache: &Counted<IsoMsg>, want: IsoWant) -> Result<IsoState, ReconcileError> {
    call(cache, |reply, queued| {
        IsoMsg::Ensure(Box::new(want), reply, queued)
    })
    .await
}

/// Asks a cache to remove what a pool has left on its datastore (`left.prunable`): what is gone by now, and what stays for
/// which reason that was not told before. The pool is woken when that changes.
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
        ReconcileError::transient(ErrorSource::Iso, "ISOCacheUnavailable", message)
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

/// Tells a cache that this pool is being deleted.
pub fn leave(cache: &Counted<IsoMsg>, pool: &ObjectKey) {
    let left = IsoMsg::PublishPermit(pool.clone(), cache.send());
    // One that is gone has nothing of the pool's left.
    let _ = cache.actor.send_message(left);
}

impl IsoCacheState {
    fn clear(&mut self, myself: &ActorRef<IsoMsg>, left: IsoWant) -> PruneNews {
        self.about.wakes += 1;
        self.about.last_wake = left.pool.to_string();
        let (news, start) = self.table.clear(left, self.ports.clock.monotonic());
        self.settle(myself, BTreeSet::new(), start);
        news
    }

    fn ask(&mut self, myself: &ActorRef<IsoMsg>, mut want: IsoWant) -> IsoState {
        self.about.wakes += 1;
        self.about.last_wake = want.pool.to_string();
        if want.directory.datastore != self.ports.key.datastore {
            let (directory, datastore) = (&want.directory, &self.ports.key.datastore);
            return IsoState::Failed(ReconcileError {
                side: ErrorSource::Iso,
                reason: reason::INTERNAL_ERROR.to_owned(),
                message: format!("{directory} was asked of the cache of datastore {datastore}"),
                class: Class::Defect,
            });
        }
        // A record of another datastore (the pool's spec changed) says nothing about this one.
        want.known = want
            .known
            .filter(|file| file.path.datastore == self.ports.key.datastore);
        let (answer, start) = self.table.ask(want, self.ports.clock.monotonic());
        self.settle(myself, BTreeSet::new(), start);
        answer
    }

    /// Wakes, starts, and sets the alarm for the next end of a backoff.
    fn settle(&mut self, myself: &ActorRef<IsoMsg>, wake: BTreeSet<ObjectKey>, start: Vec<Start>) {
        for pool in wake {
            self.waker.wake_pool(&pool, "iso");
        }
        while self.flights.try_join_next().is_some() {}
        self.writer.send_replace(self.table.transfer());
        for start in start {
            self.about.passes += 1;
            self.launch(start);
        }
        let late = self.doubtful.values().map(|(due, _)| *due).min();
        let due = [self.table.next_due(), late].into_iter().flatten().min();
        if self.alarm.as_ref().map(|(at, _)| *at) != due {
            if let Some((_, alarm)) = self.alarm.take() {
                alarm.abort();
            }
            if let Some(at) = due {
                let (to, after) = (
                    myself.clone(),
                    at.saturating_sub(self.ports.clock.monotonic()),
                );
                let alarm = self.flights.spawn(async move {
                    tokio::time::sleep(after).await;
                    let _ = to.send_message(IsoMsg::Due);
                });
                self.alarm = Some((at, alarm));
            }
        }
    }

    /// Looks where transfers failed some time ago.
    fn look_after(&mut self) {
        let now = self.ports.clock.monotonic();
        let due: Vec<_> = self
            .doubtful
            .extract_if(.., |_, (due, _)| *due <= now)
            .collect();
        for (_, (_, doubtful)) in due {
            let ports = self.ports.clone();
            let span = tracing::error_span!(
                parent: None,
                "iso.flight",
                cache = %ports.key,
                object = %doubtful.pool,
                uid = doubtful.uid,
                task = "sweep",
            );
            let look = async move { upkeep::look_after(&ports, doubtful).await };
            self.flights.spawn(look.instrument(span));
        }
    }

    /// Progress for the log and for whoever measures.
    fn report(&mut self, news: &FlightNews) {
        let cache = self.ports.key.to_string();
        let FlightNews::Progress(done, Some(total)) = *news else {
            if self.table.transfer().is_none() {
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

    fn launch(&mut self, mut start: Start) {
        let (ports, id) = (self.ports.clone(), start.id);
        // Where nobody has looked yet.
        let directories = &mut start.want.directories;
        directories.retain(|d| d.datastore == ports.key.datastore && !self.swept.contains(d));
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
            let news = AssertUnwindSafe(fly(&ports, start))
                .catch_unwind()
                .await
                .unwrap_or_else(|_| {
                    FlightNews::Failed(ReconcileError {
                        side: ErrorSource::Iso,
                        reason: reason::INTERNAL_ERROR.to_owned(),
                        message: "a flight of the ISO cache panicked".to_owned(),
                        class: Class::Defect,
                    })
                });
            if let FlightNews::Failed(trouble) = &news {
                tracer::fault(&tracing::Span::current(), trouble);
                tracing::warn!(reason = trouble.reason, error = %trouble, "ISO flight failed");
            }
            (ports.tell)(IsoMsg::Flight(id, news));
        };
        self.flights.spawn(flight.instrument(span));
    }
}

async fn fly(ports: &Ports, start: Start) -> FlightNews {
    let Start {
        id,
        want,
        task,
        wanted,
    } = start;
    let news = match task {
        Task::Check(file, compare) => {
            let compare = compare.then_some(&file.validators);
            upkeep::check(ports, &want, &file, compare)
                .await
                .map(|found| match found {
                    Found::Whole => FlightNews::Arrived(file, true),
                    Found::NotThere => FlightNews::Missing,
                    Found::Outdated => FlightNews::Outdated,
                })
        }
        Task::Transfer => {
            tracing::info!(directory = %want.directory, server = want.source.server(), "ISO transfer begins");
            let (told, announced) = (ports.tell.clone(), ports.tell.clone());
            let tell = move |done, total| {
                let news = FlightNews::Progress(done, Some(total));
                told(IsoMsg::Flight(id, news));
            };
            let announce = move |place, leave| {
                let news = FlightNews::Publishing(place, leave);
                announced(IsoMsg::Flight(id, news));
            };
            transfer::transfer(ports, id, &want, &wanted, Box::new(tell), Box::new(announce))
                .await
                .map(|brought| match brought {
                    Some((file, reused)) => {
                        tracing::info!(file = %file.path, size = file.size, reused, "ISO is on the datastore");
                        FlightNews::Arrived(file, reused)
                    }
                    None => {
                        tracing::info!("nobody wants the ISO any more: its transfer ended");
                        FlightNews::Recalled
                    }
                })
        }
        Task::Prune(paths) => upkeep::prune(ports, &want, &paths)
            .await
            .map(|(gone, kept)| FlightNews::Pruned(gone, kept)),
        Task::Clear(paths) => upkeep::clear(ports, &want, &paths)
            .await
            .map(|(gone, kept)| FlightNews::Pruned(gone, kept)),
    };
    news.unwrap_or_else(FlightNews::Failed)
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
        let IsoCacheArgs {
            key,
            cluster_id,
            sessions,
            source,
            waker,
            clock,
            instruments,
        } = args;
        let origin = Origin::new(&cluster_id, &key, clock.wall());
        // A life that ended amid a transfer has left its bytes there.
        instruments.iso_transfer(&key.to_string(), None);
        let (writer, _) = watch::channel(None);
        let about = Description {
            kind: "iso-cache".to_owned(),
            key: key.to_string(),
            ..Description::default()
        };
        Ok(IsoCacheState {
            ports: Ports {
                key,
                origin,
                sessions,
                source,
                clock,
                instruments,
                // Whom it tells may be gone: what flies ends with it.
                tell: Arc::new(move |message| drop(myself.send_message(message))),
                writer: writer.subscribe(),
            },
            writer,
            waker,
            table: FlightTable::default(),
            swept: BTreeSet::new(),
            doubtful: BTreeMap::new(),
            flights: JoinSet::new(),
            alarm: None,
            logged: None,
            carried_for: None,
            about,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<IsoMsg>,
        message: IsoMsg,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            IsoMsg::Ensure(want, reply, queued) => {
                drop(queued);
                let answer = state.ask(&myself, *want);
                let _ = reply.send(answer);
            }
            IsoMsg::Clear(left, reply, queued) => {
                drop(queued);
                let news = state.clear(&myself, *left);
                let _ = reply.send(news);
            }
            IsoMsg::PublishPermit(pool, queued) => {
                drop(queued);
                let now = state.ports.clock.monotonic();
                state.table.leave(&pool, now);
            }
            IsoMsg::Flight(id, news) => {
                let turn = state
                    .table
                    .news(id, news.clone(), state.ports.clock.monotonic());
                state.report(&news);
                state.settle(&myself, turn.wake, turn.start);
            }
            IsoMsg::Swept(directory) => {
                state.swept.insert(directory);
            }
            IsoMsg::PendingSweep(doubtful) => {
                let due = state.ports.clock.monotonic() + LATE;
                let directory = doubtful.directory.clone();
                state.doubtful.insert(directory, (due, doubtful));
                state.settle(&myself, BTreeSet::new(), Vec::new());
            }
            IsoMsg::Due => {
                state.alarm = None;
                state.look_after();
                let wake = state.table.due(state.ports.clock.monotonic());
                state.settle(&myself, wake, Vec::new());
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
