//! Chooses where a VM will live: names in the spec become one recorded place.
//!
//! It checks that at least one usable host of the compute resource has the network, the datastore and the ISO
//! datastore. Otherwise the create would fail later. If the cluster has no DRS, it names such a host, in turn.

use agent_forge_actors::{
    effect::Effect,
    ports::vcenter::{Place, PlaceRequest, VcResult},
};

use super::{
    client::Client,
    datastore::invisible,
    site::meeting,
    storage::{self, Datastore},
};

impl Client {
    /// Resolves a place; see the module's contract.
    pub(super) async fn resolve_place(
        &self,
        effect: &Effect,
        request: &PlaceRequest,
    ) -> VcResult<Place> {
        let datacenter = self.find_datacenter(&request.datacenter).await?;
        let (site, network, store, iso_store) = futures::try_join!(
            self.site(&datacenter, &request.resource_pool),
            self.network(&datacenter, &request.network),
            self.store(&datacenter, &request.datastore_cluster, "datastoreCluster"),
            self.store(&datacenter, &request.iso_datastore, "isoDatastore"),
        )?;
        if iso_store.kind != "Datastore" {
            let name = &request.iso_datastore;
            let why = self.no_datastore(&datacenter, name, invisible(name));
            return Err(why.await?);
        }
        let (candidates, iso_stores) =
            futures::try_join!(self.datastores(&store), self.datastores(&iso_store))?;
        let seeing = meeting(&site, request, &network.object, &candidates, &iso_stores)?;
        let mounted =
            |d: &&Datastore| d.usable && seeing.iter().any(|h| d.hosts.contains(&h.object.id));
        let fitting: Vec<&Datastore> = candidates.iter().filter(mounted).collect();
        let folder = self.folder(effect, &datacenter, &request.folder).await?;
        let recommended = if store.kind == "StoragePod"
            && fitting.len() > 1
            && fitting.iter().any(|d| d.storage_drs)
        {
            self.recommended(&store, &folder, &site.pool, &request.hardware)
                .await?
        } else {
            Vec::new()
        };
        let Some(datastore) =
            storage::choose(&fitting, &recommended, &request.reserved, request.bytes)
        else {
            let best = fitting.iter().map(|d| d.free).max().unwrap_or(0);
            return Err(storage::full(
                &request.datastore_cluster,
                request.bytes,
                best,
            ));
        };
        let host = site.host_for(&seeing, datastore);
        Ok(Place {
            datacenter,
            folder,
            resource_pool: site.pool.clone(),
            datastore: (datastore.name.clone(), datastore.object.clone()),
            host,
            network: request.network.clone(),
        })
    }
}
