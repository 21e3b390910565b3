//! The virtual machines: how they look, and each change to them.

pub(crate) mod config;
mod eject;
pub(crate) mod observation;
mod renew;
mod screen;
mod tags;

use agent_forge_actors::{
    domain::{identity::BiosUuid, names::MoRef},
    ports::{
        effect::Effect,
        permit::{self, Permit},
        vcenter::{
            CreateVm, Ended, Machines, TaskRef, Tasks as _, VcErrorKind, VcResult, VmAt, VmChange,
            VmObservation,
        },
    },
};
use async_trait::async_trait;
use serde::Serialize;

use self::{
    config::{changed, creation},
    observation::observation,
};
use super::rpc::{
    call::Call,
    client::Client,
    session::Asked,
    wire::{NoArguments, Ref, vm::ReconfigVm},
};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FindAllByUuid {
    uuid: String,
    vm_search: bool,
}

#[async_trait]
impl Machines for Client {
    async fn find_by_uuid(&self, uuid: BiosUuid) -> VcResult<Vec<VmObservation>> {
        let session = self.session(Asked::ByCall).await?;
        let index: MoRef = session.endpoint.content.search_index.clone().into();
        let arguments = FindAllByUuid {
            uuid: uuid.to_string(),
            vm_search: true,
        };
        let call = Call::new(&index, "FindAllByUuid", &arguments).about(format!("VM {uuid}"));
        let found: Vec<Ref> = self.read(call).await?.unwrap_or_default();
        let found: Vec<MoRef> = found.into_iter().map(MoRef::from).collect();
        let seen = futures::future::try_join_all(found.iter().map(|vm| self.observe(vm))).await?;
        Ok(seen.into_iter().flatten().collect())
    }

    async fn observe(&self, vm: &MoRef) -> VcResult<Option<VmObservation>> {
        let seen = self.look(vm).await?;
        seen.map(|seen| observation(&seen)).transpose()
    }

    async fn create_vm(&self, effect: &Effect, vm: &CreateVm) -> VcResult<TaskRef> {
        let place = &vm.place;
        let mut networks = Vec::new();
        for nic in &vm.nics {
            let network = self.network(&place.datacenter, &nic.network).await?;
            networks.push(network.backing);
        }
        let arguments = creation(vm, networks);
        let call = Call::new(&place.folder, "CreateVM_Task", &arguments);
        self.start(effect, call.about(format!("VM {:?}", vm.name)))
            .await
    }

    async fn configure<'a>(
        &'a self,
        permit: &Permit<VmAt>,
        change: &VmChange,
    ) -> VcResult<Ended<'a>> {
        if !change.eject.is_empty() {
            return self.empty_drives(permit, &change.eject).await;
        }
        let vm = &permit.of().moref;
        let mut spec = changed(change);
        spec.change_version.clone_from(&permit.of().change_version);
        if let Some(life) = &change.life {
            self.prepare(vm, life, &mut spec).await?;
        }
        let call = Call::new(vm, "ReconfigVM_Task", &ReconfigVm { spec });
        let task = self.start(permit, call).await?;
        Ok(Box::pin(async move { self.wait(&task).await.flatten() }))
    }

    async fn power_on(&self, permit: &Permit<VmAt>) -> VcResult<TaskRef> {
        self.start_on("PowerOnVM_Task", permit).await
    }

    async fn power_off(&self, permit: &Permit<VmAt>) -> VcResult<TaskRef> {
        self.start_on("PowerOffVM_Task", permit).await
    }

    async fn reset(&self, permit: &Permit<VmAt>) -> VcResult<TaskRef> {
        self.start_on("ResetVM_Task", permit).await
    }

    async fn destroy(&self, permit: &Permit<VmAt>) -> VcResult<TaskRef> {
        self.start_on("Destroy_Task", permit).await
    }

    async fn attach_tags(&self, effect: &Effect, vm: &MoRef, tag_ids: &[String]) -> VcResult<()> {
        self.tag(effect, vm, tag_ids).await
    }
}

impl Client {
    /// Calls a task method without arguments.
    async fn start_on(&self, method: &'static str, permit: &Permit<VmAt>) -> VcResult<TaskRef> {
        let call = Call::new(&permit.of().moref, method, &NoArguments {});
        self.start(permit, call).await
    }

    /// Calls a task method. The labels of the task name the method and its subject.
    async fn start(&self, asked: impl Into<permit::Ask<'_>>, call: Call) -> VcResult<TaskRef> {
        let missing = call.failure(VcErrorKind::Undecodable, "the reply names no task");
        let (method, subject) = (call.method, call.subject.clone());
        let task = self.mutate::<Ref>(asked, call).await?;
        let Some(task) = task.filter(|task| !task.value.is_empty()) else {
            return Err(missing);
        };
        self.tasks.labels.note(&task.value, method, &subject);
        Ok(TaskRef(task.value))
    }
}
