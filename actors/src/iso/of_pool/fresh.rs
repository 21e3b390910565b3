//! The InfraEnv for the try after a download that failed: the URL may have expired, and the watch may lag behind the one
//! that came since.

use std::{sync::Arc, time::Duration};

use agent_forge_crds::external::infra_env::InfraEnv;

use crate::{
    domain::names::ObjectKey, iso::msg::IsoState, ports::cluster::Cluster,
    runtime::status_writer::is_newer,
};

/// The API server is asked that often at most.
const FRESH: Duration = Duration::from_secs(10);
/// The source did not give it, which is what comes of a URL that has expired.
const REFUSED: &str = "ISODownloadFailed";

/// What is known beyond what the watch shows.
#[derive(Debug, Default)]
pub struct Known {
    /// The download failed when the cache was last asked.
    failed: bool,
    /// When (monotonic) the API server was last asked.
    asked: Option<Duration>,
    /// What it said.
    live: Option<Arc<InfraEnv>>,
}

impl Known {
    /// Takes in what the cache says.
    pub fn told(&mut self, state: &IsoState) {
        self.failed = matches!(state, IsoState::Failed(trouble) if trouble.reason == REFUSED);
    }
}

/// The InfraEnv to fetch from: the one that the watch shows, or the API server's where that is newer. It counts until the
/// watch shows as much, so that what was asked with it is not taken back. Where the API server does not answer, the watch
/// is believed.
pub async fn infra_env(
    cluster: &dyn Cluster,
    now: Duration,
    shown: Option<&Arc<InfraEnv>>,
    known: &mut Known,
) -> Option<Arc<InfraEnv>> {
    let failed = std::mem::take(&mut known.failed);
    let shown = shown?;
    let due = |at: Duration| now.saturating_sub(at) >= FRESH;
    if failed && known.asked.is_none_or(due) {
        known.asked = Some(now);
        let key = ObjectKey::of(shown.as_ref());
        match cluster.live_infra_env(&key).await {
            Ok(live) => known.live = live.map(Arc::new),
            Err(e) => tracing::debug!(object = %key, error = %e, "InfraEnv not read"),
        }
    }
    let newer = |live: &&Arc<InfraEnv>| is_newer(live.as_ref(), shown.as_ref());
    Some(known.live.as_ref().filter(newer).unwrap_or(shown).clone())
}
