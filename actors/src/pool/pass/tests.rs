//! Passes of a pool with an ISO cache that answers as the test sets it.

mod events;
mod fresh;
mod held;
mod iso_status;
mod refused;
mod writes;

use std::sync::Mutex;

use agent_forge_crds::conditions::{self, event, find_condition};
use async_trait::async_trait;

use super::*;
use crate::{
    domain::{failure::ErrorSource, names::DatastorePath},
    iso::{
        PruneNews,
        msg::{IsoFile, IsoKey, IsoWant},
    },
    pool::publish::QUIET_WRITES,
    ports::{effect::EffectKind, iso_source::Validators},
    testing::{NAMESPACE, POOL, at},
    vm::testing::Bench,
};

/// An ISO cache that answers as the test sets it.
struct Told {
    state: Mutex<IsoState>,
    /// Its next news about datastores that were left.
    news: Mutex<Vec<PruneNews>>,
    cleared: Mutex<Vec<(String, Vec<String>)>>,
    /// URLs in the requests.
    urls: Mutex<Vec<String>>,
    /// How often a transfer was called off.
    left: Mutex<usize>,
    /// The last requested age of a look.
    look_within: Mutex<Option<Duration>>,
}

impl Told {
    fn new(state: IsoState) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(state),
            news: Mutex::default(),
            cleared: Mutex::default(),
            urls: Mutex::default(),
            left: Mutex::default(),
            look_within: Mutex::default(),
        })
    }
}

#[async_trait]
impl IsoCaches for Told {
    async fn ensure(&self, _: IsoKey, want: IsoWant) -> Result<IsoState, ReconcileError> {
        let elsewhere = |p: &&DatastorePath| p.datastore != want.directory.datastore;
        assert_eq!(
            want.prunable.iter().find(elsewhere),
            None,
            "not its datastore"
        );
        let url = want.source.expose().to_string();
        self.urls.lock().expect("lock").push(url);
        *self.look_within.lock().expect("lock") = want.look_within;
        Ok(self.state.lock().expect("lock").clone())
    }
    async fn clear(&self, key: IsoKey, left: IsoWant) -> Result<PruneNews, ReconcileError> {
        let paths = left.prunable.iter().map(ToString::to_string).collect();
        let mut cleared = self.cleared.lock().expect("lock");
        cleared.push((key.to_string(), paths));
        Ok(self.news.lock().expect("lock").pop().unwrap_or_default())
    }
    fn leave(&self, _: &ObjectKey) {
        *self.left.lock().expect("lock") += 1;
    }
}

/// The state of a file that is there.
fn ready(file: IsoFile, reused: bool) -> IsoState {
    IsoState::Ready {
        file,
        reused,
        pruned: Vec::new(),
        prune_failures: Vec::new(),
    }
}
