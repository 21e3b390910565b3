//! Reads all VMs of a vCenter page by page, through a view that exists as long as the read.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use agent_forge_actors::{
    effect::EffectKind,
    model::names::MoRef,
    ports::vcenter::{Drives, MountedIso, Unread, VcError, VcErrorKind, VcResult},
};
use serde_json::Value;
use tokio::sync::mpsc;
use tracing::Instrument as _;

use super::{
    call::Call,
    client::Client,
    observation::iso_of,
    properties::{MAX_KEPT, Properties, Question},
    session::{self, Asked},
    wire::{
        NoArguments, Ref,
        collector::{CreateContainerView, Selection},
    },
};

const DEVICES: &str = "config.hardware.device";
const DATASTORES: &str = "datastore";
const DRIVE_PATHS: &[&str] = &["name", DEVICES, DATASTORES];

/// ISOs in the drives of one VM. A VM without any device does not exist. Such an answer means that the VM is
/// inaccessible or not complete yet.
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
    /// The ISOs in the drives of all VMs, and the VMs that could not be read with the reason.
    pub(super) async fn all_drives(&self) -> VcResult<Drives> {
        let mut drives = Drives::default();
        let mut kept = 0;
        let mut unread: Vec<(String, VcError, Vec<MoRef>)> = Vec::new();
        self.each_vm(DRIVE_PATHS, |vm| {
            let name = vm.value("name").and_then(Value::as_str);
            let name = name.unwrap_or(&vm.object.id).to_owned();
            kept += name.len();
            match in_drives(&vm, &name) {
                Ok(found) => {
                    let held = found.iter().map(|m| m.vm.len() + m.iso.len() + 64);
                    kept += held.sum::<usize>();
                    drives.isos.extend(found);
                }
                Err(e) => {
                    kept += e.message.len() + 256;
                    unread.push((name, e, vm.references(DATASTORES)));
                }
            }
            if kept > MAX_KEPT {
                return Err(self.endless("all VMs", &format!("more than {MAX_KEPT} bytes")));
            }
            Ok(())
        })
        .await?;
        drives.isos.sort_unstable();
        drives.isos.dedup();
        let stores = unread
            .iter()
            .flat_map(|(.., stores)| stores.iter().cloned());
        let names = self.datastore_names(stores.collect()).await;
        for (name, error, stores) in unread {
            let named: Option<BTreeSet<String>> = stores
                .iter()
                .map(|store| names.get(store).cloned())
                .collect();
            let datastores = named.filter(|all| !all.is_empty());
            drives.unknown.insert(name, Unread { error, datastores });
        }
        Ok(drives)
    }

    /// The names of these datastores, as far as they can be read.
    async fn datastore_names(&self, stores: BTreeSet<MoRef>) -> BTreeMap<MoRef, String> {
        if stores.is_empty() {
            return BTreeMap::new();
        }
        let question = Question::about("datastores of VMs")
            .read("Datastore", &["name"])
            .missing_ok();
        let question = stores.iter().fold(question, Question::of);
        match self.retrieve(question).await {
            Ok(found) => {
                let named = |p: Properties| {
                    let name = p.text("name")?.to_owned();
                    Some((p.object, name))
                };
                found.into_iter().filter_map(named).collect()
            }
            Err(e) => {
                tracing::debug!(server = self.server(), error = %e, "names of datastores are not known");
                BTreeMap::new()
            }
        }
    }

    /// Reads these properties of all VMs. One page is in memory at a time, and each page has the time limit of a call.
    /// If the caller is dropped, the view is still removed.
    pub(super) async fn each_vm(
        &self,
        paths: &'static [&'static str],
        mut each: impl FnMut(Properties) -> VcResult<()>,
    ) -> VcResult<()> {
        let Some(me) = self.me().upgrade() else {
            return Err(session::closed(self.server()));
        };
        let (tell, mut told) = mpsc::channel(1);
        tokio::spawn(async move { me.tell_of_all_vms(paths, &tell).await }.in_current_span());
        loop {
            match told.recv().await {
                Some(Ok(Some(page))) => page.into_iter().try_for_each(&mut each)?,
                Some(Ok(None)) => return Ok(()),
                Some(Err(e)) => return Err(e),
                None => {
                    let message = "the look at all VMs was interrupted".to_owned();
                    let operation = "RetrievePropertiesEx";
                    return Err(self.server_failure(operation, VcErrorKind::NoAnswer, message));
                }
            }
        }
    }

    async fn tell_of_all_vms(
        self: Arc<Self>,
        paths: &'static [&'static str],
        tell: &mpsc::Sender<VcResult<Option<Vec<Properties>>>>,
    ) {
        let view = match self.view_of_all_vms().await {
            Ok(view) => view,
            Err(e) => return drop(tell.send(Err(e)).await),
        };
        tokio::select! {
            biased;
            () = tell.closed() => {}
            () = self.tell_of_view(&view, paths, tell) => {}
        }
        let effect = self.session_effect(EffectKind::SessionView);
        let call = Call::new(&view, "DestroyView", &NoArguments {}).about("all VMs");
        if let Err(e) = self.mutate::<Value>(&effect, call).await {
            tracing::debug!(server = self.server(), error = %e, "a view stays until the session ends");
        }
    }

    async fn tell_of_view(
        &self,
        view: &MoRef,
        paths: &[&'static str],
        tell: &mpsc::Sender<VcResult<Option<Vec<Properties>>>>,
    ) {
        let members = Selection::follow("members", "ContainerView", "view", Vec::new());
        let question = Question::about("all VMs")
            .read("VirtualMachine", paths)
            .found_from(view, vec![members]);
        let mut pages = match self.pages(question).await {
            Ok(pages) => pages,
            Err(e) => return drop(tell.send(Err(e)).await),
        };
        loop {
            let page = pages.next(self).await;
            let goes_on = matches!(page, Ok(Some(_)));
            if tell.send(page).await.is_err() || !goes_on {
                return;
            }
        }
    }

    async fn view_of_all_vms(&self) -> VcResult<MoRef> {
        let session = self.session(Asked::ByCall).await?;
        let content = &session.endpoint.content;
        let manager: MoRef = content.view_manager.clone().into();
        let arguments = CreateContainerView {
            container: content.root_folder.clone(),
            kinds: vec!["VirtualMachine"],
            recursive: true,
        };
        let call = Call::new(&manager, "CreateContainerView", &arguments).about("all VMs");
        let missing = call.failure(VcErrorKind::Undecodable, "the reply names no view");
        let effect = self.session_effect(EffectKind::SessionView);
        let view = self.mutate::<Ref>(&effect, call).await?;
        view.map(MoRef::from).ok_or(missing)
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
