//! Results of recent look-ups. Fifty VMs that need the same place ask vCenter once.
//!
//! Guarantees: there is one look-up per key at a time; callers that come during a look-up share it. Only what was found
//! is kept. The cache is cleared as soon as vCenter reports that some object no longer exists.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use agent_forge_actors::{model::names::MoRef, ports::vcenter::VcResult};
use tokio::time::Instant;

use super::{
    networks::Network,
    site::{Site, SiteKey},
    storage::Datastore,
    storage_drs::Recommended,
};

/// For names and structure. People change them, and seldom.
pub(super) const STRUCTURE: Duration = Duration::from_secs(300);
/// For free space, which changes all the time.
pub(super) const SPACE: Duration = Duration::from_secs(10);

type Entry<V> = Arc<tokio::sync::Mutex<Option<(Instant, V)>>>;

/// Values by key, each valid for a limited time.
pub(super) struct TtlCache<K, V> {
    entries: Mutex<HashMap<K, Entry<V>>>,
}

impl<K, V> Default for TtlCache<K, V> {
    fn default() -> Self {
        Self {
            entries: Mutex::default(),
        }
    }
}

impl<K: Eq + Hash, V: Clone> TtlCache<K, V> {
    /// Returns the value if it is younger than `ttl`, else the result of `look_up`. `look_up` must not ask for the same
    /// key: it would wait for itself.
    pub(super) async fn get_or<F>(&self, key: K, ttl: Duration, look_up: F) -> VcResult<V>
    where
        F: Future<Output = VcResult<V>>,
    {
        let entry = {
            let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(entries.entry(key).or_default())
        };
        let mut held = entry.lock().await;
        if let Some((at, value)) = &*held
            && at.elapsed() < ttl
        {
            return Ok(value.clone());
        }
        let value = look_up.await?;
        *held = Some((Instant::now(), value.clone()));
        Ok(value)
    }

    fn clear(&self) {
        self.entries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}

/// The caches of one client.
#[derive(Default)]
pub(super) struct Cache {
    /// From inventory path to object.
    pub(super) paths: TtlCache<String, MoRef>,
    /// From datacenter to its inventory path, without leading slash.
    pub(super) datacenters: TtlCache<MoRef, String>,
    /// From datacenter and name to network.
    pub(super) networks: TtlCache<(MoRef, String), Network>,
    /// From datacenter and name to datastore or datastore cluster.
    pub(super) stores: TtlCache<(MoRef, String), MoRef>,
    /// From datacenter and path to VM folder.
    pub(super) folders: TtlCache<(MoRef, String), MoRef>,
    /// From datastore to its browser.
    pub(super) browsers: TtlCache<MoRef, MoRef>,
    /// From datacenter and pool name to the hosts where VMs can run.
    pub(super) sites: TtlCache<SiteKey, Arc<Site>>,
    /// From datastore cluster, folder, pool and hardware to the proposals of Storage DRS.
    pub(super) recommendations: TtlCache<String, Vec<Recommended>>,
    /// From datastore or datastore cluster to its datastores with their free space.
    pub(super) space: TtlCache<MoRef, Arc<Vec<Datastore>>>,
}

impl Cache {
    /// Clears all caches.
    pub(super) fn clear(&self) {
        self.paths.clear();
        self.datacenters.clear();
        self.networks.clear();
        self.stores.clear();
        self.folders.clear();
        self.browsers.clear();
        self.sites.clear();
        self.recommendations.clear();
        self.space.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_look_up_serves_all_until_it_is_old() {
        let fresh = TtlCache::<&str, u32>::default();
        let asked = AtomicU32::new(0);
        let look_up = || async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(asked.fetch_add(1, Ordering::Relaxed) + 1)
        };
        let ttl = Duration::from_secs(60);
        let all =
            futures::future::join_all((0..20).map(|_| fresh.get_or("a", ttl, look_up()))).await;
        assert!(all.iter().all(|v| *v.as_ref().expect("found") == 1));
        tokio::time::advance(Duration::from_secs(61)).await;
        assert_eq!(fresh.get_or("a", ttl, look_up()).await.expect("found"), 2);
        fresh.clear();
        assert_eq!(fresh.get_or("a", ttl, look_up()).await.expect("found"), 3);
    }
}
