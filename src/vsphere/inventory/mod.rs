//! What a vCenter holds and how it is organised: datacenters, folders, hosts, networks, and all VMs at a glance.

pub(crate) mod all_vms;
mod authorization;
pub(crate) mod cache;
mod compute;
mod folders;
pub(crate) mod look;
pub(crate) mod lookup;
mod networks;
mod storage_drs;
mod stores;
pub(crate) mod survey;

use std::sync::Arc;

use agent_forge_actors::{
    domain::{hardware::Hardware, names::MoRef},
    ports::{
        effect::Effect,
        vcenter::{
            Fault, FolderSight, Inventory, PlaceCandidates, PlaceRequest, Recommendation, Survey,
            VcResult,
        },
    },
};
use async_trait::async_trait;

use self::cache::STRUCTURE;
use super::{datastore::invisible, rpc::client::Client};

#[async_trait]
impl Inventory for Client {
    async fn place_candidates(&self, request: &PlaceRequest) -> VcResult<PlaceCandidates> {
        let datacenter = self.find_datacenter(&request.datacenter).await?;
        let (compute, network, store, iso_store) = futures::try_join!(
            self.compute(&datacenter, &request.resource_pool),
            self.network(&datacenter, &request.network),
            self.store(&datacenter, &request.datastore_cluster, "datastoreCluster"),
            self.store(&datacenter, &request.iso_datastore, "isoDatastore"),
        )?;
        if iso_store.kind != "Datastore" {
            let name = &request.iso_datastore;
            let why = self.no_datastore(&datacenter, name, invisible(name));
            return Err(why.await?);
        }
        let (datastores, iso_datastores) =
            futures::try_join!(self.datastores(&store), self.datastores(&iso_store))?;
        Ok(PlaceCandidates {
            datacenter,
            compute,
            network: network.object,
            store,
            datastores,
            iso_datastores,
        })
    }

    async fn ensure_folder(
        &self,
        effect: &Effect,
        datacenter: &MoRef,
        path: &str,
    ) -> VcResult<MoRef> {
        let key = (datacenter.clone(), path.to_owned());
        let ensure = self.find_or_create_folder(effect, datacenter, path);
        self.cache.folders.get_or(key, STRUCTURE, ensure).await
    }

    async fn recommend_datastores(
        &self,
        candidates: &PlaceCandidates,
        folder: &MoRef,
        hardware: &Hardware,
    ) -> VcResult<Vec<Recommendation>> {
        self.recommended(
            &candidates.store,
            folder,
            &candidates.compute.resource_pool,
            hardware,
        )
        .await
    }

    async fn survey(&self) -> VcResult<Arc<Survey>> {
        self.shared_survey().await
    }

    /// A missing folder counts as deleted only while the user sees its datacenter.
    async fn folder_sight(&self, folder: &MoRef, datacenter: &MoRef) -> VcResult<FolderSight> {
        Ok(match self.is_named(folder).await? {
            Some(true) => FolderSight::Visible,
            None if self.is_named(datacenter).await? == Some(true) => FolderSight::Deleted,
            Some(false) | None => FolderSight::Hidden,
        })
    }
}

impl Client {
    /// Whether the user sees the object's name; `None`: vCenter answers that there is no such object.
    async fn is_named(&self, object: &MoRef) -> VcResult<Option<bool>> {
        match self.look(object).await {
            Ok(seen) => Ok(seen.map(|seen| seen.text("name").is_some())),
            Err(e) if matches!(e.fault(), Some(Fault::NoPermission { .. })) => Ok(Some(false)),
            Err(e) => Err(e),
        }
    }
}
