//! What a vCenter holds and how it is organised: datacenters, folders, hosts, networks, and all VMs at a glance.

pub(crate) mod all_vms;
pub(crate) mod cache;
mod compute;
mod folders;
pub(crate) mod look;
pub(crate) mod lookup;
mod networks;
mod place;
mod storage_drs;
mod stores;
pub(crate) mod survey;

use std::sync::Arc;

use agent_forge_actors::{
    domain::names::MoRef,
    ports::{
        effect::Effect,
        vcenter::{Fault, FolderSight, Inventory, Place, PlaceRequest, Survey, VcResult},
    },
};
use async_trait::async_trait;

use super::rpc::client::Client;

#[async_trait]
impl Inventory for Client {
    async fn place(&self, effect: &Effect, request: &PlaceRequest) -> VcResult<Place> {
        self.resolve_place(effect, request).await
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
