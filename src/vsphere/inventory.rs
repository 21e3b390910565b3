//! Reading all VMs of a vCenter, page by page, through a view that lives as long as the question.

use agent_forge_actors::{
    effect::EffectKind,
    model::names::MoRef,
    ports::vcenter::{MarkedVm, MountedIso, VcErrorKind, VcResult},
};
use serde_json::Value;

use super::{
    call::Call,
    client::Client,
    observation::{self, iso_of},
    properties::{Properties, Question},
    session::Asked,
    wire::{
        NoArguments, Ref,
        collector::{CreateContainerView, Selection},
    },
};

impl Client {
    /// ISOs in the drives of all VMs.
    pub(super) async fn isos_in_drives(&self) -> VcResult<Vec<MountedIso>> {
        let mut isos = Vec::new();
        self.each_vm(&["name", "config.hardware.device"], |vm| {
            let name = vm.value("name").and_then(Value::as_str);
            let name = name.unwrap_or(&vm.object.id);
            let devices = vm.list("config.hardware.device");
            isos.extend(devices.iter().filter_map(iso_of).map(|iso| MountedIso {
                iso: iso.to_owned(),
                vm: name.to_owned(),
            }));
        })
        .await?;
        isos.sort_unstable();
        isos.dedup();
        Ok(isos)
    }

    /// All VMs with an ownership marker.
    pub(super) async fn all_marked_vms(&self) -> VcResult<Vec<MarkedVm>> {
        let mut marked = Vec::new();
        self.each_vm(observation::MARKED_PATHS, |vm| {
            marked.extend(observation::marked(&vm));
        })
        .await?;
        marked.sort_by(|a, b| a.moref.cmp(&b.moref));
        Ok(marked)
    }

    async fn each_vm(&self, paths: &[&'static str], each: impl FnMut(Properties)) -> VcResult<()> {
        let session = self.session(Asked::ByCall).await?;
        let effect = self.session_effect(EffectKind::SessionView);
        let content = &session.endpoint.content;
        let manager: MoRef = content.view_manager.clone().into();
        let arguments = CreateContainerView {
            container: content.root_folder.clone(),
            kinds: vec!["VirtualMachine"],
            recursive: true,
        };
        let call = Call::new(&manager, "CreateContainerView", &arguments).about("all VMs");
        let missing = call.failure(VcErrorKind::Undecodable, "the reply names no view");
        let view: MoRef = self
            .mutate::<Ref>(&effect, call)
            .await?
            .map(MoRef::from)
            .ok_or(missing)?;
        let members = Selection::follow("members", "ContainerView", "view", Vec::new());
        let question = Question::about("all VMs")
            .read("VirtualMachine", paths)
            .found_from(&view, vec![members]);
        let found = self.retrieve_each(question, each).await;
        let call = Call::new(&view, "DestroyView", &NoArguments {}).about("all VMs");
        if let Err(e) = self.mutate::<Value>(&effect, call).await {
            tracing::debug!(server = self.server(), error = %e, "a view stays until the session ends");
        }
        found
    }
}
