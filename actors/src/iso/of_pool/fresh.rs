//! The InfraEnv for the try after a failed download. The URL may have expired, and the watch may be late with the new
//! one.

use std::{sync::Arc, time::Duration};

use agent_forge_crds::{conditions::Reason, external::infra_env::InfraEnv};

use crate::{
    domain::names::ObjectKey, iso::msg::IsoState, ports::cluster::Cluster,
    runtime::status_writer::is_newer,
};

/// The API server is asked at most this often.
const FRESH: Duration = Duration::from_secs(10);

/// What is known in addition to what the watch shows.
#[derive(Debug, Default)]
pub struct LiveInfraEnv {
    /// The download had failed when the cache was last asked.
    failed: bool,
    /// When (monotonic) the API server was last asked.
    asked: Option<Duration>,
    /// Its answer.
    live: Option<Arc<InfraEnv>>,
    /// How often the caches were in doubt at that time.
    history: u64,
}

impl LiveInfraEnv {
    /// Notes the answer of the ISO cache.
    pub fn told(&mut self, state: &IsoState) {
        // The source did not deliver the ISO, as happens with an expired URL.
        self.failed = matches!(state, IsoState::Failed(trouble) if trouble.reason == Reason::IsoDownloadFailed);
    }
}

/// The InfraEnv to fetch from: the one that the watch shows, or the API server's if that is newer. The newer one is
/// used until the watch shows it, so that the pool does not go back to the old URL. After a restore of the API server the
/// watch never shows it, so it is forgotten: `history` is [`View::history`]. If the API server does not answer, the watch is
/// used.
///
/// [`View::history`]: crate::ports::cluster::View::history
pub async fn infra_env(
    cluster: &dyn Cluster,
    now: Duration,
    history: u64,
    shown: Option<&Arc<InfraEnv>>,
    known: &mut LiveInfraEnv,
) -> Option<Arc<InfraEnv>> {
    let failed = std::mem::take(&mut known.failed);
    if std::mem::replace(&mut known.history, history) != history {
        known.live = None;
    }
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
