//! The port: a client as the actors see it.

use std::sync::Arc;

use agent_forge_actors::{
    effect::Effect,
    model::{
        identity::BiosUuid,
        marker::Mark,
        names::{DatastorePath, MoRef},
    },
    ports::{
        slots::Slots,
        vcenter::{
            ByteStream, CreateVm, Drives, FileInfo, FolderSight, Place, PlaceRequest, Survey,
            TaskEnd, TaskRef, VCenter, VcResult, VmObservation,
        },
    },
};
use async_trait::async_trait;

use super::client::Client;

/// A caller's handle to a client.
pub(super) struct Handle(pub(super) Arc<Client>);

#[async_trait]
impl VCenter for Handle {
    fn server(&self) -> &str {
        self.0.server()
    }

    fn instance(&self) -> Option<String> {
        self.0.session.instance()
    }

    fn insecure(&self) -> bool {
        self.0.insecure()
    }

    fn login_refused(&self) -> bool {
        self.0.session.refused()
    }

    async fn reachable(&self) -> VcResult<()> {
        self.0.is_there().await
    }

    fn slots(&self) -> Slots {
        self.0.slots.clone()
    }

    async fn place(&self, effect: &Effect, request: &PlaceRequest) -> VcResult<Place> {
        self.0.resolve_place(effect, request).await
    }

    async fn find_by_uuid(&self, uuid: BiosUuid) -> VcResult<Vec<VmObservation>> {
        self.0.vms_by_uuid(uuid).await
    }

    async fn observe(&self, vm: &MoRef) -> VcResult<Option<VmObservation>> {
        self.0.vm(vm).await
    }

    async fn survey(&self) -> VcResult<Arc<Survey>> {
        self.0.survey().await
    }

    async fn folder_sight(&self, folder: &MoRef, datacenter: &MoRef) -> VcResult<FolderSight> {
        self.0.sight_of(folder, datacenter).await
    }

    async fn create_vm(&self, effect: &Effect, vm: &CreateVm) -> VcResult<TaskRef> {
        self.0.start_create(effect, vm).await
    }

    async fn set_boot_order(
        &self,
        effect: &Effect,
        vm: &MoRef,
        disk_keys: &[i32],
    ) -> VcResult<TaskRef> {
        self.0.start_boot_order(effect, vm, disk_keys).await
    }

    async fn stamp_marker(
        &self,
        effect: &Effect,
        vm: &MoRef,
        mark: &Mark,
        notes: bool,
    ) -> VcResult<TaskRef> {
        self.0.start_stamp(effect, vm, mark, notes).await
    }

    async fn power_on(&self, effect: &Effect, vm: &MoRef) -> VcResult<TaskRef> {
        self.0.start_plain(effect, vm, "PowerOnVM_Task").await
    }

    async fn power_off(&self, effect: &Effect, vm: &MoRef) -> VcResult<TaskRef> {
        self.0.start_plain(effect, vm, "PowerOffVM_Task").await
    }

    async fn destroy(&self, effect: &Effect, vm: &MoRef) -> VcResult<TaskRef> {
        self.0.start_plain(effect, vm, "Destroy_Task").await
    }

    async fn wait(&self, task: &TaskRef) -> VcResult<VcResult<TaskEnd>> {
        self.0.tasks.wait(task).await
    }

    async fn eject_isos(&self, effect: &Effect, vm: &MoRef, isos: &[String]) -> VcResult<()> {
        self.0.empty_drives(effect, vm, isos).await
    }

    async fn attach_tags(&self, effect: &Effect, vm: &MoRef, tag_ids: &[String]) -> VcResult<()> {
        self.0.tag(effect, vm, tag_ids).await
    }

    async fn datacenter(&self, name: &str) -> VcResult<MoRef> {
        self.0.find_datacenter(name).await
    }

    async fn stat(&self, datacenter: &MoRef, path: &DatastorePath) -> VcResult<Option<u64>> {
        self.0.size_of(datacenter, path).await
    }

    async fn list(
        &self,
        datacenter: &MoRef,
        directory: &DatastorePath,
    ) -> VcResult<Option<Vec<FileInfo>>> {
        self.0.files_in(datacenter, directory).await
    }

    async fn make_directory(
        &self,
        effect: &Effect,
        datacenter: &MoRef,
        path: &DatastorePath,
    ) -> VcResult<()> {
        self.0.mkdir(effect, datacenter, path).await
    }

    async fn upload(
        &self,
        effect: &Effect,
        datacenter: &MoRef,
        path: &DatastorePath,
        length: u64,
        body: ByteStream,
    ) -> VcResult<()> {
        self.0.put(effect, datacenter, path, length, body).await
    }

    async fn move_file(
        &self,
        effect: &Effect,
        datacenter: &MoRef,
        from: &DatastorePath,
        to: &DatastorePath,
    ) -> VcResult<()> {
        self.0.rename(effect, datacenter, from, to).await
    }

    async fn delete_file(
        &self,
        effect: &Effect,
        datacenter: &MoRef,
        path: &DatastorePath,
    ) -> VcResult<()> {
        self.0.unlink(effect, datacenter, path).await
    }

    async fn drives(&self) -> VcResult<Drives> {
        self.0.all_drives().await
    }

    async fn logout(&self, effect: &Effect) {
        self.0.logout(effect).await;
    }
}
