//! What the flights of a cache work with.

use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::sync::watch;

use super::{
    msg::{FlightNews, IsoKey, Lane},
    partial::Origin,
};
use crate::ports::{
    clock::Clock, instruments::Instruments, iso_source::IsoSource, sessions::Sessions,
};

/// What a flight needs.
#[derive(Clone)]
pub struct Ports {
    /// Which cache it is.
    pub key: IsoKey,
    /// Which partial files belong to this cache.
    pub origin: Origin,
    /// vCenter sessions by Secret.
    pub sessions: Arc<dyn Sessions>,
    /// Where ISOs come from.
    pub source: Arc<dyn IsoSource>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Counters.
    pub instruments: Arc<dyn Instruments>,
    /// Reports to the actor.
    pub tell: Arc<dyn Fn(u64, FlightNews) + Send + Sync>,
    /// Gives the actor work that outlives the flight.
    pub later: Arc<dyn Fn(BoxFuture<'static, ()>) + Send + Sync>,
    /// The state of the transfer under way. The actor sets it before that flight starts.
    pub lane: watch::Receiver<Lane>,
}
