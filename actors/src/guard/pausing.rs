//! Reads live what can hold a pool and its VMs. A watch may hang for minutes after the API server accepted a pause.

use std::sync::Arc;

use agent_forge_crds::pool::VsphereAgentPool;
use futures::future::try_join_all;

use crate::{
    domain::{
        managed_vm::ManagedVm,
        names::ObjectKey,
        upstream::{Pausable, PausableKind},
    },
    ports::cluster::{Cluster, ClusterResult, View},
    runtime::holds::home_of_hosted_cluster,
};

/// The pool, and the Clusters, NodePools and HostedClusters that can pause it, as the API server has them. Of a shared host also
/// the pool that made it.
#[derive(Clone, Debug)]
pub struct Pausing {
    pools: Vec<(ObjectKey, Option<Arc<VsphereAgentPool>>)>,
    /// Which lists were read, and what they showed.
    lists: Vec<(PausableKind, String, Vec<Arc<Pausable>>)>,
}

impl Pausing {
    /// Reads all of it: the pool, its Cluster, its NodePool and its HostedCluster, so four reads. `home`: the control plane of
    /// a VM, whose Cluster counts as well. It may differ from the pool's. Nothing is read in namespaces that are not served:
    /// no cache shows what is there either.
    ///
    /// # Errors
    /// One of the reads failed: nobody knows what holds the pool.
    pub async fn read(
        view: &dyn View,
        cluster: &dyn Cluster,
        key: &ObjectKey,
        home: Option<&str>,
    ) -> ClusterResult<Self> {
        let mut read = Self::read_pool(cluster, key).await?;
        let mut wanted: Vec<(PausableKind, String, Option<&str>)> = Vec::new();
        let pool = read.pools.first().and_then(|(_, pool)| pool.as_ref());
        if let Some(pool) = pool.filter(|pool| pool.has_node_pool()) {
            let spec = &pool.spec;
            let home = pool.control_plane().to_owned();
            wanted.push((PausableKind::Cluster, home, None));
            if let Some(above) = home_of_hosted_cluster(pool) {
                let name = spec.node_pool_ref.name.as_str();
                wanted.push((PausableKind::NodePool, above.clone(), Some(name)));
                let name = spec.hosted_cluster_ref.name.as_str();
                wanted.push((PausableKind::HostedCluster, above, Some(name)));
            }
        }
        let cluster_of = |home: &str| {
            let mut all = wanted.iter();
            all.any(|(kind, at, _)| *kind == PausableKind::Cluster && at == home)
        };
        if let Some(home) = home.filter(|home| !cluster_of(home)) {
            wanted.push((PausableKind::Cluster, home.to_owned(), None));
        }
        wanted.retain(|(_, namespace, _)| view.serves(namespace));
        let lists = wanted.into_iter().map(async |(kind, namespace, name)| {
            let found = cluster.live_pausables(kind, &namespace, name).await?;
            Ok((kind, namespace, found.into_iter().map(Arc::new).collect()))
        });
        read.lists = try_join_all(lists).await?;
        Ok(read)
    }

    /// Reads the pool alone. A forced deletion asks nothing else: no pause holds it.
    ///
    /// # Errors
    /// The read failed.
    pub async fn read_pool(cluster: &dyn Cluster, key: &ObjectKey) -> ClusterResult<Self> {
        Ok(Self {
            pools: vec![(key.clone(), cluster.live_pool(key).await?.map(Arc::new))],
            lists: Vec::new(),
        })
    }

    /// Reads the pool that made that host as well, if another one uses it. Its own annotations hold the host.
    ///
    /// # Errors
    /// The read failed.
    pub async fn with_maker(
        mut self,
        cluster: &dyn Cluster,
        child: &ManagedVm,
    ) -> ClusterResult<Self> {
        let maker = child.maker();
        if maker != child.pool {
            let pool = cluster.live_pool(&maker).await?.map(Arc::new);
            self.pools.push((maker, pool));
        }
        Ok(self)
    }

    /// The pool of that key, if it was read.
    pub(super) fn pool(&self, key: &ObjectKey) -> Option<Option<&Arc<VsphereAgentPool>>> {
        let mut read = self.pools.iter();
        let (_, pool) = read.find(|(of, _)| of == key)?;
        Some(pool.as_ref())
    }

    /// The pools that were read and exist.
    pub(super) fn pools(&self) -> impl Iterator<Item = &Arc<VsphereAgentPool>> {
        self.pools.iter().filter_map(|(_, pool)| pool.as_ref())
    }

    /// The list of that kind in that namespace, if it was read.
    pub(super) fn list(&self, kind: PausableKind, namespace: &str) -> Option<&[Arc<Pausable>]> {
        let mut lists = self.lists.iter();
        let read = lists.find(|(of, at, _)| *of == kind && at == namespace);
        read.map(|(_, _, found)| found.as_slice())
    }
}
