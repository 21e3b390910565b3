//! Recent lookups. Fifty VMs that want the same place ask vCenter once.
//!
//! One lookup per key runs at a time; others that come meanwhile share it. Only results are kept, not failures. The
//! cache forgets everything when vCenter says that an object is not there any more.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex},
    time::Duration,
};

use agent_forge_actors::{
    domain::names::MoRef,
    ports::vcenter::{ComputeTopology, Datastore, Recommendation, VcResult},
};
use tokio::time::Instant;

use super::networks::Network;
use crate::vsphere::rpc::locked;

/// For names and structure. Users change them seldom.
pub(crate) const STRUCTURE: Duration = Duration::from_secs(300);
/// For free space. It changes all the time.
pub(crate) const SPACE: Duration = Duration::from_secs(10);

type Entry<V> = Arc<tokio::sync::Mutex<Option<(Instant, V)>>>;

/// Values by key. Each expires.
pub(crate) struct TtlCache<K, V> {
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
    /// The value if it is younger than `ttl`, else the result of `look_up`. `look_up` must not ask for the same key: it
    /// would wait for itself.
    pub(crate) async fn get_or<F>(&self, key: K, ttl: Duration, look_up: F) -> VcResult<V>
    where
        F: Future<Output = VcResult<V>>,
    {
        let entry = {
            let mut entries = locked(&self.entries);
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
        locked(&self.entries).clear();
    }
}

/// All caches of one client.
#[derive(Default)]
pub(crate) struct Cache {
    /// Inventory path -> object.
    pub(crate) paths: TtlCache<String, MoRef>,
    /// Datacenter -> its inventory path without leading slash.
    pub(crate) datacenters: TtlCache<MoRef, String>,
    /// Datacenter and name -> network.
    pub(crate) networks: TtlCache<(MoRef, String), Network>,
    /// Datacenter and name -> datastore or datastore cluster.
    pub(crate) stores: TtlCache<(MoRef, String), MoRef>,
    /// Datacenter and path -> VM folder.
    pub(crate) folders: TtlCache<(MoRef, String), MoRef>,
    /// Datastore -> its browser.
    pub(crate) browsers: TtlCache<MoRef, MoRef>,
    /// Datacenter and name of a resource pool -> its hosts.
    pub(crate) topologies: TtlCache<(MoRef, String), Arc<ComputeTopology>>,
    /// Datastore cluster, folder, pool and hardware -> recommendations of Storage DRS.
    pub(crate) recommendations: TtlCache<String, Vec<Recommendation>>,
    /// Datastore or cluster -> its datastores with their free space.
    pub(crate) space: TtlCache<MoRef, Arc<Vec<Datastore>>>,
}

impl Cache {
    /// Forgets everything.
    pub(crate) fn clear(&self) {
        self.paths.clear();
        self.datacenters.clear();
        self.networks.clear();
        self.stores.clear();
        self.folders.clear();
        self.browsers.clear();
        self.topologies.clear();
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
