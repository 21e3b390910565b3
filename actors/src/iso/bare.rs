//! The cache without its mailbox: its table as a value, its flights as plain futures, for whoever puts the rest of the world
//! between any two of their steps (`tests/model`). What is decided and done is what the actor decides and does.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::sync::watch;

use super::{
    Ports,
    flight::{FlightTable, Start, Task},
    fly,
    msg::{FlightNews, IsoKey, IsoMsg, IsoState, IsoWant, PendingSweep, Wanted},
    partial::Origin,
    upkeep,
};
use crate::ports::{
    clock::Clock, instruments::NoInstruments, iso_source::IsoSource, sessions::Sessions,
};

/// What a flight needs.
#[derive(Clone)]
pub struct Outside {
    /// Which cache it is.
    pub key: IsoKey,
    /// Identity of the management cluster.
    pub cluster_id: String,
    /// When this life of the cache began: its partial files are told from those of others by that.
    pub born: Timestamp,
    /// vCenter sessions by Secret.
    pub sessions: Arc<dyn Sessions>,
    /// Where ISOs come from.
    pub source: Arc<dyn IsoSource>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// The flight that may write to the datastore just now ([`Table::writer`]).
    pub writer: watch::Receiver<Option<u64>>,
    /// Hears what a flight tells its cache.
    pub tell: Arc<dyn Fn(IsoMsg) + Send + Sync>,
}

impl Outside {
    fn origin(&self) -> Origin {
        Origin::new(&self.cluster_id, &self.key, self.born)
    }

    fn ports(&self) -> Ports {
        Ports {
            key: self.key.clone(),
            origin: self.origin(),
            sessions: self.sessions.clone(),
            source: self.source.clone(),
            clock: self.clock.clone(),
            instruments: Arc::new(NoInstruments),
            tell: self.tell.clone(),
            writer: self.writer.clone(),
        }
    }
}

/// Name of the partial file of flight `flight` of that cache, in the life of it that began at `born`.
#[must_use]
pub fn partial(
    cluster_id: &str,
    key: &IsoKey,
    born: Timestamp,
    source_key: &str,
    flight: u64,
) -> String {
    Origin::new(cluster_id, key, born).name(source_key, flight)
}

/// A flight that is to begin.
#[derive(Clone, Debug)]
pub struct Flight {
    /// Its number, by which its news is told.
    pub id: u64,
    /// What the pool that it is for wants.
    pub want: IsoWant,
    task: Task,
}

impl Flight {
    /// Name of what it does, as in traces.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.task.name()
    }

    /// Flies. `wanted` is where a transfer hears that nobody wants it any more. How it ended is the answer, not told.
    pub async fn fly(self, outside: &Outside, wanted: Wanted) -> FlightNews {
        let Self { id, want, task } = self;
        let start = Start {
            id,
            want,
            task,
            wanted,
        };
        fly(&outside.ports(), start).await
    }
}

/// Looks once more where a transfer failed; where that fails too, it is told ([`IsoMsg::PendingSweep`]).
pub async fn look_after(outside: &Outside, doubtful: Box<PendingSweep>) {
    upkeep::look_after(&outside.ports(), doubtful).await;
}

/// What a flight under way hears from its table.
#[derive(Debug, Default)]
pub struct Heard {
    wanted: Wanted,
    leave: Option<watch::Receiver<bool>>,
}

impl Heard {
    /// The same, with where a flight waits that has just said that it would publish.
    #[must_use]
    pub fn waiting(mut self, wait: watch::Receiver<bool>) -> Self {
        self.leave = Some(wait);
        self
    }

    /// Nobody wants what it fetches any more.
    #[must_use]
    pub fn is_recalled(&self) -> bool {
        self.wanted.is_over()
    }

    /// Whether it may publish what it waits with, where that is decided: `false`, there is nothing to wait for any more.
    #[must_use]
    pub fn may_publish(&self) -> Option<bool> {
        let wait = self.leave.as_ref()?;
        let given = *wait.borrow();
        (given || wait.has_changed().is_err()).then_some(given)
    }
}

/// The table of flights.
#[derive(Clone, Debug, Default)]
pub struct Table(FlightTable);

impl Table {
    /// A pool asks: how far its ISO is, and the flights that begin. `now` is monotonic.
    pub fn ask(&mut self, want: IsoWant, now: Duration) -> (IsoState, Vec<Flight>) {
        let (state, start) = self.0.ask(want, now);
        (state, flights(start))
    }

    /// A flight reports: the flights that begin. `now` is monotonic.
    pub fn news(&mut self, id: u64, news: FlightNews, now: Duration) -> Vec<Flight> {
        flights(self.0.news(id, news, now).start)
    }

    /// The flight that may write to the datastore.
    #[must_use]
    pub fn writer(&self) -> Option<u64> {
        self.0.transfer()
    }

    /// Number of the newest flight.
    #[must_use]
    pub fn newest(&self) -> u64 {
        self.0.last_id
    }

    /// The same table with other moments and other flight numbers in it, and what the flight under way hears from it and from
    /// no other copy. When a pool asked last stays as it is.
    #[must_use]
    pub fn retold(
        &self,
        moment: impl Fn(Duration) -> Duration,
        id: impl Fn(u64) -> u64,
    ) -> (Self, Heard) {
        let (table, wanted, leave) = self.0.retold(&moment, &id);
        (Self(table), Heard { wanted, leave })
    }
}

fn flights(start: Vec<Start>) -> Vec<Flight> {
    let flight = |s: Start| Flight {
        id: s.id,
        want: s.want,
        task: s.task,
    };
    start.into_iter().map(flight).collect()
}
