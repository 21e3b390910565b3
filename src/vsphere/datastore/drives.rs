//! Which ISOs the VMs of a vCenter have in their CD-ROM drives.

use std::collections::{BTreeMap, BTreeSet};

use agent_forge_actors::{
    domain::names::MoRef,
    ports::vcenter::{Drives, MountedIso, Unread, VcError, VcErrorKind, VcResult},
};
use serde_json::Value;

use crate::vsphere::{
    machines::observation::iso_of,
    rpc::{
        client::Client,
        properties::{MAX_KEPT, Properties, Question},
    },
};

const DEVICES: &str = "config.hardware.device";
const DATASTORES: &str = "datastore";
const DRIVE_PATHS: &[&str] = &["name", DEVICES, DATASTORES];

/// ISOs in the drives of one VM. A VM without any device is inaccessible or not complete yet.
fn in_drives(vm: &Properties, name: &str) -> VcResult<Vec<MountedIso>> {
    vm.require_readable(&[DEVICES])?;
    let devices = vm.list(DEVICES);
    if devices.is_empty() {
        return Err(VcError::new(
            VcErrorKind::NoAnswer,
            "RetrievePropertiesEx",
            name,
            "vCenter shows none of its devices; is the VM inaccessible?",
        ));
    }
    let mounted = |iso: &str| MountedIso {
        iso: iso.to_owned(),
        vm: name.to_owned(),
    };
    Ok(devices.iter().filter_map(iso_of).map(mounted).collect())
}

impl Client {
    /// What all VMs have in their drives, and which VMs are unknown.
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

    /// The names of these datastores, if they can be read.
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
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::vsphere::rpc::wire::collector::ObjectContent;

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
