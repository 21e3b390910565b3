//! What ends a transfer early: nobody wants it, or nothing moves.

use std::{future::Future, time::Duration};

use agent_forge_crds::conditions::Reason;
use tokio::sync::watch;

use super::{
    meter::Meter,
    msg::{IsoPlace, Lane},
};
use crate::domain::failure::{ErrorSource, ReconcileError};

/// How long to wait for the record of a name. A pool records within seconds what is about to be published, but not
/// while the API server is away.
const LISTED: Duration = Duration::from_secs(600);
/// Less than what counts as a stall.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the actor reports to one transfer.
pub(super) struct Watch {
    pub(super) id: u64,
    pub(super) lane: watch::Receiver<Lane>,
}

impl Watch {
    pub(super) fn is_over(&self) -> bool {
        !self.lane.borrow().wanted
    }

    /// Runs `work` until it ends or no pool wants it any more.
    pub(super) async fn wanted<T>(
        &self,
        work: impl Future<Output = Result<T, ReconcileError>>,
    ) -> Result<T, ReconcileError> {
        let mut lane = self.lane.clone();
        let over = lane.wait_for(|l| !l.wanted);
        tokio::select! {
            biased;
            _ = over => Err(incomplete("no pool wants it any more".to_owned())),
            result = work => result,
        }
    }

    /// Waits until a pool's record lists `place`. The record comes before the move: otherwise a crash after the move
    /// would leave a file that no record names.
    pub(super) async fn listed(&self, place: &IsoPlace) -> Result<(), ReconcileError> {
        let mut lane = self.lane.clone();
        match tokio::time::timeout(LISTED, lane.wait_for(|l| l.listed)).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(incomplete(format!(
                "no pool's status listed {} within {} s, so it was not published",
                place.path,
                LISTED.as_secs()
            ))),
        }
    }
}

/// Runs work that has a time limit of its own. It never counts as a stall.
pub(super) async fn unhurried<T>(meter: &Meter, work: impl Future<Output = T>) -> T {
    tokio::pin!(work);
    loop {
        meter.moved();
        tokio::select! {
            done = &mut work => return done,
            () = tokio::time::sleep(PATIENCE) => {}
        }
    }
}

/// Runs `work` until it ends or nothing moves any more.
pub(super) async fn bounded<T>(
    meter: &Meter,
    work: impl Future<Output = Result<T, ReconcileError>>,
) -> Result<T, ReconcileError> {
    meter.moved();
    tokio::select! {
        biased;
        result = work => result,
        trouble = meter.stalled() => Err(trouble),
    }
}

pub(super) fn incomplete(what: String) -> ReconcileError {
    ReconcileError::transient(ErrorSource::Iso, Reason::IsoUploadIncomplete, what)
}
