//! Reading all VMs of a vCenter, page by page, through a view that lives as long as the question.

use agent_forge_actors::{
    effect::EffectKind,
    model::names::MoRef,
    ports::vcenter::{Drives, MarkedVm, MountedIso, VcError, VcErrorKind, VcResult},
};
use serde_json::Value;

use super::{
    call::Call,
    client::Client,
    observation::{self, iso_of},
    properties::{MAX_KEPT, Properties, Question},
    session::Asked,
    wire::{
        NoArguments, Ref,
        collector::{CreateContainerView, Selection},
    },
};

/// Marked VMs that are listed: more than all clusters on a vCenter make.
const MAX_MARKED: usize = 20_000;

const DEVICES: &str = "config.hardware.device";

/// ISOs in the drives of one VM. A VM without any device does not exist: it is inaccessible, or not all there yet.
fn in_drives(vm: &Properties, name: &str) -> VcResult<Vec<MountedIso>> {
    vm.require_readable(&[DEVICES])?;
    let devices = vm.list(DEVICES);
    if devices.is_empty() {
        return Err(VcError {
            kind: VcErrorKind::NoAnswer,
            operation: "RetrievePropertiesEx",
            subject: name.to_owned(),
            message: "vCenter shows none of its devices; is the VM inaccessible?".to_owned(),
        });
    }
    let mounted = |iso: &str| MountedIso {
        iso: iso.to_owned(),
        vm: name.to_owned(),
    };
    Ok(devices.iter().filter_map(iso_of).map(mounted).collect())
}

impl Client {
    /// What all VMs have in their drives; of which that is not said, and why.
    pub(super) async fn all_drives(&self) -> VcResult<Drives> {
        let mut drives = Drives::default();
        let mut kept = 0;
        self.each_vm(&["name", DEVICES], |vm| {
            let name = vm.value("name").and_then(Value::as_str);
            let name = name.unwrap_or(&vm.object.id).to_owned();
            kept += name.len();
            match in_drives(&vm, &name) {
                Ok(found) => {
                    let held = found.iter().map(|m| m.vm.len() + m.iso.len() + 64);
                    kept += held.sum::<usize>();
                    drives.isos.extend(found);
                }
                Err(e) => drop(drives.unknown.insert(name, e)),
            }
            if kept > MAX_KEPT {
                return Err(self.endless("all VMs", &format!("more than {MAX_KEPT} bytes")));
            }
            Ok(())
        })
        .await?;
        drives.isos.sort_unstable();
        drives.isos.dedup();
        Ok(drives)
    }

    /// All VMs with an ownership marker.
    pub(super) async fn all_marked_vms(&self) -> VcResult<Vec<MarkedVm>> {
        let mut marked = Vec::new();
        self.each_vm(observation::MARKED_PATHS, |vm| {
            marked.extend(observation::marked(&vm));
            if marked.len() > MAX_MARKED {
                return Err(self.endless("all VMs", &format!("more than {MAX_MARKED} with a mark")));
            }
            Ok(())
        })
        .await?;
        marked.sort_by(|a, b| a.moref.cmp(&b.moref));
        Ok(marked)
    }

    async fn each_vm(
        &self,
        paths: &[&'static str],
        each: impl FnMut(Properties) -> VcResult<()>,
    ) -> VcResult<()> {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::wire::collector::ObjectContent, *};

    #[test]
    fn a_vm_of_which_nothing_is_said_is_not_one_without_an_iso() {
        let vm = |props: Value, missing: Value| -> Properties {
            let content: ObjectContent = serde_json::from_value(json!({
                "obj": {"type": "VirtualMachine", "value": "vm-1"}, "propSet": props, "missingSet": missing,
            }))
            .expect("content");
            content.into()
        };
        let devices = |list: Value| json!([{"name": DEVICES, "val": {"_typeName": "ArrayOfVirtualDevice", "_value": list}}]);
        let disk = json!({"_typeName": "VirtualDisk", "key": 1});
        let drive = json!({"_typeName": "VirtualCdrom", "key": 2, "backing":
            {"_typeName": "VirtualCdromIsoBackingInfo", "fileName": "[isos] a.iso"}});
        let denied = json!([{"path": DEVICES, "fault": {"_typeName": "LocalizedMethodFault", "localizedMessage": "no",
            "fault": {"_typeName": "NoPermission", "privilegeId": "System.Read"}}}]);
        let none = || json!([]);
        let held =
            in_drives(&vm(devices(json!([disk.clone(), drive])), none()), "x").expect("known");
        assert_eq!(held.len(), 1, "{held:?}");
        assert_eq!(
            in_drives(&vm(devices(json!([disk])), none()), "x"),
            Ok(Vec::new())
        );
        for (what, props, missing) in [
            ("withheld", none(), denied),
            ("unset", none(), none()),
            ("empty", devices(json!([])), none()),
        ] {
            assert!(in_drives(&vm(props, missing), "x").is_err(), "{what}");
        }
    }
}
